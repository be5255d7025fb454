"""`POST /v1/settle`: everything that can be done with lease tokens, in one body."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from relaymesh.kernel.bounds import CODE_LENGTH_MAX, DURATION_MS_MAX, LEASE_MS_MAX
from relaymesh.kernel.tasks.commands import NO_USAGE, Usage
from relaymesh.kernel.tasks.plan import USAGE_MAX
from relaymesh.kernel.tasks.status import Status
from relaymesh.wire.api.base import Answer, Content, Message, Request, Time, Token
from relaymesh.wire.api.node import ProblemBody
from relaymesh.wire.api.sending import ReceiptBody
from relaymesh.wire.usage import COST_USD_MAX, dollars_of, micros_of

SETTLE_MAX = 10_000
"""Tokens in one body, all lists together."""


class NackBody(Request, frozen=True):
    """The delivery failed. The mailbox's failure contract decides what follows."""

    token: Token
    code: Annotated[
        str,
        Meta(
            description="Error code: a row of the failure contract.", min_length=1, max_length=CODE_LENGTH_MAX
        ),
    ] = "other"
    reason: Annotated[str, Meta(description="What went wrong, for people; cut at 2,000 characters.")] = ""
    stack: Annotated[str, Meta(description="Stack trace, if there is one; cut at 8,000 characters.")] = ""
    retryable: Annotated[bool, Meta(description="false: no retry, whatever the contract says.")] = True
    delay_ms: (
        Annotated[
            int, Meta(description="Retry after this in place of the backoff.", ge=0, le=DURATION_MS_MAX)
        ]
        | None
    ) = None
    until_ms: (
        Annotated[
            int,
            Meta(
                description="Put off until this mesh time (ms since 1970); burns no attempt.",
                ge=0,
                le=DURATION_MS_MAX,
            ),
        ]
        | None
    ) = None


class ExtendBody(Request, frozen=True):
    """A later deadline."""

    token: Token
    ms: Annotated[int, Meta(description="The lease lasts so long from now.", ge=1, le=LEASE_MS_MAX)]


class ReplyBody(Request, frozen=True):
    """Ack a delivery and send messages in the same step: both happen, or neither."""

    token: Token
    messages: Annotated[
        list[Message], Meta(description="Messages to send, each with its `to`.", min_length=1)
    ]


class UsageBody(Request, frozen=True, omit_defaults=True):
    """What the attempt has used so far: its total, not what was added since the last report."""

    cost_usd: Annotated[float, Meta(description="Dollars; counted in millionths.", ge=0, le=COST_USD_MAX)] = (
        0.0
    )
    tokens: Annotated[int, Meta(description="Tokens of models.", ge=0, le=USAGE_MAX)] = 0


def usage_body(usage: Usage) -> UsageBody | UnsetType:
    if usage == NO_USAGE:
        return UNSET
    return UsageBody(cost_usd=dollars_of(usage.cost_micros), tokens=usage.tokens)


def usage_from(body: UsageBody | UnsetType) -> Usage:
    return NO_USAGE if body is UNSET else Usage(micros_of(body.cost_usd), body.tokens)


class FinishBody(Request, frozen=True):
    """The result of a step. Counts also after its lease ended, while no other holder was granted the step."""

    token: Token
    result: Annotated[Content, Meta(description="What other steps read as its output.")] | UnsetType = UNSET
    usage: UsageBody | UnsetType = UNSET


class GrowBody(Request, frozen=True):
    """The step goes on as more steps, and completes with their outputs. Its plan must say `grows: true`."""

    token: Token
    steps: Annotated[
        Content, Meta(description="As `steps` of a workflow, or a list of steps with a `name` each.")
    ]
    usage: UsageBody | UnsetType = UNSET


class FailBody(Request, frozen=True):
    """The step failed for good: it is not tried again, and its plan says what follows."""

    token: Token
    code: Annotated[str, Meta(min_length=1, max_length=CODE_LENGTH_MAX)] = "failed"
    reason: Annotated[str, Meta(description="What went wrong, for people; cut at 2,000 characters.")] = ""
    usage: UsageBody | UnsetType = UNSET


class ReportBody(Request, frozen=True):
    """Progress of a step that runs. Settles nothing."""

    token: Token
    progress: Annotated[str, Meta(description="For people; cut at 2,000 characters.")] = ""
    usage: UsageBody | UnsetType = UNSET


class AbandonBody(Request, frozen=True):
    """The holder is dead: the delivery may be granted again at once."""

    token: Token
    reason: Annotated[str, Meta(description="For people; cut at 2,000 characters.")] = ""


