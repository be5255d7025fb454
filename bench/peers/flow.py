"""The traffic of one run, counted in a mapped file, so that its parts may be threads, tasks or processes.

It is the same traffic as bench.throughput and bench.latency put on a mesh: batches, a window on what is not
yet acked, contents of 200 bytes that are encoded and read; or batches that are due at fixed moments.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.contents import age, clock, content, stamped
from bench.latency import WARM_UP_SHARE
from bench.throughput import WINDOW_BATCHES, WINDOW_MIN

GO, ENDED, SENT, ACKED, LAST, READY = range(6)
ROWS = 6
PLACES = 256
"""Of each kind of counter; every counter has one writer."""
PAUSE_S = 0.001
"""Between two looks at a closed window: an event loop that counts in milliseconds would not wait for less."""
PAUSE_EACH_S = 0.00025
"""Many senders at a closed window look at it less often each."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the traffic is driven. `rate` (messages a second) paces it; None is as fast as it goes."""

    batch: int
    size: int
    seconds: float
    senders: int
    receivers: int
    rate: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Flow:
    """One run: what is to be sent, and what it has come to."""

    def __init__(self, path: Path, shape: Shape) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * ROWS * PLACES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._slots = memoryview(self._map).cast("q")
        self.shape = shape
        self._message = content("json", shape.size)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self.ages = [array("d") for _ in range(shape.receivers)]

    def close(self) -> None:
        self._slots.release()
        self._map.close()

    # -- start and end -------------------------------------------------------------------------

    def ready(self, part: int) -> None:
        self._slots[READY * PLACES + part] = 1

    def until_ready(self, parts: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while sum(self._row(READY)) < parts:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def go(self) -> None:
        self._slots[GO * PLACES] = int((clock() + 0.02) * 1e9)

    def until_go(self) -> None:
        while not self._slots[GO * PLACES]:
            time.sleep(0.001)
        time.sleep(max(0.0, self.began - clock()))

    @property
    def began(self) -> float:
        return self._slots[GO * PLACES] / 1e9

    @property
    def sent(self) -> int:
        return sum(self._row(SENT))

    @property
    def acked(self) -> int:
        return sum(self._row(ACKED))

    @property
    def took_s(self) -> float:
        """From the first send to the last ack."""
        return max(self._row(LAST)) / 1e9 - self.began

    @property
    def finished(self) -> bool:
        return sum(self._row(ENDED)) == self.shape.senders and self.acked >= self.sent

    @property
    def open(self) -> bool:
        return self.sent - self.acked < max(WINDOW_MIN, self.shape.batch * WINDOW_BATCHES)

    def _row(self, kind: int) -> memoryview:
        width = self.shape.receivers if kind in (ACKED, LAST) else self.shape.senders
        width = PLACES if kind == READY else width
        return self._slots[kind * PLACES : kind * PLACES + width]

    # -- sending -------------------------------------------------------------------------------

    def sends(self, index: int) -> Iterator[list[bytes] | float]:
        """What sender `index` does next: a batch to send, or seconds to wait.

        A batch counts as sent when the next step is asked for: by then the server has answered it.
        """
        try:
            for step in self._paced(index) if self.shape.rate else self._flat_out():
                yield step
                if not isinstance(step, float):
                    self._slots[SENT * PLACES + index] += len(step)
        finally:
            self._slots[ENDED * PLACES + index] = 1

    def _flat_out(self) -> Iterator[list[bytes] | float]:
        deadline = self.began + self.shape.seconds
        pause_s = max(PAUSE_S, PAUSE_EACH_S * self.shape.senders)
        batch, encode, message = self.shape.batch, self._encode, self._message
        look_every = max(1, 100 // batch)
        turn = 0
        while clock() < deadline:
            turn += 1
            if turn % look_every == 0 and not self.open:
                turn -= 1
                yield pause_s
            else:
                yield [encode(message) for _ in range(batch)]

    def _paced(self, index: int) -> Iterator[list[bytes] | float]:
        rate, batch = self.shape.rate or 1.0, self.shape.batch
        count = max(1, int(rate * self.shape.seconds / batch))
        for number in range(index, count, self.shape.senders):
            due = self.began + number * batch / rate
            if (early := due - clock()) > 0:
                yield early
            yield [stamped(self.shape.size, due)] * batch

    # -- receiving -----------------------------------------------------------------------------

    def look_at(self, index: int, bodies: list[bytes]) -> None:
        """Read what was received, as a consumer would."""
        if self.shape.rate:
            now = clock()
            self.ages[index].extend([age(body, now) for body in bodies])
        else:
            for body in bodies:
                self._decode(body)

    def count_acked(self, index: int, count: int) -> None:
        self._slots[ACKED * PLACES + index] += count
        self._slots[LAST * PLACES + index] = int(clock() * 1e9)

    def settled_ages(self) -> list[float]:
        """All but the first tenth of each receiver: connections, caches and files are warm after it."""
        return [each for ages in self.ages for each in ages[int(len(ages) * WARM_UP_SHARE) :]]
