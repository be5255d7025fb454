"""The server that is tortured: `relaymesh serve` on one directory and one port, started after every end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "relaymesh.cli.main"]
START_S_MAX = 60.0
STOP_S_MAX = 60.0
LOOK_EVERY_S = 0.005
STDERR_SHOWN = 4_000


class NotServed(Exception):
    """It did not start, did not stop, or ended by itself."""


class Served:
    """A node behind a port. Clients know its address and token for good, whichever process answers there."""

    def __init__(self, data: Path, stderr: Path) -> None:
        self._data = data
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def make_token(self) -> str:
        """An admin's, which outlives every start."""
        words = [*COMMAND, "token", "create", "--role", "admin", "--dir", str(self._data), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=START_S_MAX, check=False)
        if done.returncode != 0:
            raise NotServed(f"no token could be made: {done.stderr.strip()}")
        token: str = json.loads(done.stdout)["token"]
        return token

    def spawn(self) -> None:
        """Start it, without waiting."""
        words = [*COMMAND, "serve", "--dir", str(self._data), "--port", str(self.port), "--write-rate", "0"]
        with self._stderr.open("ab") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )

    def start(self) -> float:
        """Start it, and wait until it answers. Returns how many milliseconds that took."""
        began = time.monotonic()
        self.spawn()
        while not self._answers():
            if time.monotonic() - began > START_S_MAX:
                raise NotServed(f"the server did not start within {START_S_MAX:g} s: {self.errors()}")
            self.check()
            time.sleep(LOOK_EVERY_S)
        return (time.monotonic() - began) * 1000

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.settimeout(5)
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % self.port)
                return connection.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def check(self) -> None:
        """It must not end by itself."""
        process = self._running()
        if process.poll() is not None:
            raise NotServed(f"the server ended by itself (exit code {process.returncode}): {self.errors()}")

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def kill(self) -> None:
        self.check()
        process = self._running()
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Gracefully: it must end well, and in time."""
        self.check()
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            raise NotServed(f"the server did not stop within {STOP_S_MAX:g} s: {self.errors()}") from None
        if code != 0:
            raise NotServed(f"the server stopped with exit code {code}: {self.errors()}")

    def end(self) -> None:
        """Whatever happened: it is gone afterwards."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def errors(self) -> str:
        """The end of what it said."""
        text = self._stderr.read_text(encoding="utf-8", errors="replace")
        return text[-STDERR_SHOWN:].strip() or "it said nothing"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
