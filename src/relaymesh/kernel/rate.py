"""The rate limit of one mailbox: a bucket of tokens, one for every delivery.

Tokens arrive at `rate_per_s`, up to `rate_burst`; at first the bucket is full. In any interval of t seconds
at most burst + rate * t deliveries go out. All numbers are whole: a token is counted in parts so small that
each millisecond brings a whole number of them, so rounding loses nothing, however long it runs.

A spent token stays spent: a delivery that comes back returns none, because the receiver may already have
seen it.
"""

from __future__ import annotations

from fractions import Fraction

from relaymesh.kernel.settings import MailboxSettings

FINEST = 1_000_000
"""The rate is rounded to the nearest fraction with a denominator up to this."""
WAKES_PER_S = 100
"""Waiters are woken for one token, or for the tokens of a hundredth of a second if those are more."""


class Rate:
    """Volatile: a restart begins with a full bucket."""

    __slots__ = ("_burst", "_level", "_per_ms", "_then", "_token", "_wake_for", "limited", "waits_until")

    def __init__(self, rate_per_s: float, burst: int) -> None:
        rate = max(Fraction(rate_per_s).limit_denominator(FINEST), Fraction(1, FINEST))
        self._per_ms = rate.numerator
        self._token = 1000 * rate.denominator
        """Parts of a token; each millisecond brings `_per_ms` of them."""
        burst = burst or max(1, int(rate))
        self._burst = burst * self._token
        self._level = self._burst
        self._then = 0
        self._wake_for = min(burst, max(1, int(rate) // WAKES_PER_S)) * self._token
        self.limited = 0
        """How often ready deliveries had to wait for a token."""
        self.waits_until = 0

    def available(self, now: int) -> int:
        """The number of whole tokens now."""
        self._level = min(self._burst, self._level + (now - self._then) * self._per_ms)
        self._then = now
        return self._level // self._token

    def spend(self, count: int) -> None:
        """Spend tokens for deliveries that went out: at most as many as were `available`."""
        self._level -= count * self._token

    def next_at(self) -> int:
        """When to wake the waiters. Later than the last look if there was no token then."""
        missing = self._wake_for - self._level
        return self._then + max(0, -(-missing // self._per_ms))


def rate_of(settings: MailboxSettings) -> Rate | None:
    return Rate(settings.rate_per_s, settings.rate_burst) if settings.rate_per_s else None
