"""The node's memory over time, and how much of it is mail that it counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from types import TracebackType
from typing import Self

from tests.attacks.node import Node

SAMPLE_S = 0.02
COUNT_S = 1.0
COUNT_FROM_BYTES = 402_653_184
"""While no more than this is beside what the node counted last, it is not asked again: that costs it time."""

Sample = tuple[float, int]
"""When, and how many bytes."""


class Watch:
    """Samples the node's memory all the time, and what it counts while the difference could matter."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopping = threading.Event()
        self._resident: list[Sample] = []
        self._counted: list[Sample] = [(time.monotonic(), 0)]
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._sample, self._count)]

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self._resident.append((time.monotonic(), self._node.resident_bytes()))

    def _count(self) -> None:
        while not self._stopping.wait(COUNT_S):
            if self._resident and self._resident[-1][1] - self._counted[-1][1] > COUNT_FROM_BYTES:
                try:
                    self._counted.append((time.monotonic(), self._node.counted_bytes()))
                except (OSError, HTTPException, ValueError, KeyError):
                    continue  # what it counted last is compared with

    @property
    def peak_bytes(self) -> int:
        return max((size for _, size in self._resident), default=0)

    @property
    def excess_bytes(self) -> int:
        """The most that was resident beside counted mail."""
        return excess(self._resident, self._counted)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def excess(resident: Sequence[Sample], counted: Sequence[Sample]) -> int:
    """The largest difference. Compared is the larger of the counts before and after: mail comes between."""
    worst, at = 0, 0
    for when, size in resident:
        while at + 1 < len(counted) and counted[at + 1][0] < when:
            at += 1
        worst = max(worst, size - max(count for _, count in counted[at : at + 2]))
    return worst
