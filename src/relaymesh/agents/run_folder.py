"""The folder of one run: a log file for each stream, with a maximum size and without secrets.

`<runs>/<run>/stdout.log` and `stderr.log` hold what the agent wrote, as bytes. The caller removes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from relaymesh.agents.command import checked_mark
from relaymesh.agents.environment import Blotter, Environment

__all__ = ["RunFolder", "RunLog"]


class RunLog:
    """One log file, written as the output comes, up to its bound."""

    def __init__(self, path: Path, most: int, blotter: Blotter) -> None:
        self._file = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._room = most
        self._blotter = blotter
        self.dropped = 0
        """Bytes that found no room."""

    def write(self, data: bytes) -> None:
        self._put(self._blotter.feed(data))

    def close(self) -> None:
        if self._file < 0:
            return
        self._put(self._blotter.rest())
        if self.dropped:
            self._write(f"\n[{self.dropped} more bytes were written and not kept]\n".encode())
        os.close(self._file)
        self._file = -1

    def _put(self, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        self.dropped += len(data) - len(kept)
        self._write(kept)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError:  # the disk is full: the run goes on without its log
                self.dropped += len(data)
                self._room = 0
                return


class RunFolder:
    """Opens the logs of a run, and closes them at its end."""

    def __init__(self, runs: Path, run: str, log_bytes_max: int, environment: Environment) -> None:
        self.path = runs / checked_mark(run)
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.stdout = RunLog(self.path / "stdout.log", log_bytes_max, environment.blotter())
        try:
            self.stderr = RunLog(self.path / "stderr.log", log_bytes_max, environment.blotter())
        except BaseException:
            self.stdout.close()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.stderr.close()
