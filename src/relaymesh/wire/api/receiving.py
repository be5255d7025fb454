"""`POST /v1/mailboxes/{mailbox}/receive`: a long poll for deliveries."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from relaymesh.wire.api.base import Address, Answer, CorrelationId, Message, Request, Time, Token

RECEIVE_MAX = 1_000
WAIT_MS_MAX = 60_000


class ReceiveRequest(Request, frozen=True):
    """How many deliveries, and how long to wait for the first. Query `max` and `wait_ms` do the same."""

    max: Annotated[int, Meta(description="At most so many deliveries.", ge=1, le=RECEIVE_MAX)] = 1
    wait_ms: Annotated[
        int,
        Meta(description="How long to wait when nothing is ready; 0 answers at once.", ge=0, le=WAIT_MS_MAX),
    ] = 0
    correlation_id: CorrelationId | None = None
    holder: (
        Annotated[
            str, Meta(description="Who holds the leases, for people to read.", min_length=1, max_length=128)
        ]
        | None
    ) = None


class DeliveryBody(Answer, frozen=True, gc=False):
    """One message under a lease. Settle it with its token before the deadline, or extend it."""

    token: Token
    attempt: Annotated[int, Meta(description="1 for the first delivery.")]
    deadline: Time
    lease_ms: Annotated[int, Meta(description="How long the lease lasts, counted from this answer.")]
    mailbox: Address
    sequence: Annotated[int, Meta(description="The event that accepted the message.")]
    message: Message
    settled: Annotated[
        bool, Meta(description="at_most_once: it was settled before it left; there is nothing to settle.")
    ] = False
    lane: Annotated[
        str | None,
        Meta(description="Deliveries of one lane are to be worked on one after the other."),
    ] = None
    topic: Annotated[
        str | None,
        Meta(description="From a subscription: the topic it was published to, with its namespace."),
    ] = None


class DeliveriesAnswer(Answer, frozen=True):
    """What was ready; empty when nothing came in time."""

    deliveries: list[DeliveryBody]
    now: Annotated[int, Meta(description="Mesh time of this answer, ms since 1970.")]


__all__ = ["RECEIVE_MAX", "WAIT_MS_MAX", "DeliveriesAnswer", "DeliveryBody", "ReceiveRequest"]
