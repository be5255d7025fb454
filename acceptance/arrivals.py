"""A publisher that keeps its own time: messages are due at random moments of a given rate.

It never waits for a consumer. When the mesh is slow to answer it falls behind its schedule, and says so.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from acceptance.verdict import percentile
from relaymesh import MeshError


class Arrivals:
    """Calls `publish(number)` at the moments of a Poisson process, in a thread of its own."""

    def __init__(self, publish: Callable[[int], object], rate: float, seed: int = 1) -> None:
        self._publish = publish
        self._rate = rate
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acceptance-arrivals")
        self.took_s: list[float] = []
        """How long each publish took to be answered, refusals included."""
        self.at_s: list[float] = []
        self.accepted: list[int] = []
        self.refused: dict[str, int] = {}
        self.due = 0
        """How many were due by the end, published or not."""
        self.began = time.monotonic()

    def start(self) -> None:
        self.began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        number = 0
        while True:
            due += self._dice.expovariate(self._rate)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                self.due = number + self._still_due(due)
                return
            number += 1
            began = time.monotonic()
            try:
                self._publish(number)
                self.accepted.append(number)
            except MeshError as error:
                name = type(error).__name__
                self.refused[name] = self.refused.get(name, 0) + 1
            self.took_s.append(time.monotonic() - began)
            self.at_s.append(began - self.began)

    def _still_due(self, due: float) -> int:
        """What the schedule had for the time until now and was not published."""
        now, count = time.monotonic(), 0
        while due <= now:
            due += self._dice.expovariate(self._rate)
            count += 1
        return count

    @property
    def kept(self) -> float:
        """The share of what was due that was published or refused in time."""
        return len(self.took_s) / self.due if self.due else 0.0

    def rate_p95(self) -> float:
        """The 95th percentile of messages a second, second by second."""
        if not self.at_s:
            return 0.0
        seconds = int(self.at_s[-1]) or 1
        counts = [0.0] * seconds
        for at in self.at_s:
            if at < seconds:
                counts[int(at)] += 1
        return percentile(counts, 0.95)


class Backlog:
    """Samples a number every so often, in a thread of its own."""

    def __init__(self, look: Callable[[], int], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acceptance-backlog")
        self.samples: list[tuple[float, int]] = []
        self._began = time.monotonic()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.samples.append((time.monotonic() - self._began, self._look()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def values(self, since_s: float = 0.0, until_s: float = float("inf")) -> list[float]:
        return [float(value) for at, value in self.samples if since_s <= at < until_s]
