"""Signals that ask the process to stop, behind one seam: POSIX signals, and the console events of Windows.

    with asked_to_stop(loop, on_stop) as finished: ...

`on_stop(name)` runs on the loop, once for every signal: the first means gracefully, the second at once.
Windows ends a process as soon as its handler of CTRL_CLOSE_EVENT returns, so that handler, which runs in
a thread of the system's own, waits until the stop is `finished`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from relaymesh.sdk.stop_signals import heeded

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

OnStop = Callable[[str], None]

CONSOLE_EVENTS = {
    0: "CTRL_C_EVENT",
    1: "CTRL_BREAK_EVENT",
    2: "CTRL_CLOSE_EVENT",
    5: "CTRL_LOGOFF_EVENT",
    6: "CTRL_SHUTDOWN_EVENT",
}
ENDING_EVENTS = frozenset({2, 5, 6})
"""The process is ended when their handler returns."""
CLOSE_WAIT_S = 5.0
"""How long Windows lets a handler of an ending event take."""


class Seam(Protocol):
    """Where signals come from."""

    def install(self, loop: asyncio.AbstractEventLoop, on_stop: OnStop) -> None:
        """From now on `on_stop` is called, on the loop, for every signal."""

    def finish(self) -> None:
        """The stop is over; nothing is called any more."""


class PosixSignals:
    """SIGINT, SIGTERM and SIGHUP, through the loop; those that are ignored already stay ignored."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: list[signal.Signals] = []

    def install(self, loop: asyncio.AbstractEventLoop, on_stop: OnStop) -> None:
        self._loop = loop
        self._watched = heeded()
        for number in self._watched:
            loop.add_signal_handler(number, on_stop, number.name)

    def finish(self) -> None:
        if self._loop is not None:
            for number in self._watched:
                self._loop.remove_signal_handler(number)


SetHandler = Callable[[Callable[[int], bool], bool], bool]
"""`SetConsoleCtrlHandler`: add or remove a handler; false when the system refuses."""


class ConsoleEvents:
    """The console events of Windows. The handler is called in a thread that the system makes for it."""

    def __init__(self, set_handler: SetHandler, *, close_wait_s: float = CLOSE_WAIT_S) -> None:
        self._set_handler = set_handler
        self._close_wait_s = close_wait_s
        self._finished = threading.Event()
        self._tell: Callable[[str], object] = _nobody

    def install(self, loop: asyncio.AbstractEventLoop, on_stop: OnStop) -> None:
        def tell(name: str) -> None:
            loop.call_soon_threadsafe(on_stop, name)

        self._tell = tell
        if not self._set_handler(self._handle, True):
            raise OSError("the console's events cannot be watched: SetConsoleCtrlHandler refused")

    def _handle(self, event: int) -> bool:
        """Whether the event was ours; if not, the system goes on to the next handler."""
        name = CONSOLE_EVENTS.get(event)
        if name is None:
            return False
        try:
            self._tell(name)
        except RuntimeError:
            return False  # the loop is closed: let the process end
        if event in ENDING_EVENTS:
            self._finished.wait(self._close_wait_s)
        return True

    def finish(self) -> None:
        self._set_handler(self._handle, False)
        self._finished.set()


def _nobody(name: str) -> None:
    """Before `install` there is no listener."""


if sys.platform == "win32":

    def _console_seam() -> Seam:
        kind = ctypes.WINFUNCTYPE(wintypes.BOOL, wintypes.DWORD)
        kept: dict[Any, Any] = {}  # the system holds a bare pointer: ours must outlive it

        def set_handler(handler: Callable[[int], bool], add: bool) -> bool:
            pointer = kept.setdefault(handler, kind(handler))
            return bool(ctypes.windll.kernel32.SetConsoleCtrlHandler(pointer, add))

        return ConsoleEvents(set_handler)


def system_signals() -> Seam:
    """The seam of this operating system."""
    if sys.platform == "win32":
        return _console_seam()
    return PosixSignals()


@contextmanager
def asked_to_stop(seam: Seam, on_stop: OnStop) -> Iterator[None]:
    """Listen while the block runs; its end is the end of the stop."""
    seam.install(asyncio.get_running_loop(), on_stop)
    try:
        yield
    finally:
        seam.finish()
