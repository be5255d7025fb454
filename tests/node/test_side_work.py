"""Work beside the calls of a node: one at a time, and a close waits for it whenever it began."""

from __future__ import annotations

import threading
import time

import pytest

from relaymesh.node.side_work import SideWork


def test_one_at_a_time() -> None:
    done: list[str] = []
    gate = threading.Event()
    side = SideWork("test-side-work")
    assert not side.running

    def wait_and_note() -> None:
        gate.wait(10)
        done.append("first")

    side.begin(wait_and_note)
    assert side.running
    side.begin(lambda: done.append("second"))
    gate.set()
    side.end(10)
    assert (done, side.running) == (["first"], False)


def test_nothing_begins_after_its_end() -> None:
    side = SideWork("test-side-work")
    side.end(10)
    side.begin(lambda: pytest.fail("it began"))
    assert not side.running


def test_an_end_waits_only_so_long() -> None:
    gate = threading.Event()
    side = SideWork("test-side-work")
    side.begin(lambda: gate.wait(10))
    side.end(0.01)
    assert side.running
    gate.set()
    side.end(10)


@pytest.mark.parametrize("pause", ["before", "after"])
def test_an_end_in_the_moment_of_a_start_waits_for_it(pause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is made but not started cannot be joined; one that is started must be."""
    side = SideWork("test-side-work")
    starting = threading.Event()
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:
        if thread.name != "test-side-work":
            start(thread)
        elif pause == "before":
            starting.set()
            time.sleep(0.1)
            start(thread)
        else:
            start(thread)
            starting.set()
            time.sleep(0.1)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    done: list[str] = []

    def work() -> None:
        time.sleep(0.3)
        done.append("work")

    beginner = threading.Thread(target=lambda: side.begin(work))
    beginner.start()
    assert starting.wait(10)
    side.end(10)
    assert done == ["work"]
    beginner.join(10)
