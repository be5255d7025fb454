"""Records: past facts, in the order in which they happened. The journal holds nothing else.

A record is a batch of events of one kind. `count` is its number of events; event i of a record has sequence
base + i, where base continues from the record before. From then on a message is named by the sequence of the
event that accepted it, together with its mailbox.

Encoding: MessagePack arrays `[operation, count, at_ms, ...]`. Fields are only appended, with defaults. A
reader must understand an operation below 128, or stop; from 128 on it may skip the record (its `count` still
consumes sequences).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.schedules.schedule import Missed, Work
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitKind
from relaymesh.kernel.tasks.status import Status

NoticeKind = Literal["update", "complete", "failed", "result", "budget"]
"""Mail about a task: to its owner, and `result` to the mailbox that a submit named for it."""

FAILURE_BYTES = 128
"""Memory of a failure beside its texts."""


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first fields of every record: how many events, and when (mesh time, ms)."""

    count: int
    at: int


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why one attempt failed."""

    attempt: int
    at: int
    code: str
    reason: str = ""
    stack: str = ""

    @property
    def size(self) -> int:
        """Its size while it is kept with a message: the bytes of its texts, and 128."""
        return FAILURE_BYTES + sum([_bytes(text) for text in (self.code, self.reason, self.stack)])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


FAILURES_MAX = 32
"""Failures kept with a message."""


def failures_size(failures: list[Failure] | None) -> int:
    return sum([failure.size for failure in failures]) if failures else 0


def with_failure(failures: list[Failure] | None, failure: Failure) -> list[Failure]:
    """One failure more: of many, the first and the last are kept. Their attempt numbers show the missing
    ones.
    """
    if not failures:
        return [failure]
    if len(failures) < FAILURES_MAX:
        return [*failures, failure]
    return [failures[0], *failures[2 - FAILURES_MAX :], failure]


class EpochStarted(Record, tag=1, frozen=True):
    """A process opened this partition; its tokens carry this epoch."""

    epoch: int
    partition: int = 0


class MailboxOpened(Record, tag=2, frozen=True):
    """A mailbox was opened, or its settings changed."""

    mailbox: str
    settings: MailboxSettings


class Subscribed(Record, tag=3, frozen=True):
    """Messages on topics that match `pattern` also go to `mailbox`, even if it was suspended.

    `owner` is the agent that pays for what is kept in it, up to `owner_budget` bytes of all it pays for (0:
    no limit); without an owner the senders pay.
    """

    pattern: str
    mailbox: str
    settings: MailboxSettings
    owner: str = ""
    owner_budget: int = 0


class Unsubscribed(Record, tag=4, frozen=True):
    """The subscription and its mailbox are gone; its messages were dropped before."""

    pattern: str
    mailbox: str


class Accepted(Record, tag=5, frozen=True):
    """Messages entered one mailbox; event i is `envelopes[i]`."""

    mailbox: str
    envelopes: list[Envelope]


class Published(Record, tag=6, frozen=True):
    """Messages entered every mailbox subscribed to `topic` at this point: `targets` of them."""

    topic: str
    targets: int
    envelopes: list[Envelope]


class Granted(Record, tag=7, frozen=True):
    """Deliveries: lease `token + i` on message `sequences[i]`, one attempt each."""

    mailbox: str
    holder: str
    token: int
    sequences: list[int]
    remote: bool = False
    lease_ms: int = 0


class Acked(Record, tag=8, frozen=True):
    """Settled: done."""

    mailbox: str
    sequences: list[int]


class Dropped(Record, tag=9, frozen=True):
    """Settled: given up without a dead letter, and counted."""

    mailbox: str
    sequences: list[int]
    code: str = ""


ReturnCause = Literal["nack", "expired", "deferred", "released", "restart", "abandoned"]
BURNING = frozenset({"nack", "expired", "restart", "abandoned"})
"""Returns that count the attempt."""


class Returned(Record, tag=10, frozen=True):
    """Deliveries that ended without settling their message, which waits again until `due[i]`.

    `nack`, `expired`, `restart` and `abandoned` count the attempt; `deferred` and `released` do not.
    """

    mailbox: str
    cause: ReturnCause
    sequences: list[int]
    due: list[int]
    failures: list[Failure | None]


class DeadLettered(Record, tag=11, frozen=True):
    """Settled: kept apart with a reason. The event's own sequence names the dead letter."""

    mailbox: str
    sequences: list[int]
    reason: str
    failures: list[Failure | None]
    alert: bool = False


