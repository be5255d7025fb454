"""The agent that the cases run. It does what the content of its work says, and writes down its processes.

As a script it reads one work on stdin; with `--lines` it is a worker; `play` is the same as a Python
function. It needs nothing but Python, so a copy of this file can stand in for the program that an adapter
runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

PIECE = 65_536
LONG_S = 120
GARBAGE = b"\xff\xfe\x00\x01 no JSON, no text\n"


class Ended(Exception):
    """The scenario ends the work with this value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Broken(Exception):
    """The scenario fails. `final`: for good."""

    def __init__(self, reason: str, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Voice:
    """How a script says things. A worker adds the id of its work; a function has an assignment for it."""

    def __init__(self, id: str | None = None) -> None:
        self._id = id

    def form(self, stream: int, **form: Any) -> None:
        if self._id is not None:
            form["id"] = self._id
        _write(stream, json.dumps(form).encode() + b"\n")

    def progress(self, text: str) -> None:
        self.form(2 if self._id is None else 1, relaymesh="progress", text=text)

    def garbage(self) -> None:
        """What no reader can take for a result; then the end."""
        _write(1, GARBAGE * 20)
        os._exit(0)

    def half(self) -> None:
        _write(1, b'{"relaymesh": "done", "value": {"a')
        os._exit(0)

    def big(self, size: int) -> None:
        """A result of so many bytes."""
        for _ in range(0, size, PIECE):
            _write(1, b"x" * PIECE)


class FunctionVoice(Voice):
    """A function has no stream for results: it returns them."""

    def __init__(self, assignment: Any) -> None:
        super().__init__()
        self.progress = assignment.progress  # type: ignore[method-assign]

    def garbage(self) -> None:
        raise Ended(b"\xff\xfe")

    def half(self) -> None:
        os._exit(0)

    def big(self, size: int) -> None:
        super().big(size)
        raise Ended("x" * (16 << 20))


def act(content: dict[str, Any], voice: Voice) -> Any:
    """Behave as the content says. Returns the result; raises `Ended` or `Broken`."""
    ledger = Ledger(content["ledger"])
    ledger.note()
    scenario = content["scenario"]
    if scenario == "echo":
        return content["value"]
    if scenario == "progress":
        voice.progress(content["text"])
        return None
    if scenario == "fail":
        raise Broken(content["reason"], final=content["final"])
    if scenario == "talk":
        _talk(content["size"])
        return "talked"
    if scenario in {"garbage", "half"}:
        getattr(voice, scenario)()
    if scenario == "big":
        voice.big(content["size"])
        return None
    if scenario == "leave":
        ledger.leave_behind()
        return "left"
    if scenario == "deaf":
        ledger.deafen()
    if scenario == "bomb":
        ledger.bomb(content["most"])
    if scenario == "chatter":
        for count in range(content["times"]):
            voice.progress(str(count))
            time.sleep(content["pause_s"])
        return "chattered"
    time.sleep(LONG_S)  # `sleep`, and what follows the ones that do not end
    return None


class Ledger:
    """Files in which every process of the agent notes itself: its pid and start time."""

    def __init__(self, record: str) -> None:
        self._record = record

    def note(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19]
        _append(self._record, b"%d %s\n" % (os.getpid(), started))
        with open("/proc/self/cmdline", "rb") as file:
            _append(f"{self._record}.cmdlines", file.read().replace(b"\0", b" ") + b"\n")
        with open("/proc/self/environ", "rb") as file:
            _append(f"{self._record}.environs", file.read().replace(b"\0", b"\n") + b"\n")

    def leave_behind(self) -> None:
        """Three children that stay: in our group, in a session of its own, and with no parent left."""
        for session, twice in ((False, False), (True, False), (True, True)):
            read, write = os.pipe()
            if os.fork() == 0:
                self._stay(session, twice, write)
            os.close(write)
            os.read(read, 1)  # until it has written itself down
            os.close(read)

    def _stay(self, session: bool, twice: bool, write: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if session:
            os.setsid()
        if twice and os.fork() != 0:
            os._exit(0)
        self.note()
        os.write(write, b"x")
        time.sleep(LONG_S)
        os._exit(0)

    def deafen(self) -> None:
        """Ignore every request to end, and have a child that does too."""
        child = "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN);"
        here = os.path.dirname(os.path.abspath(__file__))
        child += (
            f"import sys; sys.path.insert(0, {here!r}); import agent; agent.Ledger({self._record!r}).note();"
        )
        child += f"time.sleep({LONG_S})"
        subprocess.Popen([sys.executable, "-c", child])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            try:
                signal.signal(number, signal.SIG_IGN)
            except ValueError:  # a function runs in no main thread: its child alone is deaf
                return

    def bomb(self, most: int) -> None:
        """Fork, and let each child fork, until there were so many or no more are allowed."""
        refused = 0
        while refused < 20 and _reserved(f"{self._record}.slots") < most:
            try:
                pid = os.fork()
            except OSError:
                refused += 1
                time.sleep(0.05)
                continue
            if pid == 0:
                self.note()
        time.sleep(LONG_S)
        os._exit(0)


def _reserved(path: str) -> int:
    """Take the next number: it is the length of a file that all append to."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)


def _append(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def _talk(size: int) -> None:
    line = b"y" * 99 + b"\n"
    piece = line * (PIECE // len(line))
    for _ in range(0, size, len(piece)):
        _write(2, piece)


def _write(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def play(assignment: Any) -> Any:
    """As a Python function, for `PythonFunction`."""
    try:
        return act(assignment.content, FunctionVoice(assignment))
    except Ended as ended:
        return ended.value
    except Broken as broken:
        from relaymesh.sdk.endings import Failed  # noqa: PLC0415 - the rest needs nothing but Python

        raise (Failed if broken.final else RuntimeError)(str(broken)) from None


def _script() -> int:
    content = json.loads(sys.stdin.buffer.readline())["content"]
    voice = Voice()
    try:
        voice.form(1, relaymesh="done", value=act(content, voice))
    except Broken as broken:
        if not broken.final:
            _write(2, str(broken).encode() + b"\n")
            return 1
        voice.form(1, relaymesh="failed", reason=str(broken))
    return 0


def _worker() -> int:
    for line in sys.stdin.buffer:
        given = json.loads(line)
        if given["relaymesh"] != "work":
            continue
        voice = Voice(given["id"])
        try:
            voice.form(1, relaymesh="done", value=act(given["work"]["content"], voice))
        except Broken as broken:
            kind = "failed" if broken.final else "retry"
            voice.form(1, relaymesh=kind, reason=str(broken))
    return 0


def _deaf(record: str) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Ledger(record).note()
    time.sleep(LONG_S)
    return 0


if __name__ == "__main__":
    if "--deaf" in sys.argv:
        sys.exit(_deaf(sys.argv[-1]))
    sys.exit(_worker() if "--lines" in sys.argv else _script())
