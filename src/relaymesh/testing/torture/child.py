"""One worker process: started, listened to with a time limit, and ended by its pid."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.testing.torture.worker import Orders

STDERR_SHOWN = 4_000


class Ended(Exception):
    """The worker's stdout came to its end before the word that was waited for."""


class Silent(Exception):
    """The word that was waited for did not come in time."""


class Child:
    """A worker. In a session of its own, so that Ctrl-C on the terminal is ours alone."""

    def __init__(self, stderr: Path) -> None:
        """Only the interpreter starts; it touches nothing before `begin`."""
        self.stderr = stderr
        self._heard = b""
        with stderr.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "relaymesh.testing.torture.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, orders: Orders) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(orders) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Ended from None

    def hear(self, word: str, seconds: float) -> dict[str, Any]:
        """Wait for a line that begins with `word`; answers its fields."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._line(deadline, word)
            said, _, fields = line.partition(" ")
            if said == word:
                return msgspec.json.decode(fields) if fields else {}

    def _line(self, deadline: float, word: str) -> str:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise Silent(word)
            part = os.read(pipe, 65536)
            if not part:
                raise Ended
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def let_go(self) -> None:
        """The end of its stdin: it ends at once, without giving anything back."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None if it is still there. What it says meanwhile is let go by."""
        deadline = time.monotonic() + seconds
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while (code := self._process.poll()) is None and time.monotonic() < deadline:
            if not select.select([pipe], [], [], 0.005)[0]:
                continue
            if not os.read(pipe, 65536):
                try:
                    return self._process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return None
        return code

    def end(self) -> int:
        """Kill it, if it is still there, and let go of everything. Returns its exit code."""
        process = self._process
        if process.poll() is None:
            process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass  # it was killed before it had read everything
        return code

    def errors(self) -> str:
        """The end of what it wrote to stderr."""
        return self.stderr.read_text(encoding="utf-8", errors="replace")[-STDERR_SHOWN:].strip()

    def forget_if_silent(self) -> None:
        if self.stderr.exists() and not self.stderr.stat().st_size:
            self.stderr.unlink()
