"""A message as the mesh writes it in JSON: the names that a receiver believes.

A name listed here says what the mesh says. So a sender's own fields (`Envelope.extra`) can have none of
these names: see `wire/extra.py`, which takes them from these structs.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

__all__ = ["DeliveryOut", "MessageOut", "MetadataOut"]


class MetadataOut(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """`Metadata` as the mesh writes it: what is not set is left out."""

    ttl: int | float
    requires_ack: bool
    retry_count: int
    delay_ms: int
    correlation_id: str | None = None
    max_retries: int | None = None
    tags: tuple[str, ...] = ()
    reply_to: str | None = None
    task_id: str | None = None
    ordering_key: str | None = None
    traceparent: str | None = None
    origin_id: str | None = None
    content_encoding: str | None = None


class MessageOut(msgspec.Struct, rename={"sender": "from"}, gc=False):
    """A message as the mesh writes it."""

    id: str
    sender: str
    to: str
    type: str
    content: Raw
    timestamp: str
    priority: int
    metadata: MetadataOut | Raw


class DeliveryOut(MessageOut, rename={"sender": "from", "lease_token": "leaseToken"}, gc=False):
    """A message and the lease it is handed over under."""

    lease_token: str
    attempt: int
    deadline: str
    mailbox: str
    sequence: int
