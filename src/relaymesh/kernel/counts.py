"""Counts of one mailbox that can be checked against each other."""

from __future__ import annotations

import msgspec


class MailboxStats(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One mailbox. accepted = acked + dropped + dead + pending, always; a redrive accepts once more."""

    pending: int
    """Unsettled: waiting, delayed or leased to a holder."""
    leased: int
    delayed: int
    bytes: int
    """Bytes of those: content, unknown fields and the texts of failures."""
    by_priority: dict[int, int]
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
    """Dead letters that were neither redriven nor purged."""
    low_starvation_count: int
    delivery_semantics: str
    breaker: str
    """The circuit breaker: `closed`, `half-open`, or `open until <when>: <why>`."""
    breaker_opened: int
    """How often it has opened since the start."""
    recent_retry_rate: float
    """Failures per delivery that ended in the breaker's window (10 min); the breaker judges by it."""
    rate_limited: int
    """How often, since the start, ready deliveries had to wait for the rate limit."""
    dead_letter_bytes: int = 0
    """Bytes of all dead letters kept here, redriven ones too."""
    skipped: int = 0
    """Messages published while this subscription was suspended."""
    suspended: str = ""
    """Why this subscription is suspended; empty while it is not."""

    @property
    def retry_rate(self) -> float:
        """Retries per delivery, since the mailbox was opened."""
        return self.retried / self.delivered if self.delivered else 0.0
