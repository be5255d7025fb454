"""Hostile clients: commands that must be refused when they are built, and legal ones at the bounds.

They have a generator of their own, so that what the other clients do does not depend on them. What is
refused changes nothing; what is legal goes through journal, checkpoint and recovery like everything else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from relaymesh.errors import MeshError
from relaymesh.kernel import commands
from relaymesh.kernel.bounds import DURATION_MS_MAX, LEASE_MS_MAX, RETRIES_MAX
from relaymesh.kernel.commands import Extend, Nack
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.request import Command
from relaymesh.testing.simulation.clients import Clients
from relaymesh.testing.simulation.history import Delivery, Message
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.world import World

NO_NUMBERS = ("5", 5.0, 0.5, math.nan, math.inf, True, -1, 1 << 64, 10**20, 10**400, [5])
NO_TEXTS = (5, b"x", 0.5, ["x"], "x" * 100_000, "")
NO_FLAGS = (1, 0, "yes", None, 0.5)
TEXTS = ("half an emoji \ud83d", "\udc00", "\x00", "x" * 5_000, "é" * 2_000, "\U0010ffff", "\u202e")
"""Texts of errors: each of them is written, made sound."""
NO_IDS = ([5], ["m1", None], [b"m1"], [["m1"]])
NO_TOKENS = (["5"], [5.0], [None], [True], [[5]])
OPTIONAL = frozenset({"delay_ms", "until", "to", "correlation_id"})
FREE_TEXTS = frozenset({"reason", "stack"})
"""Texts that may be empty, and as long as they like."""


class Hostile:
    """Every hostile client of one run."""

    def __init__(self, world: World, clients: Clients) -> None:
        self.world = world
        self.clients = clients
        self.rng = random.Random(f"hostile-{world.plan.seed}")
        self._bold = self.rng.random() < 0.5
        """Whether this run has legal values at the bounds, and a record that cannot be written, too."""

    def act(self) -> None:
        """Do something hostile now and then."""
        roll = self.rng.random()
        if roll < 0.15:
            self.wrong_value()
        elif self._bold and roll < 0.18:
            self.at_the_bounds()
        elif self._bold and roll < 0.183:
            self.unwritable()

    # -- what must be refused -----------------------------------------------------------------

    def wrong_value(self) -> None:
        """One field of one command is no value for it."""
        kind, legal = self.rng.choice(list(self._examples().items()))
        name = self.rng.choice([name for name, value in legal.items() if value != []])
        wrong = self.rng.choice(_wrong_for(name, legal[name]))
        sequence = self.world.core.kernel.state.sequence
        self.world.counts["wrong_value"] += 1
        try:
            kind(**{**legal, name: wrong})
        except MeshError as error:
            if not error.hint:
                raise Violation("edge", f"{kind.__name__} refused {name} without a hint: {error}") from None
        else:
            raise Violation("edge", f"{kind.__name__} took {wrong!r:.80} as its {name}")
        if self.world.core.kernel.state.sequence != sequence:
            raise Violation("edge", f"a {kind.__name__} that was refused changed the state")

    def _examples(self) -> dict[type[Command[Any]], dict[str, Any]]:
        """A legal command of each kind that takes values."""
        mailbox = self.rng.choice(list(self.world.plan.mailboxes))
        token = self.clients.held[0].token if self.clients.held else 1
        return {
            commands.Start: {"epoch": 1, "partition": 0},
            commands.Stop: {"deliver_delayed": False},
            commands.DrainAgent: {"agent": mailbox},
            commands.Unsubscribe: {"mailbox": mailbox},
            commands.Expect: {"mailbox": mailbox, "correlation_id": "c"},
            commands.Unexpect: {"mailbox": mailbox, "correlation_id": "c"},
            commands.Nack: {
                "token": token,
                "code": "other",
                "reason": "r",
                "stack": "s",
                "retryable": True,
                "delay_ms": 5,
                "until": 5,
            },
            commands.Ack: {"tokens": [token], "drop": False},
            commands.Release: {"tokens": [token]},
            commands.Redrive: {"to": mailbox, "letters": []},
            commands.Extend: {"token": token, "ms": 5},
            commands.Complete: {"mailbox": mailbox, "sequence": 1},
            commands.Reprioritise: {"mailbox": mailbox, "ids": None, "priority": 3},
            commands.SetBreaker: {"mailbox": mailbox, "open": False},
        }

    # -- what must go through -----------------------------------------------------------------

    def at_the_bounds(self) -> None:
        choices: list[Callable[[], None]] = [self._large_message, self._loud_failure, self._long_lease]
        self.world.counts["at_the_bounds"] += 1
        self.rng.choice(choices)()

    def _large_message(self) -> None:
        message = self.clients.new_message(self.rng.choice(self.world.plan.agents))
        large = Message(
            message.id + "é" * 200,
            message.target,
            message.content,
            key=message.key,
            priority=message.priority,
            ttl_ms=DURATION_MS_MAX,
            max_retries=RETRIES_MAX,
        )
        self.clients.ask_to_accept([large])

    def _loud_failure(self) -> None:
        delivery = self._held()
        if delivery is not None:
            code = "x" * 128
            reason, stack = self.rng.choice(TEXTS), self.rng.choice(TEXTS)
            command = Nack(delivery.token, code, reason, stack, delay_ms=0)
            self.clients._ask(delivery, "nack", command, not_before=self.world.now(), code_given=code)

    def _long_lease(self) -> None:
        """As long as there is, of a receiver that dies with the node; and done at once."""
        delivery = self._held(remote=False)
        if delivery is not None:
            self.clients._ask(delivery, "extend", Extend(delivery.token, LEASE_MS_MAX))
            self.clients.finish(delivery)

    def _held(self, *, remote: bool | None = None) -> Delivery | None:
        held = [each for each in self.clients.held if remote is None or each.remote is remote]
        return self.rng.choice(held) if held else None

    # -- our own mistake ----------------------------------------------------------------------

    def unwritable(self) -> None:
        """A record cannot be encoded: it must not be applied, and the node stops."""
        kernel = self.world.core.kernel
        encoders = kernel.encoders
        expected = kernel.state.sequence
        fails_at = self.rng.choice((1, 1, 2))
        failed = False

        def failing(record: AnyRecord) -> bytes:
            nonlocal expected, fails_at, failed
            fails_at -= 1
            if fails_at:
                data = encoders[type(record)](record)
                expected += record.count
                return data
            failed = True
            if kernel.state.sequence != expected:
                raise Violation("edge", f"{type(record).__name__} was applied before it was encoded")
            raise OverflowError("planted by the simulator")

        kernel.encoders = dict.fromkeys(encoders, failing)
        try:
            self.clients.send()
        finally:
            kernel.encoders = encoders
        if failed:
            self.world.counts["unwritable"] += 1
            if not kernel.broken or kernel.state.sequence != expected:
                raise Violation("edge", "a record that could not be written changed the state")


def _wrong_for(name: str, legal: Any) -> tuple[Any, ...]:
    if isinstance(legal, bool):
        return NO_FLAGS
    if isinstance(legal, int):
        return NO_NUMBERS if name in OPTIONAL else (*NO_NUMBERS, None)
    if isinstance(legal, str):
        wrong = NO_TEXTS[:4] if name in FREE_TEXTS else NO_TEXTS
        return wrong if name in OPTIONAL else (*wrong, None)
    return NO_IDS if name == "ids" else NO_TOKENS