class Redriven(Record, tag=12, frozen=True):
    """A dead letter went back into a mailbox as a new entry, named by this event's sequence."""

    source: str
    dead_sequence: int
    mailbox: str
    envelope: Envelope


class DeadLettersPurged(Record, tag=13, frozen=True):
    """Dead letters were removed for good."""

    mailbox: str
    dead_sequences: list[int]


class Reprioritised(Record, tag=14, frozen=True):
    """Pending messages changed their priority."""

    mailbox: str
    sequences: list[int]
    priority: int


class DelayedForced(Record, tag=15, frozen=True):
    """Delayed messages became due at once."""

    mailbox: str
    sequences: list[int]


class Completed(Record, tag=16, frozen=True):
    """A handler finished after it had lost its lease: the next delivery is acked unseen."""

    mailbox: str
    sequences: list[int]


class Suspended(Record, tag=17, frozen=True):
    """A subscription gets nothing from here on: a publish skips it. It keeps what it holds."""

    mailbox: str
    reason: str


class Resumed(Record, tag=18, frozen=True):
    """A suspended subscription gets what is published from here on."""

    mailbox: str


class TaskSubmitted(Record, tag=19, frozen=True):
    """A task began. Its steps that need nothing are ready from here on.

    `key` and `request`: the idempotency key, and the digest of the request that it was given with.
    """

    task: str
    plan: Plan
    input: bytes
    key: str
    request: bytes
    owner: str
    trace: str | None = None
    reply_to: str = ""
    """The mailbox that gets the outcome as mail; empty: none."""
    notify: tuple[NoticeKind, ...] = ()
    """What the owner gets mail about."""
    given: list[tuple[int, Status, bytes]] = []
    """Steps that another task did before, with their outcomes: they are not done again."""
    again_of: str = ""
    """The task that `given` comes from."""


class StepsSent(Record, tag=20, frozen=True):
    """Message `sequences[i]` of the mailbox, accepted just before, is the work of step `steps[i]`."""

    task: str
    mailbox: str
    sequences: list[int]
    steps: list[int]


class StepsEnded(Record, tag=21, frozen=True):
    """Steps ended in a state that the end of their messages alone does not tell.

    `outputs[i]` is the result of `steps[i]`; none for a step without a result. `token` names the grant whose
    holder gave the result; 0: none did.
    """

    task: str
    steps: list[int]
    status: Status
    outputs: list[bytes]
    token: int = 0
    code: str = ""
    reason: str = ""


class StepsAdded(Record, tag=22, frozen=True):
    """A step goes on as these steps, which stand behind all others: one for each item, or one for each plan.

    `plans`: their `needs`, `refers` and `handler` count from the first of them; `outer` counts from the first
    step of the task. `input`: what their expressions call `input`; None: what the step itself calls so.
    `token`: the grant whose holder asked for them; 0: the plan did.
    """

    task: str
    step: int
    items: list[bytes]
    plans: list[StepPlan] = []
    input: bytes | None = None
    token: int = 0


class TaskClosing(Record, tag=23, frozen=True):
    """A task will end in this state whatever its steps do: it was cancelled, or its deadline passed.

    `hard`: messages under a lease are withdrawn too; else their holders may finish.
    """

    task: str
    status: Status
    reason: str = ""
    by: str = ""
    hard: bool = False


class TaskEnded(Record, tag=24, frozen=True):
    """A task ended, and every step that had not ended with it. `result` is that of a success."""

    task: str
    status: Status
    result: bytes = b"null"
    code: str = ""
    reason: str = ""


class WorkflowPut(Record, tag=25, frozen=True):
    """A namespace keeps a workflow under this version. `document` is JSON without a version.

    `digest`: of the document as canonical JSON; `owner` pays for it.
    """

    namespace: str
    name: str
    version: str
    document: bytes
    digest: bytes
    owner: str


class WorkflowRemoved(Record, tag=26, frozen=True):
    """These versions of a workflow are gone. Tasks that were begun from them go on."""

    namespace: str
    name: str
    versions: list[str]
    by: str = ""


class StepsTaken(Record, tag=27, frozen=True):
    """Messages of steps were acked by an agent that reports their ends later: their leases go on.

    `lease_ms`: how long a lease lasts from here on, and after each renewal.
    """

    mailbox: str
    sequences: list[int]
    lease_ms: int


