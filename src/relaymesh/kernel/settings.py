"""Settings of one mailbox. Durable: they are in the record that opens it."""

from __future__ import annotations

from typing import Literal

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.contract import Contract

ScheduleName = Literal["weighted", "strict", "fifo"]
Semantics = Literal["at_least_once", "at_most_once", "exactly_once"]
Overflow = Literal["reject", "dead_letter"]

LEASE_MS_BY_PRIORITY = (0, 5_000, 10_000, 30_000, 60_000, 60_000)
"""Lease by priority 1..5 (index 0 is unused): 5, 10, 30, 60, 60 s."""


class MailboxSettings(msgspec.Struct, array_like=True, frozen=True, gc=False, omit_defaults=True):
    """How one mailbox behaves. Every field has a default that is safe to keep."""

    capacity: int = 100_000
    """Messages it may hold, unsettled. Raising it costs about 700 bytes of memory a message."""
    capacity_bytes: int = 268_435_456
    """Bytes of content it may hold, unsettled (256 MiB)."""
    schedule: ScheduleName = "weighted"
    """Which goes first: `weighted` 8:3:1 over the tiers, `strict` by priority, `fifo` by arrival."""
    max_consecutive_high: int = 100
    """`strict` only: after so many high-tier entries in a row one lower entry goes."""
    lease_ms: int = 0
    """Lease of a delivery; 0 means by priority (5, 10, 30, 60, 60 s)."""
    max_retries: int | None = None
    """Retries after the first attempt; None leaves it to the failure contract (3)."""
    backoff_ms_base: int = 1_000
    """Delay before retry n is min(base * 2^(n-1), cap) * (1 + U(0, jitter))."""
    backoff_ms_cap: int = 60_000
    """Largest delay before jitter. Up to 300,000 (5 min) is allowed."""
    backoff_jitter: float = 0.25
    """Share of the delay that is added at random, so that retries do not come in step."""
    max_deferrals: int = 100
    """How often `nack(until=...)` may put one delivery off before it is a dead letter."""
    ordered: bool = False
    """Make the whole mailbox one lane: strictly one after the other."""
    halt_on_dead_letter: bool = False
    """Stop a lane when one of its entries dies, until the letter is redriven or purged."""
    delivery_semantics: Semantics = "at_least_once"
    """`at_most_once` settles before it delivers; `exactly_once` is at-least-once plus dedup, a label."""
    overflow: Overflow = "reject"
    """A publish that meets this full mailbox is refused whole, or dead-lettered here alone."""
    contract: Contract | None = None
    """Own rows of the failure contract; codes without a row use the default table."""

    def __post_init__(self) -> None:
        for name in ("capacity", "capacity_bytes", "max_consecutive_high"):
            if getattr(self, name) < 1:
                raise InvalidSettings(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("lease_ms", "backoff_ms_base", "max_deferrals"):
            if getattr(self, name) < 0:
                raise InvalidSettings(f"{name} must not be negative, not {getattr(self, name)}")
        if self.max_retries is not None and self.max_retries < 0:
            raise InvalidSettings(f"max_retries must not be negative, not {self.max_retries}")
        if not self.backoff_ms_base <= self.backoff_ms_cap <= 300_000:
            raise InvalidSettings("backoff_ms_cap must lie between backoff_ms_base and 300000 (5 minutes)")
        if not 0 <= self.backoff_jitter <= 1:
            raise InvalidSettings("backoff_jitter must lie between 0 and 1")

    def lease_for(self, priority: int) -> int:
        return self.lease_ms or LEASE_MS_BY_PRIORITY[priority]
