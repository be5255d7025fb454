"""A server of the bench's own: on a free loopback port, in a private directory, ended by its id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_S = 60.0
STOP_S = 2.0
"""What a server holds is thrown away, so it need not end well."""
LOG_TAIL_BYTES = 1500
SESSION, USER_TIME, SYSTEM_TIME = 3, 11, 12
"""Places in /proc/PID/stat, counted after the name."""


class MissingServer(Exception):
    """A server or its Python client is not installed; the text says which and how to get it."""


class FailedServer(Exception):
    """A server did not start or did not answer; the text ends with the last lines of its log."""


class Server:
    """A running server. Its processes are those of the session it was started in."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        place: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self.log = place / "server.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=place,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def until_it_listens(self, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                raise FailedServer(
                    f"{self.name} ended with exit code {code} while it started: {self.log_tail()}"
                )
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise FailedServer(f"{self.name} did not listen after {timeout_s:.0f} s: {self.log_tail()}")

    def log_tail(self) -> str:
        return (
            self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_BYTES:].strip()
            or "its log is empty"
        )

    def cpu_s(self) -> float:
        """Processor seconds of all its processes since they began."""
        ticks = 0
        for process in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = process.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[SESSION]) == self.pid:
                ticks += int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Its session is ours alone, so whatever is left of it after the time to end is killed."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill()

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def find(program: str, package: str, *places: str) -> str:
    """The path of a program, or what is to be done about it."""
    for place in places:
        if os.access(place, os.X_OK):
            return place
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        raise MissingServer(
            f"{program} is not installed: bench/peers/install.sh, or apt-get install {package}"
        )
    return path


def version_of(*command: str) -> str:
    """The first line that a program answers to the question for its version."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