class StepWaits(Record, tag=28, frozen=True):
    """A step waits for an answer, a time or a signal, without a lease.

    `until`: when it stops waiting (mesh time); 0: never. `asked` and `sequence`: the mailbox and the message
    of its question; empty and -1 for another wait.
    """

    task: str
    step: int
    kind: WaitKind
    until: int = 0
    sequence: int = -1
    asked: str = ""


class SignalReceived(Record, tag=29, frozen=True):
    """A signal came to a task, and is kept until a step waits for one of its name."""

    task: str
    name: str
    id: str
    value: bytes
    by: str = ""


class StepsWithdrawn(Record, tag=30, frozen=True):
    """The messages of these steps are taken back. The steps have not ended: they are sent again later."""

    task: str
    steps: list[int]
    reason: str = ""


class TaskUndoing(Record, tag=31, frozen=True):
    """A task that closes undoes these steps, in this order: for each, one step more stands behind all others.

    `uncertain[i]`: `steps[i]` was granted, and nothing is known of its outcome.
    """

    task: str
    steps: list[int]
    uncertain: list[bool]


class UsageNoted(Record, tag=32, frozen=True):
    """What the attempt under `token` has used so far: its total, which replaces what was noted before."""

    task: str
    step: int
    token: int
    cost_micros: int
    tokens: int


class BudgetPaused(Record, tag=33, frozen=True):
    """A task has used its budget: it sends nothing until it gets a larger one."""

    task: str
    reason: str


class BudgetSet(Record, tag=34, frozen=True):
    """A task has this budget from here on; 0: no limit."""

    task: str
    cost_micros: int
    tokens: int
    by: str = ""


class NoticeSent(Record, tag=35, frozen=True):
    """Mail that was owed for a task is sent: the message accepted just before."""

    task: str
    kind: NoticeKind
    mailbox: str


class ScheduleSet(Record, tag=36, frozen=True):
    """A namespace keeps a schedule: `work` begins at each tick. `next_at`: its first tick.

    `owner` pays for it and for its runs, up to `budget` bytes of all it pays for; 0: no limit.
    """

    namespace: str
    name: str
    cron: str
    tz: str
    missed: Missed
    work: Work
    owner: str
    budget: int
    next_at: int


class ScheduleRemoved(Record, tag=37, frozen=True):
    """A schedule is gone. What it began goes on."""

    namespace: str
    name: str
    by: str = ""


class ScheduleFired(Record, tag=38, frozen=True):
    """The tick at `tick_at` began `run`, the task or message of this same decision; empty: it was skipped.

    `skipped`: ticks that have passed without a run of their own. `next_at`: the tick that is waited for now.
    """

    namespace: str
    name: str
    tick_at: int
    next_at: int
    run: str
    skipped: int = 0
    reason: str = ""


class SchedulePaused(Record, tag=39, frozen=True):
    """A schedule rests, or goes on with the tick at `next_at`."""

    namespace: str
    name: str
    paused: bool
    next_at: int = 0
    by: str = ""


class AgentRegistered(Record, tag=128, frozen=True):
    """An agent joined, or its description changed. `role` is empty when it declared none.

    `settles`: it ends a step with a result, so its ack of one is a result too; else its ack means that the
    step is taken. Records of older versions do not have it: their agents settle.
    A reader may skip it: no message depends on it, and an earlier record opened its mailbox.
    """

    mailbox: str
    role: str = ""
    capabilities: tuple[str, ...] = ()
    protocol: str = ""
    metadata: bytes = b"{}"
    draining: bool = False
    settles: bool = True


AnyRecord = (
    EpochStarted
    | MailboxOpened
    | Subscribed
    | Unsubscribed
    | Accepted
    | Published
    | Granted
    | Acked
    | Dropped
    | Returned
    | DeadLettered
    | Redriven
    | DeadLettersPurged
    | Reprioritised
    | DelayedForced
    | Completed
    | Suspended
    | Resumed
    | TaskSubmitted
    | StepsSent
    | StepsEnded
    | StepsAdded
    | TaskClosing
    | TaskEnded
    | WorkflowPut
    | WorkflowRemoved
    | StepsTaken
    | StepWaits
    | SignalReceived
    | StepsWithdrawn
    | TaskUndoing
    | UsageNoted
    | BudgetPaused
    | BudgetSet
    | NoticeSent
    | ScheduleSet
    | ScheduleRemoved
    | ScheduleFired
    | SchedulePaused
    | AgentRegistered
)
