"""Commands about tasks, and the values that they result in. They check themselves, like all commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from relaymesh.errors import InvalidValue, PayloadTooLarge
from relaymesh.kernel.bounds import (
    ADDRESS_LENGTH_MAX,
    BYTES_MAX,
    CODE_LENGTH_MAX,
    LEASE_MS_MAX,
    MOMENT_MS_MAX,
    TEXT_LENGTH_MAX,
    TOKEN_MAX,
    exact,
    flag,
    one_of,
    plain_text,
    shown,
    sound,
    text,
    whole,
)
from relaymesh.kernel.failure_text import cut_reason
from relaymesh.kernel.payload import REFERENCE_MARK
from relaymesh.kernel.records import NoticeKind
from relaymesh.kernel.request import Command
from relaymesh.kernel.tasks.keys import KeyHeld
from relaymesh.kernel.tasks.plan import (
    COST_MAX,
    NAME_LENGTH_MAX,
    NUMBER_MAX,
    PLAN_BYTES_MAX,
    SIGNAL_BYTES_MAX,
    USAGE_MAX,
    Plan,
    StepPlan,
    check_plan,
    check_steps,
)
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.task import OUTPUT_BYTES_MAX

NOTICE_KINDS: tuple[NoticeKind, ...] = ("update", "complete", "failed", "result", "budget")
OUTPUT_MAX = 10_485_760
"""The largest result of one step, in bytes of JSON."""
INPUT_MAX = 10_485_760
"""The largest input of a step."""
TASK_INPUT_MAX = 1_048_576
"""The largest input of a task: its canonical form is computed for the key, which takes about a second per
MiB."""
ITEM_MAX = 1_048_576
"""The largest item of a `for_each`."""
MESSAGE_MAX = INPUT_MAX + 65_536
"""The largest message of a step: its input and its metadata."""
TASK_ID_LENGTH_MAX = 128
ADVANCE_MESSAGES_MAX = 64
ADVANCE_BYTES_MAX = 1_048_576
"""The most that one `Advance` sends, so that a fan-out delays no other work."""

REFERENCE_HINT = "give a reference (a path or a URL) in place of the data"
VERSION_LENGTH_MAX = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


class Usage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an attempt has used so far: its total, not what was added since the last report."""

    cost_micros: int = 0
    """Millionths of a dollar."""
    tokens: int = 0


