"""Frames of the WebSocket protocol `relaymesh.v1.msgpack`: one operation each, as MessagePack maps.

`op` says which, `ref` joins an answer to its question. Envelopes travel as the journal keeps them (arrays,
content as checked bytes), deliveries as columns: a frame of a hundred messages costs little more than its
bytes; several may be one message (`relaymesh.wire.bundles`). `relaymesh.v1.json` has the same operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from relaymesh.kernel.deliveries import Deliveries as Handed
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.tasks.commands import NO_USAGE, Usage
from relaymesh.kernel.tasks.status import Status

PROTOCOL = "1.1"
SUBPROTOCOL_MSGPACK = "relaymesh.v1.msgpack"
SUBPROTOCOL_JSON = "relaymesh.v1.json"
PATH = "/v1/ws"

BATCH_MAX = 10_000
"""Messages in one frame, and tokens in one list of a settle. More are refused before they are decoded."""

_Few = msgspec.Meta(max_length=BATCH_MAX)
Envelopes = Annotated[list[Envelope], _Few]
Group = tuple[str, Envelopes]
Groups = Annotated[list[Group], _Few]
TokenList = Annotated[list[int], _Few]
Attempt = tuple[str, int, int, int]
"""A delivery as (mailbox, sequence, attempt, deadline)."""


class Frame(msgspec.Struct, tag_field="op", rename="camel", omit_defaults=True, gc=False):
    """One operation, or its answer. A client must ignore fields it does not know."""


class Asking(Frame, forbid_unknown_fields=True):
    """What a client sends. Unknown fields are refused by name: a mistyped one must not be lost silently."""


# -- from the client ----------------------------------------------------------------------------


class Hello(Asking, tag="hello"):
    """First of all. `resume`: the session to go on with; `held`: the lease tokens the client still has.

    `bundles`: the client reads messages of several frames. `token`: the credential of a connection that was
    opened without the header Authorization. `settles`: of the agent, if it joins with this hello.
    """

    protocol: str
    agent: str | None = None
    resume: str | None = None
    held: list[int] = []
    bundles: bool = False
    token: str | None = None
    settles: bool | None = None


class Send(Asking, tag="send"):
    """Messages by recipient, all or none. `wait_ms`: how long to wait for room in a full mailbox."""

    ref: int
    groups: Groups
    wait_ms: int | None = None


class Publish(Asking, tag="publish"):
    ref: int
    topic: str
    envelopes: Envelopes
    wait_ms: int | None = None


class Receive(Asking, tag="receive"):
    """Up to `max` deliveries as soon as there is one; none after `wait_ms`; None waits for ever."""

    ref: int
    mailbox: str
    max: int = 1
    wait_ms: int | None = None
    correlation_id: str | None = None


class Cancel(Asking, tag="cancel"):
    """The receive of this ref is to end now; it is answered, maybe with nothing."""

    ref: int


class Credit(Asking, tag="credit"):
    """Push deliveries of the mailbox, so many unsettled at once. 0 stops."""

    mailbox: str
    credit: int


class NackItem(msgspec.Struct, array_like=True, gc=False):
    token: int
    code: str = "other"
    reason: str = ""
    stack: str = ""
    retryable: bool = True
    delay_ms: int | None = None
    until: int | None = None


class Settle(Asking, tag="settle"):
    """Tokens and what to do with them, in this order."""

    ref: int
    acks: TokenList = []
    drops: TokenList = []
    releases: TokenList = []
    nacks: Annotated[list[NackItem], _Few] = []
    extends: Annotated[list[tuple[int, int]], _Few] = []
    durable: bool = False


class Reply(Asking, tag="reply"):
    """Ack and send in one step: both happen, or neither."""

    ref: int
    token: int
    groups: Groups


class Call(Asking, tag="call"):
    """Everything else, by name."""

    ref: int
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"\x80")


class Ping(Asking, tag="ping"):
    ref: int = 0


class Heartbeat(Asking, tag="heartbeat"):
    """A sign of life of every agent that speaks or receives here, and of those that `agents` names.

    `status`: what those in `agents` do; shown to people.
    """

    ref: int = 0
    agents: Annotated[list[str], _Few] = []
    status: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class Goodbye(Asking, tag="goodbye"):
    """The client will not come back: what it holds goes back unburned."""


# -- from the node ------------------------------------------------------------------------------


class Welcome(Frame, tag="welcome"):
    """`now`: mesh time. `resumed`: the session was known, and its unlisted deliveries are given back.

    `bundles`: the node reads messages of several frames.
    """

    session: str
    protocol: str
    now: int
    heartbeat_ms: int
    namespace: str
    payload_bytes_max: int
    frame_bytes_max: int
    resumed: bool = False
    bundles: bool = False


class Receipts(Frame, tag="receipts"):
    """(sequence, duplicate, targets, due) in the order of the messages; their ids are known."""

    ref: int
    receipts: list[tuple[int, bool, int, int]]


class Deliveries(Frame, tag="deliveries"):
    """Columns, one row for each delivery. Without a `ref` they were pushed, on credit.

    `lanes`: rows with the same number are to be worked on one after the other; -1 is no lane.
    `topics`: of a subscription, the topic each was published to; a single one is that of all rows.
    """

    mailbox: str
    tokens: Sequence[int]
    sequences: Sequence[int]
    attempts: Sequence[int]
    deadlines: Sequence[int]
    envelopes: Sequence[Envelope]
    ref: int | None = None
    lanes: Sequence[int] | None = None
    settled: bool = False
    topics: Sequence[str | None] | None = None


class Settled(Frame, tag="settled"):
    """Stale tokens of acks and drops; the state of each nack and deadline of each extend, None if stale."""

    ref: int
    stale: list[int] = []
    states: list[str | None] = []
    deadlines: list[int | None] = []


class Result(Frame, tag="result"):
    """`more`: the value is a list that goes on; ask for what comes `after` its last element."""

    ref: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    more: bool = False


class Problem(Frame, tag="problem"):
    """What was asked for did not happen. Without a `ref` it is about the connection, or about a frame that
    has none."""

    code: str
    detail: str
    hint: str = ""
    retryable: bool = False
    ref: int | None = None
    retry_after_ms: int | None = None
    authenticated: bool = False


class Pong(Frame, tag="pong"):
    ref: int
    now: int


class Beat(Frame, tag="ack"):
    """The answer to a heartbeat."""

    ref: int
    now: int


class GoingAway(Frame, tag="going_away"):
    """The node stops. Come back in a while, with `resume`."""

    reason: str = ""


ClientFrame = (
    Hello | Send | Publish | Receive | Cancel | Credit | Settle | Reply | Call | Ping | Heartbeat | Goodbye
)
NodeFrame = (
    Welcome | Receipts | Deliveries | Settled | Result | Problem | Pong | Beat | GoingAway
)  # fmt: skip

encode = msgspec.msgpack.Encoder().encode
decode_client = msgspec.msgpack.Decoder(ClientFrame).decode
decode_node = msgspec.msgpack.Decoder(NodeFrame).decode


# -- arguments and results of calls -------------------------------------------------------------


class Arguments(msgspec.Struct, rename="camel", omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """What a call is given."""


class Nothing(Arguments):
    """Nothing."""


class OpenMailbox(Arguments):
    mailbox: str
    settings: MailboxSettings | None = None


class Subscribe(Arguments):
    pattern: str
    name: str
    settings: MailboxSettings


class Register(Arguments):
    """`handshake.register`. `settles`: the agent ends steps with a result; null: as its protocol does."""

    agent: str
    role: str | None = None
    capabilities: list[str] = []
    metadata: dict[str, Any] = {}
    protocol_version: str = PROTOCOL
    settles: bool | None = None


class OfAgent(Arguments):
    agent: str


class OfMailbox(Arguments):
    mailbox: str


class Correlation(Arguments):
    mailbox: str
    correlation_id: str


class Complete(Arguments):
    mailbox: str
    sequence: int


class NoteRun(OfAgent):
    event: Literal["run", "kill"]
    detail: str = ""


class Attempts(Arguments):
    attempts: Annotated[list[Attempt], _Few]


class Reprioritise(Arguments):
    mailbox: str
    priority: int
    ids: Annotated[list[str], _Few] | None = None


class SetBreaker(Arguments):
    mailbox: str
    open: bool


class ForceDelayed(Arguments):
    mailbox: str | None = None


class Peek(Arguments):
    """`after`: entries behind this sequence alone."""

    mailbox: str
    limit: int
    after: int = 0


class LettersPage(Arguments):
    """`after`: letters behind this one alone, (dead sequence, mailbox)."""

    after: tuple[int, str] | None = None


class Letters(Arguments):
    """Dead letters by (mailbox, dead sequence)."""

    letters: Annotated[list[tuple[str, int]], _Few]


class Redrive(Arguments):
    """`edited`: what takes the place of each letter's message, in this order; null leaves it as it was."""

    letters: Annotated[list[tuple[str, int]], _Few]
    to: str | None = None
    edited: Annotated[list[Envelope | None], _Few] | None = None


