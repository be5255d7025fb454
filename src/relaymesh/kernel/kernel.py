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
    Complete,
    DrainAgent,
    Expect,
    Extend,
    ExtendAll,
    ForceDelayed,
    Forgo,
    KeepTaken,
    Nack,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Receive,
    Redrive,
    RegisterAgent,
    Release,
    Reprioritise,
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
from relaymesh.kernel.request import Command, Result
from relaymesh.kernel.schedules import firing, setting
from relaymesh.kernel.schedules.commands import FireSchedule, PauseSchedule, RemoveSchedule, SetSchedule
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks import (
    abandonment,
    advance,
    ending,
    noticing,
    spending,
    storing,
    submitting,
    taking,
    waiting,
)
from relaymesh.kernel.tasks.commands import (
    Abandon,
    Advance,
    Answer,
    Cancel,
    Fail,
    Finish,
    Grow,
    PutVersion,
    RemoveVersions,
    Report,
    SendNotice,
    SetBudget,
    Signal,
    Submit,
)

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
    Submit: submitting.submit,
    Advance: advance.advance,
    Finish: ending.finish,
    Fail: ending.fail,
    Grow: ending.grow,
    Report: ending.report,
    Answer: ending.answer,
    Signal: waiting.signal,
    SetBudget: spending.set_budget,
    SendNotice: noticing.send_notice,
    KeepTaken: taking.keep_taken,
    Abandon: abandonment.abandon,
    Cancel: ending.cancel,
    PutVersion: storing.put,
    RemoveVersions: storing.remove,
    SetSchedule: setting.put,
    RemoveSchedule: setting.remove,
    PauseSchedule: setting.pause,
    FireSchedule: firing.fire,
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
        board = state.board
        decide = DECISIONS[command.__class__]
        last = self._now if self._now > state.now else state.now  # noqa: FURB136 - hot: no call
        now = self._now = now if now > last else last  # noqa: FURB136
        step = Step(state.sequence, [], [], [])
        decision = Decision(state, step, now, self.chance, self.encoders)
        try:
            passage.let_time_pass(decision)
            if board.changed:
                ending.follow(decision)  # a task that closes takes its messages back first
            step.written = step.synced = 0
            try:
                step.result = decide(decision, command)
            except MeshError as error:
                step.error = error
                decision.after_sync()  # a refusal waits for what it saw
            if board.changed:
                decision.after_sync()  # a step of a task moved: that is durable before it is told
                ending.follow(decision)
            if state.wanted and not state.stopped:
                delivery.serve_waiters(decision)
                if board.changed:
                    ending.follow(decision)
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

    def keep_keys(self, keep_ms: int) -> None:
        """How long keys of ended tasks are kept where there is no store to keep them. Volatile."""
        self.state.board.keys.keep_ms = keep_ms

    def pause_reclaim(self, until: int) -> None:
        """Let no lease expire before `until`. Volatile: for a clock that has just jumped."""
        self.state.reclaim_at = max(self.state.reclaim_at, until)

    @property
    def next_event_at(self) -> int:
        """Mesh time at which a `Tick`, or the shell that fires schedules, has something to do."""
        state = self.state
        leases, deadlines, reclaim_at = state.lease_clock.next, state.board.deadlines.next, state.reclaim_at
        ends = leases if leases < deadlines else deadlines  # noqa: FURB136 - hot: no call
        ends = ends if ends > reclaim_at else reclaim_at  # noqa: FURB136
        return min(state.due.next, state.expiry.next, ends, state.wakes.next, state.schedules.next)
