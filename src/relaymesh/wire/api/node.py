"""The node itself: its identity, its health, its counters, and its refusals."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from relaymesh.wire.api.base import Answer


class NodeAnswer(Answer, frozen=True):
    """`GET /v1/node`: what a client needs to know before it starts."""

    version: Annotated[str, Meta(description="Of RelayMesh.")]
    protocol: Annotated[str, Meta(description="Of the Mailbox protocol.")]
    now: Annotated[int, Meta(description="Mesh time, ms since 1970.")]
    epoch: Annotated[int, Meta(description="Grows with every start.")]
    namespace: Annotated[str, Meta(description="Of the credential.")]
    payload_bytes_max: int
    body_bytes_max: int
    receive_max: int
    wait_ms_max: int


class HealthAnswer(Answer, frozen=True):
    """The process answers."""

    status: Literal["ok"]


class ReadyAnswer(Answer, frozen=True):
    """Whether it takes messages; 503 when it does not, with the reasons."""

    status: Literal["ready", "not_ready"]
    reasons: list[str]


class CheckpointAnswer(Answer, frozen=True):
    """A start need not replay what lies before this sequence; null in memory."""

    sequence: int | None


class MailboxStatsBody(Answer, frozen=True):
    """Counters of one mailbox: accepted = acked + dropped + dead + pending, always."""

    pending: int
    leased: int
    delayed: int
    bytes: int
    by_priority: Annotated[dict[int, int], Meta(description="Unsettled messages by priority 1 to 5.")]
    capacity: int
    capacity_bytes: int
    accepted: int
    delivered: int
    acked: int
    retried: int
    deferred: int
    dropped: int
    dead: int
    expired: int
    redriven: int
    dead_letters: int
    low_starvation_count: int
    delivery_semantics: str
    breaker: str
    breaker_opened: int
    recent_retry_rate: float
    rate_limited: int
    dead_letter_bytes: int
    skipped: int
    suspended: Annotated[str, Meta(description="Why this subscription is suspended; else empty.")]


class StatsAnswer(Answer, frozen=True):
    """Counters of the credential's namespace, and of the node."""

    mailboxes: dict[str, MailboxStatsBody]
    sequence: int
    synced: int
    epoch: int
    unrouted: int
    dead_letters: int
    remembered_ids: int
    journal_bytes: int
    store_lag: int
    duplicates: Annotated[
        int, Meta(description="Messages sent before and not queued again, since the start.")
    ] = 0
    refused: Annotated[
        dict[str, int], Meta(description="Sends refused for a limit since the start, by error code.")
    ] = field(default_factory=dict)


class ProblemBody(Answer, frozen=True):
    """RFC 9457 `application/problem+json`: every answer of 400 and above."""

    type: Annotated[str, Meta(description="A URI reference that names the kind of problem.")]
    title: str
    status: int
    detail: Annotated[str, Meta(description="What happened, to which mailbox, message or field.")]
    code: Annotated[str, Meta(description="Stable, for programs.")]
    hint: Annotated[str, Meta(description="What to do next.")]
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later.")]
    instance: Annotated[str, Meta(description="The path that was asked for.")] | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
