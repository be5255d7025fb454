"""The result of one command."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.dedup import Differing
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.waiter import Waiter


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a sender gets: the mesh is responsible for the message from here on."""

    id: str
    sequence: int
    duplicate: bool = False
    targets: int = 1
    due: int = 0
    """Mesh time (ms) at which it is delivered; 0: at once."""


class Delivered(msgspec.Struct, eq=False):
    """Deliveries for a waiter: hand them over once their grant is written and what made them ready is synced.

    Empty: the mailbox is gone, and nothing will ever come.
    """

    waiter: Waiter
    deliveries: Deliveries
    written: int
    synced: int


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended, for the one log line of every failure path."""

    mailbox: str
    message_id: str
    attempt: int
    code: str
    retryable: bool
    final_state: str
    reason: str = ""
    alert: bool = False


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A delayed message fell due, or was forced."""

    mailbox: str
    message_id: str
    scheduled_at: int
    arrived_at: int
    forced: bool = False


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """A message that was sent before and is not queued again. `target` as in dedup: mailbox or topic."""

    target: str
    message_id: str
    sender: str


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """A new message that is delivered later."""

    target: str
    message_id: str
    sender: str
    delay_ms: int
    due: int


class BreakerMoved(msgspec.Struct, frozen=True, gc=False):
    """The circuit breaker of a mailbox opened, let probes out, or closed."""

    mailbox: str
    state: str
    why: str
    retry_rate: float
    """The failure rate of the window that opened it; 0 otherwise."""
    threshold: float
    until: int


class SubscriptionMoved(msgspec.Struct, frozen=True, gc=False):
    """A subscription was suspended, or resumed: then `reason` is empty."""

    mailbox: str
    reason: str


class NotUndone(msgspec.Struct, frozen=True, gc=False):
    """A step that was to undo another one ended without success: what was done stays done."""

    task: str
    step: str
    mailbox: str
    status: str
    code: str
    reason: str


class Step(msgspec.Struct, eq=False):  # known to the collector: an error in it leads back to it
    """Records, which must be durable BEFORE the result and the deliveries are released.

    The result may leave when every event below `written` is written and every event below
    `synced` is synced; each delivery names its own two.
    """

    base: int
    records: list[AnyRecord]
    encoded: list[bytes]
    """Each record in the bytes of the journal."""
    details: list[Any]
    result: Any = None
    error: MeshError | None = None
    written: int = 0
    synced: int = 0
    delivered: list[Delivered] | None = None
    ended: list[Ended] | None = None
    arrived: list[Arrived] | None = None
    sent: list[Repeated | Scheduled] | None = None
    """Which messages of a send or publish deserve a log line."""
    moved: list[BreakerMoved | SubscriptionMoved] | None = None
    not_undone: list[NotUndone] | None = None
    differing: list[Differing] | None = None
    """With a `Conflict`: all messages whose bytes differ from those of their originals."""
    ready: list[str] | None = None
    """Tasks that have steps to send: the shell evaluates their inputs and submits `Advance`."""
    owes: bool = False
    """There is mail about tasks to send: the shell writes it and submits `SendNotice`."""
    changed: list[str] | None = None
    """Tasks that changed in any way: for callers that watch them."""
    freed: bool = False
    """Room appeared in some mailbox: senders that wait for it may try again."""


__all__ = [
    "Arrived",
    "BreakerMoved",
    "Delivered",
    "Ended",
    "NotUndone",
    "Receipt",
    "Repeated",
    "Scheduled",
    "Step",
    "SubscriptionMoved",
]
