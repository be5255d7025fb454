"""Ledgers: what a worker saw, in lines that survive a kill. `checker.py` says what each line means."""

from __future__ import annotations

import os
import threading
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def awake_ms() -> int:
    """Does not count while the machine sleeps; the same for all processes."""
    return time.monotonic_ns() // 1_000_000


def elapsed_ms() -> int:
    return time.clock_gettime_ns(_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def digest_of(id: str, key: str | None, content: Any) -> str:
    """Of everything a receiver relies on: what differs by one byte has another."""
    return blake2b(msgspec.json.encode([id, key, content], order="sorted"), digest_size=8).hexdigest()


class Ledger:
    """One file per thread, opened with O_APPEND; lines that belong together go in one write.

    A kill can cut only the last line of a file, because no other process writes behind it.
    """

    def __init__(self, folder: Path, run: int) -> None:
        self._folder = folder
        self._run = run
        self._threads = 0
        self._naming = threading.Lock()
        self._mine = threading.local()

    def write(self, *lines: tuple[object, ...]) -> None:
        data = "".join([" ".join(map(str, line)) + "\n" for line in lines]).encode("ascii", "replace")
        file = getattr(self._mine, "file", None)
        if file is None:
            file = self._mine.file = self._open()
        while data:
            data = data[os.write(file, data) :]

    def _open(self) -> int:
        with self._naming:
            self._threads += 1
            name = f"{self._run:06d}.{self._threads:03d}"
        return os.open(self._folder / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
