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

RATE_PER_S_MAX = 1_000_000


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
    breaker: bool = True
    """Whether the circuit breaker opens by itself; see docs/explanation/breaker.md."""
    breaker_retry_rate: float = 0.05
    """It opens when more than this share of deliveries failed in every tenth of the window; 1 is never."""
    breaker_window_ms: int = 600_000
    """How long the retry rate must have been too high (10 min); so long a sick receiver burns attempts."""
    breaker_min_outcomes: int = 100
    """Deliveries that must have ended in the window before the retry rate is believed."""
    breaker_failures: int = 50
    """It also opens after so many failures in a row, however few deliveries there are; 0 is never."""
    breaker_open_ms: int = 30_000
    """How long it stays open before probes; doubled when a probe fails, up to 8 times this."""
    breaker_probes: int = 3
    """Deliveries that may be out while it is half-open, and how many must succeed to close it."""
    rate_per_s: float = 0.0
    """Deliveries a second, retries included; 0 is no limit."""
    rate_burst: int = 0
    """Deliveries at once when it was quiet before; 0 is one second's worth, and at least one."""

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
        self._check_limits()

    def _check_limits(self) -> None:
        if not 0 <= self.breaker_retry_rate <= 1:
            raise InvalidSettings("breaker_retry_rate must lie between 0 and 1 (0.05 is 5%)")
        for name in ("breaker_window_ms", "breaker_open_ms", "breaker_min_outcomes", "breaker_probes"):
            if getattr(self, name) < 1:
                raise InvalidSettings(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("breaker_failures", "rate_burst"):
            if getattr(self, name) < 0:
                raise InvalidSettings(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.rate_per_s <= RATE_PER_S_MAX:
            raise InvalidSettings(
                f"rate_per_s must lie between 0 (no limit) and {RATE_PER_S_MAX}, not {self.rate_per_s}"
            )

    def lease_for(self, priority: int) -> int:
        return self.lease_ms or LEASE_MS_BY_PRIORITY[priority]