NO_USAGE = Usage()


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The result of a submit: the task, and whether an earlier submit of the same request made it."""

    task: str
    duplicate: bool = False
    status: Status = "PENDING"


class Submit(Command[Submitted]):
    """Begin a task, unless its key is known. `task`: a new id. `known`, `looked`: what the store has for the
    key, and the sequence that the store had reached. `again`: run it again if it ended without success.
    """

    task: str
    plan: Plan
    input: bytes
    key: str
    request: bytes
    owner: str
    trace: str | None = None
    known: KeyHeld | None = None
    looked: int = 0
    again: bool = False
    budget: int = 0
    reply_to: str = ""
    notify: tuple[NoticeKind, ...] = ()
    given: Sequence[tuple[int, Status, bytes]] = ()
    again_of: str = ""

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.plan = check_plan(self.plan)
        self.input = _unfiled(_json(self.input, "the input of a task", TASK_INPUT_MAX), "the input of a task")
        self.key = exact(self.key, "key", 1, TEXT_LENGTH_MAX)
        if type(self.request) is not bytes or len(self.request) > 64:
            raise InvalidValue(f"the digest of a request must be bytes, not {shown(self.request)}")
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)
        if self.trace is not None:
            self.trace = text(self.trace, "trace", 1, TEXT_LENGTH_MAX)
        flag(self.again, "again")
        self.budget = whole(self.budget, "budget", 0, BYTES_MAX)
        self.reply_to = text(self.reply_to, "reply_to", 0, ADDRESS_LENGTH_MAX)
        self.notify = tuple([_notice(kind) for kind in self.notify])
        self.given = [_checked_given(each, len(self.plan.steps)) for each in self.given]
        self.again_of = text(self.again_of, "again_of", 0, TASK_ID_LENGTH_MAX)


Action = Literal["send", "skip", "fail", "expand", "wait", "include"]
ACTIONS: tuple[Action, ...] = ("send", "skip", "fail", "expand", "wait", "include")


class Move(msgspec.Struct, frozen=True, gc=False):
    """What to do with one ready step: send it, skip it, fail it, do it once for each of `items`, let it wait,
    or replace it by the steps of another workflow. `content`: that of its message or its question; for an
    included workflow, its input. `wait_ms`: how long it waits; `until`: the time until which it waits,
    instead; -1: neither.
    """

    step: int
    action: Action
    content: bytes = b""
    items: Sequence[bytes] = ()
    code: str = ""
    reason: str = ""
    wait_ms: int = -1
    until: int = -1
    plans: tuple[StepPlan, ...] = ()


class Advanced(msgspec.Struct, frozen=True, gc=False):
    """How many steps moved, and why the others did not; empty: they were not ready any more."""

    moved: int
    blocked: str = ""


class Advance(Command[Advanced]):
    """Move ready steps of a task. A step that is no longer ready is skipped: it was moved before. `ids`: new
    message ids, one for each move. `away`: agents known to be offline, which are not chosen for their
    capabilities.
    """

    task: str
    moves: Sequence[Move]
    ids: Sequence[str]
    away: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        if len(self.ids) < len(self.moves):
            raise InvalidValue(f"{len(self.moves)} moves need as many ids, not {len(self.ids)}")
        self.moves = [_checked_move(move) for move in self.moves]
        self.away = [text(each, "agent", 1, ADDRESS_LENGTH_MAX) for each in self.away]


class Finish(Command[Status]):
    """Settle the delivery of a step with its result. Returns the state of the task.

    A result that comes after its lease ended counts as long as no other holder was granted the step.
    """

    token: int
    output: bytes = b"null"
    usage: Usage = NO_USAGE

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.output = _unfiled(_json(self.output, "the result of a step", OUTPUT_MAX), "the result of a step")
        self.usage = _checked_usage(self.usage)


class Grow(Command[Status]):
    """Settle the delivery of a step with more steps: it completes with their outputs.

    Their `needs`, `refers` and `handler` count from the first of them, `outer` from the task's first step.
    """

    token: int
    steps: tuple[StepPlan, ...]
    usage: Usage = NO_USAGE

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.steps = check_steps(self.steps, "the new steps of a step")
        self.usage = _checked_usage(self.usage)


class Fail(Command[Status]):
    """Settle the delivery of a step as failed for good: without a retry and without a dead letter."""

    token: int
    code: str = "failed"
    reason: str = ""
    usage: Usage = NO_USAGE

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.code = text(self.code, "code", 1, CODE_LENGTH_MAX)
        self.reason = cut_reason(sound(plain_text(self.reason, "reason")))
        self.usage = _checked_usage(self.usage)


class Report(Command[None]):
    """Progress of a step, shown while it runs; empty: unchanged. It renews the lease. Only usage is
    recorded."""

    token: int
    progress: str
    usage: Usage = NO_USAGE

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.progress = cut_reason(sound(plain_text(self.progress, "progress")))
        self.usage = _checked_usage(self.usage)


class Answer(Command[Status]):
    """The answer to a question of a step, by the agent that was asked. Returns the state of the task."""

    task: str
    step: str
    value: bytes
    by: str

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.step = text(self.step, "step", 1, TEXT_LENGTH_MAX)
        self.value = _json(self.value, "an answer", SIGNAL_BYTES_MAX)
        self.by = text(self.by, "by", 1, ADDRESS_LENGTH_MAX)


class Signal(Command[bool]):
    """A signal from outside, for the step that waits for this name. Returns whether this id came before."""

    task: str
    name: str
    id: str
    value: bytes = b"null"
    by: str = ""

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.name = exact(self.name, "the name of a signal", 1, NAME_LENGTH_MAX)
        self.id = exact(self.id, "the id of a signal", 1, TASK_ID_LENGTH_MAX)
        self.value = _json(self.value, "a signal", SIGNAL_BYTES_MAX)
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


class SetBudget(Command[Status]):
    """Give a task another budget; None: unchanged, 0: no limit. Returns its state."""

    task: str
    cost_micros: int | None = None
    tokens: int | None = None
    by: str = ""

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        if self.cost_micros is not None:
            self.cost_micros = whole(self.cost_micros, "budget in micro-dollars", 0, COST_MAX)
        if self.tokens is not None:
            self.tokens = whole(self.tokens, "budget in tokens", 0, USAGE_MAX)
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


class SendNotice(Command[bool]):
    """Send waiting mail about a task. Returns whether it is done. `id`: a new message id."""

    task: str
    kind: NoticeKind
    id: str
    content: bytes

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.kind = _notice(self.kind)
        self.id = text(self.id, "message id", 1, TASK_ID_LENGTH_MAX)
        self.content = _json(self.content, "mail about a task", 2 * MESSAGE_MAX + OUTPUT_MAX)


class Abandon(Command[list[int]]):
    """The holder of these deliveries is dead: each may be granted again at once. Returns the stale tokens."""

    tokens: Sequence[int]
    reason: str = ""

    def __post_init__(self) -> None:
        self.tokens = [whole(token, "token", 0, TOKEN_MAX) for token in self.tokens]
        self.reason = cut_reason(sound(plain_text(self.reason, "reason")))


class Cancel(Command[Status]):
    """End a task. Soft: steps under a lease may finish. Hard: their leases end. Returns its state."""

    task: str
    reason: str = ""
    by: str = ""
    hard: bool = False

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.reason = cut_reason(sound(plain_text(self.reason, "reason")))
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)
        flag(self.hard, "hard")


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The result of a put: the version, and whether it existed with the same document."""

    workflow: WorkflowView
    duplicate: bool = False


