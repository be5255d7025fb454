"""The signals that ask a program to stop: SIGINT, SIGTERM and SIGHUP.

A signal that was ignored when the program started stays ignored: `nohup` ignores SIGHUP so that the program
runs on after its terminal is closed, and a shell script ignores SIGINT for its background jobs.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def heeded(numbers: Iterable[signal.Signals] = STOP_SIGNALS) -> list[signal.Signals]:
    """Those signals that are not ignored in this process."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def told_to_stop(tell: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Call `tell` in the main thread for each stop signal while the block runs; then restore the handlers.

    Signals for which the program has its own handler are not changed. Outside the main thread nothing is
    watched: Python allows signal handlers there only.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in heeded():
            if _is_default(signal.getsignal(number)):
                before[number] = signal.signal(number, lambda n, _frame: tell(signal.Signals(n)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_of(number: signal.Signals) -> BaseException:
    """End a program that got a second signal: its exit code names the signal."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _is_default(handler: Any) -> bool:
    """Whether Python set it, and not the program: `asyncio.run` has a SIGINT handler too."""
    if isinstance(handler, functools.partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler)
