"""The parent of `relaymesh worker run`: it starts processes, starts them again, and stops them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from relaymesh.cli.output import Output
from relaymesh.cli.worker_app import REFUSED, Order
from relaymesh.sdk.stop_signals import told_to_stop

LOOK_S = 0.1
PAUSE_S_MIN = 0.5
PAUSE_S_MAX = 30.0
LIVED_S = 10.0
"""A process that lived for so long did not crash at once: the pause begins small again."""
KILL_AFTER_S = 3.0
"""Beyond the graceful timeout: for a process that does not end."""
READY_BYTES_MAX = 1 << 20


class Served:
    """One of the processes, over all its starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.was_ready = False
        """Some start of it has served."""
        self.refused = False
        """It said that it cannot serve."""
        self.files: list[str] = []
        self.crashes = 0
        """In a row."""
        self.not_before = 0.0
        self._since = 0.0
        self._pipe = -1

    def start(self, order: Order, environment: dict[str, str], alive: int, now: float) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        told = msgspec.structs.replace(order, ready=write, alive=alive)
        try:
            # A session of its own: Ctrl-C reaches the parent alone, which then tells them once.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "relaymesh.cli.worker_app", msgspec.json.encode(told).decode()],
                pass_fds=(write, alive),
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._pipe, self.ready, self.refused, self._since = read, False, False, now

    def became_ready(self) -> bool:
        """Whether it serves, seen for the first time."""
        if self.ready or self._pipe < 0:
            return False
        try:
            data = os.read(self._pipe, READY_BYTES_MAX)
        except BlockingIOError:
            return False
        if data == REFUSED:
            self.refused = True
        if data in {b"", REFUSED}:
            return False
        self.files = msgspec.json.decode(data, type=list[str])
        self.ready = self.was_ready = True
        return True

    def ended(self, now: float) -> int | None:
        """Its exit code, if it has ended since the last look."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return None
        self.became_ready()  # what it said last
        self.process = None
        os.close(self._pipe)
        self._pipe = -1
        self.crashes = 0 if now - self._since > LIVED_S else self.crashes + 1
        self.not_before = now + min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(self.crashes, 16) / 2)
        return code

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)


class Processes:
    """All of them. `run` returns the exit code of the command."""

    def __init__(self, order: Order, count: int, output: Output, *, token: str | None, reload: bool) -> None:
        self._order = order
        self._output = output
        self._reload = reload
        self._environment = dict(os.environ) if token is None else {**os.environ, "RELAYMESH_TOKEN": token}
        self._served = [Served(number) for number in range(1, count + 1)]
        self._seen: dict[str, tuple[int, int]] = {}
        self._waits_for_change = False

    def run(self) -> int:
        told: list[signal.Signals] = []
        alive, kept = os.pipe()
        try:
            with told_to_stop(told.append):
                code = self._serve(alive, lambda: bool(told))
                self._stop(lambda: len(told) > 1)
            return code
        finally:
            self._stop(lambda: True)
            os.close(kept)
            os.close(alive)

    def _serve(self, alive: int, told: Callable[[], bool]) -> int:
        while not told():
            now = time.monotonic()
            for served in self._served:
                if served.process is None and now >= served.not_before and not self._waits_for_change:
                    served.start(self._order, self._environment, alive, now)
                    self._say("started", served)
                if served.became_ready():
                    self._seen = _stamps(served.files)
                    self._say("serves", served)
                code = served.ended(now)
                if code is not None and not self._goes_on(served, code):
                    return code if code > 0 else 128 - code
            if self._reload and self._changed():
                self._say("reloads")
                self._stop(told)
            time.sleep(LOOK_S)
        return 0

    def _goes_on(self, served: Served, code: int) -> bool:
        """Whether to start it again: after a crash, and when it has served before."""
        self._say("ended", served, code=code)
        if served.refused and self._reload and self._seen:
            self._waits_for_change = True
            return True
        return not served.refused or served.was_ready

    def _changed(self) -> bool:
        """Whether a file of the module is another one than when it was loaded."""
        if not self._seen or _stamps(self._seen) == self._seen:
            return False
        self._seen = _stamps(self._seen)
        self._waits_for_change = False
        return True

    def _stop(self, at_once: Callable[[], bool]) -> None:
        """Let running handlers finish, and kill what does not end."""
        until = time.monotonic() + self._order.graceful_s + KILL_AFTER_S
        for served in self._served:
            served.signal(signal.SIGTERM)
        while any(served.process is not None for served in self._served):
            now = time.monotonic()
            for served in self._served:
                if now > until or at_once():
                    served.signal(signal.SIGKILL)
                code = served.ended(now)
                if code is not None:
                    served.crashes, served.not_before = 0, 0.0
                    self._say("ended", served, code=code)
            time.sleep(LOOK_S / 10)

    def _say(self, event: str, served: Served | None = None, **more: int) -> None:
        fields: dict[str, object] = {"event": event}
        if served is not None:
            fields["process"] = served.number
            if served.process is not None:
                fields["pid"] = served.process.pid
        fields |= more
        if self._output.json:
            self._output.object(fields)
        else:
            words = " ".join(f"{name} {value}" for name, value in fields.items() if name != "event")
            self._output.line(f"{event} {words}".rstrip())
        self._output.flush()


def _stamps(files: list[str] | dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """When each file was written, and its size; (0, 0): it is not there now."""
    found = {}
    for file in files:
        try:
            stat = Path(file).stat()
            found[file] = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            found[file] = (0, 0)
    return found