class SettleRequest(Request, frozen=True):
    """Tokens and what to do with them. Order: acks, drops, releases, replies, nacks, extends, finishes,
    grows, fails, reports, abandons.
    """

    acks: Annotated[list[Token], Meta(description="Done.")] = field(default_factory=list)
    drops: Annotated[list[Token], Meta(description="Given up without a dead letter, and counted.")] = field(
        default_factory=list
    )
    releases: Annotated[list[Token], Meta(description="Never looked at: back, and no attempt is burned.")] = (
        field(default_factory=list)
    )
    replies: Annotated[list[ReplyBody], Meta(description="Done, and these messages are sent with it.")] = (
        field(default_factory=list)
    )
    nacks: Annotated[list[NackBody], Meta(description="Failed.")] = field(default_factory=list)
    extends: Annotated[list[ExtendBody], Meta(description="Not done yet.")] = field(default_factory=list)
    finishes: Annotated[list[FinishBody], Meta(description="Steps of tasks, done.")] = field(
        default_factory=list
    )
    grows: Annotated[list[GrowBody], Meta(description="Steps of tasks that go on as more steps.")] = field(
        default_factory=list
    )
    fails: Annotated[list[FailBody], Meta(description="Steps of tasks, failed for good.")] = field(
        default_factory=list
    )
    reports: Annotated[list[ReportBody], Meta(description="Steps of tasks, not done yet.")] = field(
        default_factory=list
    )
    abandons: Annotated[list[AbandonBody], Meta(description="Their holders are dead.")] = field(
        default_factory=list
    )
    durable: Annotated[
        bool, Meta(description="Answer acks after the sync; else after the write (promise 7).")
    ] = False
    settles: Annotated[
        bool,
        Meta(description="An ack of a step is its result, null, also if the agent registered otherwise."),
    ] = False

    @property
    def tokens(self) -> list[str]:
        """Every token named, in order."""
        return [
            *self.acks,
            *self.drops,
            *self.releases,
            *(each.token for each in self.replies),
            *(each.token for each in self.nacks),
            *(each.token for each in self.extends),
            *(each.token for each in self.abandons),
            *self.steps,
        ]

    @property
    def steps(self) -> list[str]:
        """Tokens of steps, whose leases may be over."""
        ends = [each.token for each in self.finishes] + [each.token for each in self.grows]
        return ends + [each.token for each in self.fails] + [each.token for each in self.reports]


Outcome = Literal[
    "acked",
    "dropped",
    "released",
    "replied",
    "extended",
    "retrying",
    "deferred",
    "dead_letter",
    "success",
    "finished",
    "grown",
    "failed",
    "reported",
    "abandoned",
    "lease_lost",
    "refused",
]
"""`retrying` to `success` are what a nack led to; `lease_lost`: the token is stale; `refused`: see `code`."""


class SettledBody(Answer, frozen=True, gc=False, omit_defaults=True):
    """What became of one token."""

    token: Token
    outcome: Annotated[
        Outcome, Meta(description="lease_lost: the token is stale; refused: `code` and `detail` say why.")
    ]
    deadline: Time | UnsetType = UNSET
    receipts: Annotated[list[ReceiptBody], Meta(description="Of a reply's messages.")] | UnsetType = UNSET
    status: Annotated[Status, Meta(description="Of the task, behind a finish or a fail.")] | UnsetType = UNSET
    code: Annotated[str, Meta(description="The error's code, when refused.")] | UnsetType = UNSET
    detail: Annotated[str, Meta(description="The error's words, when refused.")] | UnsetType = UNSET
    hint: Annotated[str, Meta(description="What to do about it, when refused.")] | UnsetType = UNSET


class SettledAnswer(Answer, frozen=True):
    """One result for each token, in the order of the request's lists."""

    results: list[SettledBody]
    stale: Annotated[int, Meta(description="How many were lease_lost.")]
    failed: Annotated[int, Meta(description="How many were lease_lost or refused.")] = 0


class SettleProblem(ProblemBody, frozen=True, kw_only=True):
    """409: none of the tokens could be settled. `code` is that of the first."""

    results: list[SettledBody]
    stale: Annotated[int, Meta(description="How many were lease_lost.")]
    failed: Annotated[int, Meta(description="All of them.")]


FAILED: frozenset[Outcome] = frozenset({"lease_lost", "refused"})


def settled_answer(results: list[SettledBody]) -> SettledAnswer:
    """The results, counted."""
    return SettledAnswer(
        results=results,
        stale=sum([each.outcome == "lease_lost" for each in results]),
        failed=sum([each.outcome in FAILED for each in results]),
    )
