"""The circuit breaker's slow rule: a retry rate of more than 5% for ten minutes opens it."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.kernel.step import BreakerMoved
from tests.kernel.driver import HOUR, MINUTE, NOON, SECOND, Driver


class Traffic(Driver):
    """Steady traffic through a mailbox with the default settings."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.here = self.agent(max_retries=0, **settings)
        self.now -= self.now % MINUTE
        self.moved: list[BreakerMoved] = []

    def run(self, minutes: float, each_minute: int, failing: float) -> str:
        """Spread evenly; of every thousand outcomes, `failing` * 1000 are failures. Answers the state."""
        owed = 0.0
        gap = MINUTE // each_minute
        for i in range(round(minutes * each_minute)):
            self.send(self.here, f"{self.now}-{i}")
            leases = self.receive(self.here)
            if not leases:
                break
            owed += failing
            if owed >= 1 - 1e-9:
                owed -= 1
                self.nack(*leases)
            else:
                self.ack(*leases)
            self.moved += [each for each in self.step.moved or () if isinstance(each, BreakerMoved)]
            self.now += gap
        return self.box(self.here).breaker.state

    @property
    def rate(self) -> float:
        return self.box(self.here).breaker.retry_rate(self.now)


def test_more_than_five_percent_for_ten_minutes_opens_it() -> None:
    mesh = Traffic()
    assert mesh.run(10, 1000, 0.06) == "closed"
    assert mesh.rate == pytest.approx(0.06)
    assert mesh.run(1, 1000, 0.06) == "open"
    (moved,) = mesh.moved
    assert moved.why == "more than 5.0% of the deliveries failed for 10 min"
    assert moved.retry_rate == pytest.approx(0.06, abs=0.001)
    assert mesh.now < NOON + 10 * MINUTE + SECOND


@pytest.mark.parametrize("failing", [0.049, 0.05])
def test_five_percent_and_less_never_do(failing: float) -> None:
    mesh = Traffic()
    assert mesh.run(15, 1000, failing) == "closed"
    assert mesh.rate == pytest.approx(failing)


def test_a_burst_does_not_however_much_it_weighs_in_the_window() -> None:
    mesh = Traffic()
    mesh.run(5, 600, 0)
    mesh.run(4, 600, 0.9)
    assert mesh.rate > 0.3
    assert mesh.run(30, 100, 0.04) == "closed"


def test_nine_bad_minutes_and_a_good_one_begin_the_count_again() -> None:
    mesh = Traffic()
    mesh.run(9, 200, 0.2)
    mesh.run(1, 200, 0.01)
    assert mesh.run(10, 200, 0.2) == "closed"
    assert mesh.run(1, 200, 0.2) == "open"


def test_little_traffic_is_not_judged_by_its_rate() -> None:
    mesh = Traffic()
    assert mesh.run(60, 9, 0.5) == "closed"
    assert mesh.rate == pytest.approx(0.5, abs=0.1)
    believed = Traffic(breaker_min_outcomes=90)
    assert believed.run(12, 9, 0.5) == "open"


def test_a_quiet_minute_begins_the_count_again() -> None:
    mesh = Traffic()
    mesh.run(9, 200, 0.2)
    mesh.now += 2 * MINUTE
    assert mesh.run(9, 200, 0.2) == "closed"


def test_the_rate_of_an_idle_mailbox_fades_with_its_window() -> None:
    mesh = Traffic()
    mesh.run(1, 100, 0.5)
    assert mesh.rate == pytest.approx(0.5)
    mesh.now += 9 * MINUTE
    assert mesh.rate == pytest.approx(0.5)
    mesh.now += 2 * MINUTE
    assert mesh.rate == 0
    mesh.now += 24 * HOUR
    assert mesh.rate == 0