class PutVersion(Command[Stored]):
    """Store a workflow under a version; empty: the next number, unless the last version is the same.
    `document`: JSON without a version; `digest`: that of its canonical form. Its namespace is that of
    `owner`.
    """

    name: str
    version: str
    document: bytes
    digest: bytes
    owner: str
    budget: int = 0

    def __post_init__(self) -> None:
        self.name = workflow_name(self.name)
        self.version = workflow_version(self.version)
        self.document = _json(self.document, "a workflow", PLAN_BYTES_MAX)
        if type(self.digest) is not bytes or len(self.digest) > 64:
            raise InvalidValue(f"the digest of a workflow must be bytes, not {shown(self.digest)}")
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)
        self.budget = whole(self.budget, "budget", 0, BYTES_MAX)


class RemoveVersions(Command[int]):
    """Remove one version of a workflow; empty: all. Tasks that were started from them go on."""

    namespace: str
    name: str
    version: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = workflow_name(self.name)
        self.version = workflow_version(self.version)
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


def workflow_name(value: Any) -> str:
    """The name of a stored workflow."""
    name = text(value, "the name of a workflow", 1, NAME_LENGTH_MAX)
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            f"{shown(name)} is no name of a workflow",
            hint="use letters, digits, '_', '-' and '.', starting with a letter, a digit or '_'",
        )
    return name


def workflow_version(value: Any) -> str:
    """A version of a stored workflow; empty: no version is given."""
    version = text(value, "version", 0, VERSION_LENGTH_MAX)
    if version and not _VERSION.fullmatch(version):
        raise InvalidValue(
            f"{shown(version)} is no version of a workflow",
            hint="use letters, digits, '_', '-', '+' and '.', such as 3 or 2.1.0",
        )
    return version


def _json(value: Any, what: str, most: int) -> bytes:
    if type(value) is not bytes:
        raise InvalidValue(f"{what} must be the bytes of a JSON value, not {shown(value)}")
    if len(value) > most:
        raise PayloadTooLarge(f"{what} has {len(value)} bytes; {most} are allowed", hint=REFERENCE_HINT)
    return value


def _notice(kind: Any) -> NoticeKind:
    one_of(kind, "notify", NOTICE_KINDS)
    found: NoticeKind = kind
    return found


def _checked_usage(usage: Any) -> Usage:
    if usage.__class__ is not Usage:
        raise InvalidValue(f"usage must be a Usage, not {shown(usage)}")
    cost = whole(usage.cost_micros, "cost in micro-dollars", 0, COST_MAX)
    return Usage(cost, whole(usage.tokens, "tokens", 0, USAGE_MAX))


def _checked_given(given: Any, count: int) -> tuple[int, Status, bytes]:
    if type(given) is not tuple or len(given) != 3:
        raise InvalidValue(f"what is taken over is a step, its state and its output, not {shown(given)}")
    number, status, output = given
    one_of(status, "the state of a step that is taken over", ("SUCCESS", "SKIPPED"))
    return whole(number, "step", 0, count - 1), status, _json(output, "an output", OUTPUT_BYTES_MAX)


def _unfiled(value: bytes, what: str) -> bytes:
    """Refuse a reference to a payload file: only the node itself puts one in."""
    if REFERENCE_MARK[:1] in value:
        raise InvalidValue(f"{what} holds a control character, which no JSON text does")
    return value


def _checked_move(move: Any) -> Move:
    if move.__class__ is not Move:
        raise InvalidValue(f"a move of a step must be a Move, not {shown(move)}")
    one_of(move.action, "action", ACTIONS)
    step = whole(move.step, "step", 0, NUMBER_MAX)
    content = _json(move.content, "the message of a step", MESSAGE_MAX)
    if move == Move(step, move.action, content):  # nothing else is said, as mostly
        return move
    return Move(
        step,
        move.action,
        content,
        [_json(item, "an item", ITEM_MAX) for item in move.items],
        text(move.code, "code", 0, CODE_LENGTH_MAX),
        cut_reason(sound(plain_text(move.reason, "reason"))),
        whole(move.wait_ms, "wait_ms", -1, LEASE_MS_MAX),
        whole(move.until, "until", -1, MOMENT_MS_MAX),
        move.plans,
    )