class SubmitTask(Arguments):
    """`document`, or a string that names a stored one, and `input` are JSON. The node stamps the owner as it
    stamps the sender of a message.
    """

    document: bytes
    input: bytes = b"null"
    key: str = ""
    owner: str | None = None
    trace: str | None = None
    again: bool = False
    reply_to: str | None = None
    notify: Annotated[list[str], _Few] = []


class OfTask(Arguments):
    task: str


class AnswerStep(Arguments):
    """`value` is JSON. `agent`: the one that was asked; the node stamps it as the sender of a message."""

    task: str
    step: str
    value: bytes
    agent: str | None = None


class SignalTask(Arguments):
    """`value` is JSON. `id`: names the signal, which counts once; empty: the node makes one."""

    task: str
    name: str
    id: str = ""
    value: bytes = b"null"


class SetBudget(Arguments):
    """None: as before; 0: no limit."""

    task: str
    cost_micros: int | None = None
    tokens: int | None = None


class RerunTask(Arguments):
    """`input` is JSON in place of the first input; None: the same."""

    task: str
    from_step: str
    input: bytes | None = None
    owner: str | None = None


class WatchTask(Arguments):
    """`seen`: the `revision` that the client knows; 2^62 waits for the end alone. `wait_s`: at most 30 s."""

    task: str
    seen: int = -1
    wait_s: float = 0.0


