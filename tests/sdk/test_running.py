"""`run`: until a signal, the end of the mesh, or the end of the time; in processes of their own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from relaymesh import InvalidValue, JournalPoisoned, Mesh
from tests.sdk.uniform import Worlds
from tests.waiting import until_async

CHILD = Path(__file__).with_name("run_child.py")
PATIENCE_S = 60.0
STUCK_S = 50.0

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
    pytest.mark.usefixtures("default_signals"),
]


class Program:
    """One run of the child."""

    def __init__(self, twin: str, end: str, path: Path, seconds: float) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, str(CHILD), twin, end, str(path), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        self._out: IO[str] = self.popen.stdout
        self.lines: list[str] = []

    def until(self, word: str) -> None:
        while not self.lines or word not in self.lines[-1]:
            line = self._out.readline()
            assert line, (self.lines, self.popen.communicate(timeout=PATIENCE_S))
            self.lines.append(line)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Its exit code and all that it said."""
        out, err = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode, "".join(self.lines) + out, err


@contextmanager
def program(twin: str, end: str, path: Path, seconds: float) -> Iterator[Program]:
    child = Program(twin, end, path, seconds)
    try:
        yield child
    finally:
        if child.popen.poll() is None:
            child.popen.kill()
            child.popen.communicate(timeout=PATIENCE_S)


def attempts(path: Path) -> list[int]:
    """Of what the mailbox still holds: which attempt comes next."""
    with Mesh(path) as mesh:
        return [each.attempt for each in mesh.agent("coder").receive_many(5)]


@pytest.fixture(params=["mesh", "async"])
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_lets_handlers_finish_and_the_program_ends_with_0(
    twin: str, name: str, tmp_path: Path
) -> None:
    with program(twin, "run", tmp_path, 0.5) as child:
        child.until("began 1")
        child.signal(signal.Signals[name])
        code, out, err = child.ended()
    assert (code, err) == (0, "")
    assert f"{name}: stopping" in out
    assert out.index("done") < out.index("ran, 2 mailboxes"), "the mesh is still open after run"
    assert attempts(tmp_path) == []


@pytest.mark.parametrize(("name", "expected"), [("SIGINT", -signal.SIGINT), ("SIGTERM", 143)])
def test_a_second_signal_ends_it_at_once_and_burns_no_attempt(
    twin: str, name: str, expected: int, tmp_path: Path
) -> None:
    """Promise 6."""
    with program(twin, "run", tmp_path, STUCK_S) as child:
        child.until("began 1")
        child.signal(signal.Signals[name])
        child.until("stopping")
        second = time.monotonic()
        child.signal(signal.Signals[name])
        code, out, _ = child.ended()
    assert time.monotonic() - second < STUCK_S / 4
    assert code == expected
    assert "done" not in out
    assert attempts(tmp_path) == [1]


def test_a_second_ctrl_c_while_the_mesh_closes_burns_no_attempt(twin: str, tmp_path: Path) -> None:
    """Promise 6, for a program that does not call `run`."""
    with program(twin, "sleep", tmp_path, STUCK_S) as child:
        child.until("began 1")
        child.signal(signal.SIGINT)
        time.sleep(0.5)  # there is nothing to see from outside: it closes now
        child.signal(signal.SIGINT)
        code, out, _ = child.ended()
    assert code == -signal.SIGINT
    assert "done" not in out
    assert attempts(tmp_path) == [1]


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    twin: str, tmp_path: Path, ignored_hangup: None
) -> None:
    with program(twin, "run", tmp_path, 0.05) as child:
        child.until("done")
        child.signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.popen.wait(1)
        child.signal(signal.SIGTERM)
        code, out, _ = child.ended()
    assert code == 0
    assert "SIGHUP" not in out


def test_a_handler_of_the_programs_own_keeps_its_signal(twin: str, tmp_path: Path) -> None:
    with program(twin, "own", tmp_path, 0.05) as child:
        child.until("done")
        child.signal(signal.SIGTERM)
        child.until("my own handler")
        child.signal(signal.SIGINT)
        assert child.ended()[0] == 0


async def test_run_on_a_mesh_whose_journal_has_failed_raises_what_failed(
    embedded_worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedded: a remote mesh has no journal."""
    mesh = await embedded_worlds.open()
    planner = await mesh.agent("planner")
    running = asyncio.create_task(mesh.run())
    await asyncio.sleep(0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mesh.node.core.journal, "append", full)
    with pytest.raises(JournalPoisoned):
        await planner.send("planner", 1)
    with pytest.raises(JournalPoisoned, match="No space left"):
        await asyncio.wait_for(running, 30)
    with pytest.raises(JournalPoisoned):
        await mesh.run()
    await mesh.close()


async def test_run_ends_with_the_time_and_with_the_mesh(worlds: Worlds) -> None:
    mesh = await worlds.open()
    await mesh.run(0)
    await mesh.run(0.01)
    running = asyncio.create_task(mesh.run())
    await asyncio.sleep(0.01)
    assert not running.done()
    await mesh.close()
    await asyncio.wait_for(running, 30)
    await mesh.run()


@pytest.mark.parametrize("bad", ["5", float("nan"), True])
async def test_a_time_that_is_none_is_refused(worlds: Worlds, bad: object) -> None:
    async with worlds() as mesh:
        for call in (mesh.run(bad), mesh.run(0, timeout=bad), mesh.inner_close(timeout=bad)):
            with pytest.raises(InvalidValue, match="timeout"):
                await call
        assert (await mesh.stats()).delayed() == 0, "it is open still"


async def test_a_close_waits_as_long_as_it_is_told(worlds: Worlds) -> None:
    mesh = await worlds.open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
    done: list[int] = []
    go_on = asyncio.Event()

    def stuck(_delivery: object) -> None:
        done.append(0)
        while not go_on.is_set():
            time.sleep(0.005)
        done.append(1)

    coder.handle(stuck)
    await planner.send("coder", 1)
    await until_async(lambda: done)
    closing = asyncio.create_task(mesh.close(timeout=None))
    await asyncio.sleep(0.1)
    assert not closing.done(), "None waits for ever"
    go_on.set()
    await closing
    assert done == [0, 1]
