"""A driver whose one receiver may be sick."""

from __future__ import annotations

from typing import Any

from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.step import BreakerMoved
from tests.kernel.driver import SECOND, Driver, names

QUICK = {"breaker_failures": 3, "breaker_open_ms": 10 * SECOND, "breaker_probes": 2, "max_retries": 50}


class Patient(Driver):
    """A driver with one mailbox, `box`, whose receiver may be sick."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.box_settings = {"backoff_ms_base": 0, **QUICK, **settings}
        self.here = self.agent(**self.box_settings)
        self.sent = 0

    @property
    def state(self) -> str:
        return self.box(self.here).breaker.state

    @property
    def moved(self) -> list[BreakerMoved]:
        return [each for each in self.step.moved or () if isinstance(each, BreakerMoved)]

    def fill(self, count: int, **fields: Any) -> None:
        self.send(self.here, *names(f"m{self.sent}-", count), **fields)
        self.sent += 1

    def take(self, count: int = 1) -> list[DeliveryRow]:
        return self.receive(self.here, count)

    def fail(self, count: int) -> None:
        for _ in range(count):
            (lease,) = self.take()
            self.nack(lease)

    def sicken(self) -> None:
        """Until the breaker is open: as many failures as it takes."""
        self.fail(self.box(self.here).settings.breaker_failures)
        assert self.state == "open"

    def attempts(self) -> list[int]:
        return [entry.attempts for entry in self.box(self.here).entries.values()]
