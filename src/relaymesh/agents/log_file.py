"""A log file that is rotated when it is long: `team.log`, and one for each agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

from relaymesh.modes import create_file
from relaymesh.printable import printable

__all__ = ["LogFile"]

BYTES_MAX = 8_388_608
"""A longer file becomes `….log.1`, in place of the one before."""
RUN_SHOWN = 8


class LogFile:
    """It never raises if the disk is full: the team continues without its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._size = 0

    def write(self, text: str, run: str = "") -> None:
        """One entry; each of its lines has the moment, and the end of the run's name."""
        begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        mark = f" {run[-RUN_SHOWN:]} |" if run else ""
        data = "".join([f"{begin}{mark} {printable(line)}\n" for line in text.splitlines()]).encode()
        try:
            if self._file < 0 or self._size > BYTES_MAX:
                self._open()
            self._size += os.write(self._file, data)
        except OSError:
            return

    def close(self) -> None:
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        if self._file >= 0:
            self.close()
            self._path.replace(f"{self._path}.1")
        self._file = create_file(self._path, os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._file).st_size
