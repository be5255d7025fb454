"""The disk alone: pwrite + fdatasync into a preallocated file, as a journal would do it at best."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.quantile import percentile

ALLOCATE_BYTES = 16_000_000
FRAME_BYTES = 300
"""One 200 B message in a frame of its own."""


class RawDisk:
    """A file that is written forward and synced after each write. Nothing else is done."""

    def __init__(self, place: Path, write_bytes: int = FRAME_BYTES) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(place / "raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._data = os.urandom(write_bytes)
        self._offset = 0
        self._allocated = 0
        self.took_s: list[float] = []

    def once(self) -> None:
        if self._offset + len(self._data) > self._allocated:
            self._allocate()
        began = time.perf_counter()
        os.pwrite(self._fd, self._data, self._offset)
        _datasync(self._fd)
        self.took_s.append(time.perf_counter() - began)
        self._offset += len(self._data)

    def for_seconds(self, seconds: float) -> float:
        """Sync for so long; answers syncs per second."""
        began = time.perf_counter()
        count = 0
        while (took := time.perf_counter() - began) < seconds:
            self.once()
            count += 1
        return count / took

    def summary(self) -> dict[str, Any]:
        return {
            "write_bytes": len(self._data),
            "syncs": len(self.took_s),
            "sync_ms_p50": percentile(self.took_s, 0.5) * 1000,
            "sync_ms_p99": percentile(self.took_s, 0.99) * 1000,
        }

    def _allocate(self) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, self._allocated, ALLOCATE_BYTES)
        else:
            os.ftruncate(self._fd, self._allocated + ALLOCATE_BYTES)
        self._allocated += ALLOCATE_BYTES
        os.fsync(self._fd)

    def __enter__(self) -> RawDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def _datasync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
