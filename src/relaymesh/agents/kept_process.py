"""A process that the keeper keeps running: the node, or the supervisor.

    started -> ends by itself or is killed -> waits for its backoff -> started again

It has its own session, so Ctrl-C reaches only the keeper. Its stdin is a pipe from the keeper: when the pipe
ends, the keeper is gone, and the process stops in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

__all__ = ["KeptProcess"]

BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
SETTLED_S = 10.0
"""After this time a start counts as successful, and the next backoff is short again."""
LINE_BYTES_MAX = 65_536
READ_BYTES = 65_536

Told = Callable[[str, bytes], None]


class KeptProcess:
    """One of the keeper's own processes, across its restarts."""

    def __init__(self, name: str, command: Callable[[], Sequence[str]]) -> None:
        self.name = name
        self.starts = 0
        self.exit_code: int | None = None
        """Of the last one that ended; -9: killed."""
        self.start_at: float | None = None
        """When it is to be started; None: it runs, or is not wanted."""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._failures = 0
        self._parts: dict[int, bytes] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def files(self) -> list[int]:
        """The pipes of its output."""
        return list(self._parts)

    def start(self, now: float) -> None:
        self.start_at = None
        self.starts += 1
        self._started = now
        self._process = subprocess.Popen(
            list(self._command()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for file in (self._process.stdout, self._process.stderr):
            assert file is not None
            os.set_blocking(file.fileno(), False)
            self._parts[file.fileno()] = b""

    def read(self, descriptor: int, tell: Told) -> bool:
        """Read its output: `tell` gets "stdout" or "stderr" and a line.

        Returns whether there is more to come.
        """
        assert self._process is not None
        out: IO[bytes] | None = self._process.stdout
        stream = "stdout" if out is not None and out.fileno() == descriptor else "stderr"
        while True:
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return True
            *lines, rest = (self._parts[descriptor] + data).split(b"\n")
            if not data or len(rest) > LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            self._parts[descriptor] = rest
            for line in lines:
                if line.strip():
                    tell(stream, line)
            if not data:
                return False

    def closed(self, descriptor: int) -> None:
        """Close this pipe: nothing more is read from it."""
        self._parts.pop(descriptor, None)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)  # its number is not used again before it is reaped

    def ended(self, exit_code: int, now: float, tell: Told) -> None:
        """The process was reaped: read the rest of its output, and plan the next start."""
        process = self._process
        assert process is not None
        process.returncode = self.exit_code = exit_code  # `Popen` did not reap it itself
        for descriptor in self.files:
            self.read(descriptor, tell)
        self._process = None
        self._parts.clear()
        for file in (process.stdin, process.stdout, process.stderr):
            if file is not None:
                file.close()
        self._failures = 0 if now - self._started >= SETTLED_S else self._failures + 1
        self.start_at = now + min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self._failures, 16))
