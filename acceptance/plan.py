"""How long everything takes: the minutes of seed 001, scaled."""

from __future__ import annotations

from dataclasses import dataclass

MINUTES = 2.0
"""Of the steady run, and of the outage run; the other two take a few seconds each, whatever this is."""
FULL_S = 1_800.0
BREAKER_OPEN_MS, BREAKER_WINDOW_MS = 30_000, 600_000
"""The breaker's own times, at full length."""


@dataclass(frozen=True)
class OutageTimes:
    """At full length 30 minutes: 5 of outage from the 10th on, 10 to fall back."""

    whole_s: float

    @property
    def before_s(self) -> float:
        return self.whole_s / 3

    @property
    def outage_s(self) -> float:
        return self.whole_s / 6

    @property
    def recovery_s(self) -> float:
        return self.whole_s / 3

    @property
    def after_s(self) -> float:
        return self.whole_s - self.before_s - self.outage_s

    @property
    def breaker_open_ms(self) -> int:
        """Unscaled, a breaker that opened in a short outage would outlast the time to recover."""
        return max(10, round(BREAKER_OPEN_MS * self.whole_s / FULL_S))

    @property
    def breaker_window_ms(self) -> int:
        return max(100, round(BREAKER_WINDOW_MS * self.whole_s / FULL_S))


@dataclass(frozen=True)
class Plan:
    """What `make acceptance MINUTES=…` does."""

    minutes: float

    @property
    def load_s(self) -> float:
        return self.minutes * 60

    @property
    def outage(self) -> OutageTimes:
        return OutageTimes(self.minutes * 60)
