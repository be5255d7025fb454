"""Being asked to stop, on every system, through one seam."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from relaymesh.server.signals import CONSOLE_EVENTS, ConsoleEvents, PosixSignals, asked_to_stop


class Console:
    """The part of kernel32 that is needed, and a system that calls back from a thread of its own."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.handlers: list[Callable[[int], bool]] = []
        self.refuses = refuses

    def set_handler(self, handler: Callable[[int], bool], add: bool) -> bool:
        if self.refuses:
            return False
        if add:
            self.handlers.append(handler)
        else:
            self.handlers.remove(handler)
        return True

    def raise_event(self, event: int) -> tuple[threading.Thread, list[bool]]:
        """The handler's answer is in the list once its thread has ended."""
        answers: list[bool] = []
        [handler] = self.handlers
        thread = threading.Thread(target=lambda: answers.append(handler(event)))
        thread.start()
        return thread, answers


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
async def test_each_posix_signal_is_told_by_name_on_the_loop(name: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    with asked_to_stop(PosixSignals(), told.put_nowait):
        os.kill(os.getpid(), signal.Signals[name])
        assert await asyncio.wait_for(told.get(), 30) == name
        os.kill(os.getpid(), signal.Signals[name])
        assert await asyncio.wait_for(told.get(), 30) == name
    after = signal.getsignal(signal.Signals[name])
    assert after == (signal.SIG_DFL if name != "SIGINT" else signal.default_int_handler)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
async def test_a_signal_that_is_ignored_stays_ignored(ignored_hangup: None) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    with asked_to_stop(PosixSignals(), told.put_nowait):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(told.get(), 30) == "SIGTERM"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("event", [0, 1])
async def test_ctrl_c_and_ctrl_break_are_told_and_the_process_goes_on(event: int) -> None:
    console, told = Console(), asyncio.Queue[str]()
    with asked_to_stop(ConsoleEvents(console.set_handler), told.put_nowait):
        thread, answers = console.raise_event(event)
        assert await asyncio.wait_for(told.get(), 30) == CONSOLE_EVENTS[event]
        await asyncio.to_thread(thread.join, 30)
        assert answers == [True]
    assert console.handlers == []


@pytest.mark.parametrize("event", [2, 5, 6])
async def test_the_handler_of_a_closing_console_returns_only_when_the_stop_is_finished(event: int) -> None:
    """Windows ends the process when that handler returns."""
    console, told = Console(), asyncio.Queue[str]()
    with asked_to_stop(ConsoleEvents(console.set_handler, close_wait_s=60), told.put_nowait):
        thread, answers = console.raise_event(event)
        assert await asyncio.wait_for(told.get(), 30) == CONSOLE_EVENTS[event]
        assert thread.is_alive()
        assert answers == []
    await asyncio.to_thread(thread.join, 30)
    assert answers == [True]


async def test_a_stop_that_hangs_holds_the_closing_console_no_longer_than_windows_allows() -> None:
    console, told = Console(), asyncio.Queue[str]()
    with asked_to_stop(ConsoleEvents(console.set_handler, close_wait_s=0.05), told.put_nowait):
        thread, answers = console.raise_event(2)
        await asyncio.to_thread(thread.join, 30)
        assert answers == [True]


async def test_an_event_that_is_not_ours_is_left_to_the_next_handler() -> None:
    console, told = Console(), asyncio.Queue[str]()
    with asked_to_stop(ConsoleEvents(console.set_handler), told.put_nowait):
        thread, answers = console.raise_event(77)
        await asyncio.to_thread(thread.join, 30)
        assert answers == [False]
        assert told.empty()


def test_an_event_after_the_loop_has_closed_lets_the_process_end() -> None:
    console = Console()
    events = ConsoleEvents(console.set_handler)
    loop = asyncio.new_event_loop()
    events.install(loop, lambda name: None)
    loop.close()
    thread, answers = console.raise_event(2)
    thread.join(30)
    assert answers == [False]


async def test_a_console_that_refuses_the_handler_is_an_error_and_not_a_server_without_signals() -> None:
    with (
        pytest.raises(OSError, match="SetConsoleCtrlHandler"),
        asked_to_stop(ConsoleEvents(Console(refuses=True).set_handler), print),
    ):
        pass
