"""A node and a victim that uses it all the time; attackers come and go."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.attacks.catalogue import ATTACKS, Attack
from tests.attacks.children import Child
from tests.attacks.memory import Watch
from tests.attacks.node import Node
from tests.attacks.processors import Elsewhere
from tests.attacks.verdict import Latency, Seen

WARM_UP_S = 0.5
AUDIT_S = 0.2
"""Lines of the audit are written within 100 ms."""
READY_S_MAX = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long each phase lasts, how often the victim sends, and what the attackers may use of a processor.

    `share` is of one processor and of all attackers together: on another machine they would use none of the
    node's.
    """

    seconds: float = 10.0
    base_s: float = 5.0
    after_s: float = 3.0
    rate: float = 40.0
    http_rate: float = 10.0
    share: float = 1.0


@dataclass
class Phase:
    """From `began` to `ended` by the clock that all processes of a machine share."""

    began: float = 0.0
    ended: float = 0.0

    def latency(self, notes: dict[str, Any]) -> Latency:
        return Latency(self._of(notes["trips"]), self._of(notes["requests"]))

    def _of(self, samples: list[tuple[float, float]]) -> list[float]:
        return [took * 1000 for due, took in samples if self.began <= due < self.ended]


class Stage:
    """`with Stage(plan) as stage: stage.attack(["pings"])`. All processes end with it, also on failure."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stack = ExitStack()
        self._reconnects = 0
        self._mailboxes = 0

    def __enter__(self) -> Self:
        with self._stack as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="relaymesh-attacks-"))
            self._place = Path(folder)
            self._node = stack.enter_context(Node(self._place / "node", ATTACKS, ("victim", "peer")))
            self._victim = self._child("victim", self._victim_given(), stack)
            self._victim.hear()
            time.sleep(WARM_UP_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def attack(self, names: list[str], *, control: bool = False) -> Seen:
        """Base line, the attack, with `control` an equal load, and what is left when all are gone."""
        attacks = {name: ATTACKS[name] for name in names}
        self._open_mailboxes(attacks)
        base, attacked = Phase(), Phase()
        with Watch(self._node) as watch:
            base.began = time.monotonic()
            time.sleep(self._plan.base_s)
            base.ended = time.monotonic()
            elsewhere = Elsewhere((self._node.pid, self._victim.pid, os.getpid()))
            did = self._attack(attacks, attacked)
            others = elsewhere.processors(sum(given["processor_s"] for given in did.values()))
            time.sleep(self._plan.after_s)
            notes = self._report()
        beside_load, errors = self._beside_load(did) if control else (None, {})
        after_bytes, answers = self._after()
        return Seen(
            base=base.latency(notes),
            attacked=attacked.latency(notes),
            control=beside_load,
            errors={**notes["errors"], **errors, **self._new_reconnects()},
            others=others,
            attackers=did,
            peak_bytes=watch.peak_bytes,
            excess_bytes=watch.excess_bytes,
            after_bytes=after_bytes,
            answers=answers,
        )

    def _victim_given(self) -> dict[str, Any]:
        tokens = {name: self._node.tokens[name] for name in ("victim", "peer")}
        rates = {"rate": self._plan.rate, "http_rate": self._plan.http_rate}
        return {"url": self._node.url, "tokens": tokens, **rates}

    def _child(self, module: str, given: dict[str, Any], stack: ExitStack) -> Child:
        return stack.enter_context(Child(module, given, self._place / f"{module}.log"))

    def _open_mailboxes(self, attacks: dict[str, Attack]) -> None:
        needed = max((attack.mailboxes for attack in attacks.values()), default=0)
        if needed > self._mailboxes:
            self._node.open_mailboxes(needed)
            self._mailboxes = needed

    def _attack(self, attacks: dict[str, Attack], phase: Phase) -> dict[str, dict[str, Any]]:
        """Let all attackers prepare, then attack at the same time; what each of them did."""
        plan = self._plan
        each = {"port": self._node.port, "seconds": plan.seconds, "share": plan.share / max(1, len(attacks))}
        with ExitStack() as stack:
            children = {
                name: self._child("attacker", {"name": name, "token": self._node.tokens[name], **each}, stack)
                for name in attacks
            }
            _begin(list(children.values()), phase)
            if not children:
                time.sleep(plan.seconds)
            did = {name: child.hear() for name, child in children.items()}
            phase.ended = phase.began + plan.seconds
            return did

    def _beside_load(self, did: dict[str, dict[str, Any]]) -> tuple[Latency, dict[str, int]]:
        """As many processes as there were attackers, each with the processor time of its attacker.

        It comes after a report, and so when the node has caught up with what the attackers left.
        """
        phase = Phase()
        with ExitStack() as stack:
            children = []
            for given in did.values():
                share = given["processor_s"] / max(given["took_s"], 0.001)
                load = {"seconds": self._plan.seconds, "share": share}
                children.append(self._child("load", load, stack))
            _begin(children, phase)
            for child in children:
                child.hear()
            phase.ended = time.monotonic()
        notes = self._report()
        return phase.latency(notes), notes["errors"]

    def _report(self) -> dict[str, Any]:
        """What the victim noted since the last one. It waits for everything that it has begun."""
        self._victim.tell("report")
        return self._victim.hear()

    def _new_reconnects(self) -> dict[str, int]:
        time.sleep(AUDIT_S)
        found = sum(self._node.connections_opened(name) - 1 for name in ("victim", "peer"))
        new, self._reconnects = found - self._reconnects, found
        return {"reconnects": new} if new else {}

    def _after(self) -> tuple[int, bool]:
        """What is resident beside counted mail in the end, and whether the node is ready within a second."""
        began = time.monotonic()
        try:
            status, _ = self._node.ask("GET", "/readyz")
            ready = status == 200 and time.monotonic() - began < READY_S_MAX
            return self._node.resident_bytes() - self._node.counted_bytes(), ready
        except (OSError, HTTPException, ValueError):
            return self._node.resident_bytes(), False


def _begin(children: Sequence[Child], phase: Phase) -> None:
    """Wait until each is ready, then say go to all."""
    for child in children:
        child.hear()
    phase.began = time.monotonic()
    for child in children:
        child.tell("go")