class FindTasks(Arguments):
    """`before`: tasks submitted before this sequence alone."""

    namespace: str | None = None
    status: Status | None = None
    workflow: str | None = None
    limit: int = 100
    before: int | None = None


class CancelTask(Arguments):
    task: str
    reason: str = ""
    hard: bool = False


class PutWorkflow(Arguments):
    """`document` is JSON. The node stamps the owner as it stamps the sender of a message."""

    document: bytes
    version: str = ""
    owner: str | None = None


class OfWorkflow(Arguments):
    """`version`: empty means the one that was put last; of a removal, all. `namespace`: the credential's."""

    workflow: str
    version: str = ""
    namespace: str | None = None


class FindWorkflows(Arguments):
    """The last version of each workflow, or every version of the one named. `before`: put before this."""

    namespace: str | None = None
    workflow: str | None = None
    limit: int = 100
    before: int | None = None


def given_usage(usage: Usage) -> Usage | None:
    """For a frame: nothing used is left out."""
    return None if usage == NO_USAGE else usage


class FinishStep(Arguments):
    """`output` is JSON. `usage`: millionths of a dollar and tokens, of the whole attempt so far."""

    token: int
    output: bytes = b"null"
    usage: Usage | None = None


class GrowStep(Arguments):
    """`document` is JSON: the steps by name, or a list of steps with names."""

    token: int
    document: bytes
    usage: Usage | None = None


class FailStep(Arguments):
    token: int
    code: str = "failed"
    reason: str = ""
    usage: Usage | None = None


class ReportStep(Arguments):
    token: int
    progress: str
    usage: Usage | None = None


class OfGrant(Arguments):
    token: int


class Abandon(Arguments):
    tokens: TokenList
    reason: str = ""


class PreviewPurge(Arguments):
    done_ms: int | None = None
    dead_ms: int | None = None
    mailbox: str | None = None
    including_steps: bool = False


class PurgeOld(Arguments):
    """`after`: 0 at first, then what the answer says. Times are mesh time in ms."""

    reason: str
    done_before: int | None = None
    dead_before: int | None = None
    mailbox: str | None = None
    including_steps: bool = False
    after: int = 0


class FindReport(Arguments):
    """`day`: YYYY-MM-DD; null: the newest."""

    day: str | None = None


def receipt_rows(receipts: list[Receipt]) -> list[tuple[int, bool, int, int]]:
    return [(each.sequence, each.duplicate, each.targets, each.due) for each in receipts]


def deliveries(ref: int | None, mailbox: str, given: Handed) -> Deliveries:
    """The frame that hands these over."""
    return Deliveries(
        mailbox,
        list(given.tokens),
        list(given.sequences),
        given.attempts,
        given.deadlines,
        given.envelopes,
        ref,
        given.lanes,
        given.settled,
        given.topics,
    )


def handed(frame: Deliveries) -> Handed:
    """What a frame hands over."""
    return Handed(
        frame.mailbox,
        frame.tokens,
        frame.sequences,
        frame.attempts,
        frame.deadlines,
        frame.envelopes,
        frame.lanes,
        frame.topics,
        frame.settled,
    )
