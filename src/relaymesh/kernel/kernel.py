"""The kernel: commands in, steps out.

`step` lets time pass, decides the command, and serves waiting receivers. Deciding means reading the state and
emitting records; `emit` applies each at once, so a later decision of the same step sees it. A refused command
emits nothing of its own.

A step that ends in any other exception (a defect, an interrupt) may have applied records that no journal will
ever hold: the kernel then refuses every further step, and a restart replays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from relaymesh.errors import Closed, MeshError
from relaymesh.kernel import (
    admission,
    arrivals,
    delivery,
    epoch,
    expectation,
    gate,
    leases,
    mailbox_opening,
    passage,
    priorities,
    redrive,
    registry,
    settlement,
    subscriptions,
)
from relaymesh.kernel.commands import (
    Ack,
    Command,
    Complete,
    DrainAgent,
    Expect,
    Extend,
    ExtendAll,
    ForceDelayed,
    Forgo,
    Nack,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Receive,
    Redrive,
    RegisterAgent,
    Release,
    Reprioritise,
    Result,
    Send,
    SetBreaker,
    Settle,
    Start,
    Stop,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.decision import Decision, Encoders, Unwritable
from relaymesh.kernel.query import ANSWERS, Query
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Step

BROKEN_HINT = (
    "open the mesh again: what was receipted is in the journal; report this unless you interrupted it"
)

UNWRITABLE_HINT = (
    "nothing of this call was written; open the mesh again: what was receipted is in the journal."
    " Report this: it is a defect of RelayMesh, not of your disk"
)

DECISIONS: dict[type[Command[Any]], Callable[[Decision, Any], Any]] = {
    Start: epoch.start,
    Stop: epoch.stop,
    Tick: passage.tick,
    OpenMailbox: mailbox_opening.open_mailbox,
    RegisterAgent: registry.register,
    DrainAgent: registry.drain,
    Subscribe: subscriptions.subscribe,
    Unsubscribe: subscriptions.unsubscribe,
    Send: admission.accept,
    Publish: admission.publish,
    Receive: delivery.receive,
    Forgo: delivery.forgo,
    Expect: expectation.expect,
    Unexpect: expectation.unexpect,
    Extend: leases.extend,
    ExtendAll: leases.extend_all,
    Release: leases.release,
    Ack: settlement.ack,
    Nack: settlement.nack,
    Settle: settlement.settle,
    Complete: settlement.complete,
    Redrive: redrive.redrive,
    PurgeDeadLetters: redrive.purge,
    Reprioritise: priorities.reprioritise,
    ForceDelayed: arrivals.force_delayed,
    SetBreaker: gate.set_breaker,
}


PLAIN_ENCODERS: Encoders = dict.fromkeys(get_args(AnyRecord), msgspec.msgpack.encode)


class Kernel:
    """One partition's state machine. `chance` gives uniform numbers in [0, 1) for jitter.

    `encoders` make the bytes of a record, before it is applied.
    """

    def __init__(
        self, chance: Callable[[], float], state: State | None = None, encoders: Encoders = PLAIN_ENCODERS
    ) -> None:
        self.state = State() if state is None else state
        self.chance = chance
        self.encoders = encoders
        self._now = self.state.now
        self._broken: BaseException | None = None

    def apply(self, record: AnyRecord) -> Any:
        """Replay one record; see `State.apply`."""
        return self.state.apply(record)

    def holds(self, token: int) -> bool:
        """Whether the lease is still held: neither settled, nor given back, nor lost."""
        return token in self.state.leases

    def step(self, command: Command[Any], now: int) -> Step:
        """Decide one command at mesh time `now` (ms). An earlier `now` than the last one counts as the last
        one.
        """
        if self._broken is not None:
            raise self.failure
        state = self.state
        decide = DECISIONS[command.__class__]
        now = self._now = max(now, self._now, state.now)
        step = Step(state.sequence, [], [], [])
        decision = Decision(state, step, now, self.chance, self.encoders)
        try:
            passage.let_time_pass(decision)
            step.written = step.synced = 0
            try:
                step.result = decide(decision, command)
            except MeshError as error:
                step.error = error
                decision.after_sync()  # a refusal waits for what it saw
            if state.wanted and not state.stopped:
                delivery.serve_waiters(decision)
        except Unwritable as error:
            self._broken = error
            raise self.failure from error
        except BaseException as error:
            self._broken = error
            raise
        return step

    def look(self, query: Query[Result]) -> Result:
        """Answer a query. Changes nothing, and lets no time pass."""
        answer: Result = ANSWERS[query.__class__](self, query)
        return answer

    @property
    def broken(self) -> bool:
        """A step ended in the middle: refuse every further step."""
        return self._broken is not None

    @property
    def failure(self) -> Closed:
        """The error of every call after that."""
        if isinstance(self._broken, Unwritable):
            return Closed(f"the mesh stopped: {self._broken}", hint=UNWRITABLE_HINT)
        return Closed(f"the kernel stopped in the middle of a step: {self._broken!r}", hint=BROKEN_HINT)

    def pause_reclaim(self, until: int) -> None:
        """Let no lease expire before `until`. Volatile: for a clock that has just jumped."""
        self.state.reclaim_at = max(self.state.reclaim_at, until)

    @property
    def next_event_at(self) -> int:
        """Mesh time at which a `Tick` has something to do."""
        state = self.state
        lease_ends = max(state.lease_clock.next, state.reclaim_at)
        return min(state.due.next, state.expiry.next, lease_ends, state.wakes.next)
