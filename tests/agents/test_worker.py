"""Worker agents and Python functions: works as lines, several at once, and processes that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from relaymesh.agents.adapter import Done, Event, Failure, Grown, Outcome, Progress, Text, Used
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.processes import marks_alive
from relaymesh.agents.python import PythonFunction
from relaymesh.agents.worker import Worker
from relaymesh.errors import InvalidSettings
from tests.agents.scripted import BRIEF, py, work

HERE = Path(__file__).parents[2]

Play = Callable[[Worker], Awaitable[Any]]


def played(worker: Callable[[], Worker], play: Play) -> Any:
    """Run the play on a loop of its own, and see that nothing is left of the worker."""
    mark = ""

    async def whole() -> Any:
        nonlocal mark
        made = worker()
        mark = made.mark
        try:
            return await play(made)
        finally:
            await made.close()

    got = asyncio.run(whole())
    assert marks_alive(mark) == {}
    return got


def function(name: str, tmp_path: Path, **given: Any) -> Callable[[], Worker]:
    fields: dict[str, Any] = {"limits": BRIEF, "mark": f"py-{uuid.uuid4().hex}"}
    return lambda: PythonFunction(
        f"tests.agents.functions:{name}", runs=tmp_path, directory=HERE, **(fields | given)
    )


def program(text: str, tmp_path: Path, **given: Any) -> Callable[[], Worker]:
    fields: dict[str, Any] = {"limits": BRIEF, "mark": f"wk-{uuid.uuid4().hex}", "pause_s_min": 0.01}
    start = "import sys, json, os, time\nlines = (json.loads(l) for l in sys.stdin)\n"
    start += "def say(**form): print(json.dumps(form), flush=True)\n"
    return lambda: Worker(py(start + text), runs=tmp_path, directory=tmp_path, **(fields | given))


def once(content: Any, events: list[Event] | None = None, **fields: Any) -> Play:
    async def play(worker: Worker) -> Any:
        given = work(json.dumps(content).encode(), **fields)
        return await worker.run(given, (events if events is not None else []).append)

    return play


def test_a_function_gets_the_work_and_returns_the_result(tmp_path: Path) -> None:
    events: list[Event] = []
    got = played(function("double", tmp_path), once({"n": 21}, events))
    assert isinstance(got, Done)
    assert json.loads(got.value) == {"twice": 42, "from": "planner"}
    assert got.used == Used(0.25, 3)
    assert Progress("doubling") in events
    assert Text("printed, and no protocol", "stderr") in events


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("retry", Failure("other", "busy", after_ms=2000)),
        ("until", Failure("other", "quota", until_ms=4_102_444_800_000)),
        ("reject", Failure("invalid", "no", final=True)),
        ("failed", Failure("no_branch", "no branch", final=True, used=Used(0.0, 9))),
        ("drop", Failure("dropped", "nothing to do", drop=True)),
        ("value", Failure("other", "ValueError: bad \ufffd")),
        ("timeout", Failure("timeout", "TimeoutError: slow")),
        ("exit", Failure("other", "SystemExit: 3")),
        ("continue", Grown(b'[{"name":"t","agent":"tester"}]', Used(0.0, 0))),
        ("result", Done(b'{"a":1}', Used(0.5, 0))),
    ],
)
def test_what_a_function_raises_means_what_it_means_in_a_handler(
    tmp_path: Path, how: str, expected: Outcome
) -> None:
    assert played(function("ends", tmp_path), once(how)) == expected


@pytest.mark.parametrize("how", ["bytes", "nan"])
def test_a_result_that_is_no_json_is_a_failure(tmp_path: Path, how: str) -> None:
    got = played(function("ends", tmp_path), once(how))
    assert isinstance(got, Failure)


def test_works_are_done_at_once_up_to_parallel(tmp_path: Path) -> None:
    async def play(worker: Worker) -> list[Outcome]:
        return await asyncio.gather(*(once(None)(worker) for _ in range(3)))

    got = played(function("together", tmp_path, parallel=3), play)
    assert sorted(each.value for each in got) == [b"0", b"1", b"2"]


def test_one_process_does_all_works(tmp_path: Path) -> None:
    async def play(worker: Worker) -> list[Outcome]:
        return [await once(None)(worker) for _ in range(5)]

    got = played(function("process", tmp_path), play)
    assert len({each.value for each in got}) == 1


def test_a_coroutine_that_takes_too_long_is_cancelled_and_its_process_stays(tmp_path: Path) -> None:
    events: list[Event] = []
    limits = Limits(time_s=0.5, grace_s=5)

    async def play(worker: Worker) -> Any:
        got = await once(None, events)(worker)
        assert len(marks_alive(worker.mark)) == 1
        return got

    got = played(function("stuck_softly", tmp_path, limits=limits), play)
    assert (got.code, got.reason) == ("timeout", "it took longer than its limit of 0.5 s")
    assert any(isinstance(event, Progress) for event in events)


def test_a_function_that_takes_too_long_ends_its_process(tmp_path: Path) -> None:
    async def play(worker: Worker) -> Any:
        got = await once(None)(worker)
        assert marks_alive(worker.mark) == {}
        return got

    got = played(function("stuck", tmp_path, limits=Limits(time_s=0.5, grace_s=0.1)), play)
    assert got.code == "timeout"


def test_a_module_that_cannot_be_imported_is_fatal(tmp_path: Path) -> None:
    got = played(
        lambda: PythonFunction("no.such:thing", runs=tmp_path, mark="py-none", directory=HERE), once(1)
    )
    assert (got.code, got.final) == ("fatal", True)
    assert "no" in got.reason


@pytest.mark.parametrize("target", ["", "module", "--help:x", "a:b; rm", "a b:c", 5, "\ud800:x", "a:\0"])
def test_a_target_that_names_no_function_is_refused(tmp_path: Path, target: Any) -> None:
    with pytest.raises(InvalidSettings):
        PythonFunction(target, runs=tmp_path, mark="m", directory=tmp_path)


@pytest.mark.parametrize(("code", "expected"), [(0, "other"), (3, "other"), (65, "invalid"), (78, "fatal")])
def test_a_worker_that_ends_in_the_middle_is_a_failure_and_leaves_nothing(
    tmp_path: Path, code: int, expected: str
) -> None:
    async def play(worker: Worker) -> Any:
        got = await once(code)(worker)
        assert marks_alive(worker.mark) == {}
        return got

    assert played(function("dies", tmp_path), play).code == expected


def test_a_worker_that_is_killed_abandons_its_work_and_the_next_work_gets_a_new_one(tmp_path: Path) -> None:
    text = "for l in lines:\n say(relaymesh='progress', id=l['id'], text=str(os.getpid()))\n"
    text += (
        " if l['work']['content'] == 'stay': time.sleep(60)\n say(relaymesh='done', id=l['id'], value=1)\n"
    )

    async def play(worker: Worker) -> tuple[Outcome, Outcome]:
        def kill(event: Event) -> None:
            assert isinstance(event, Progress)
            os.kill(int(event.text), signal.SIGKILL)

        first = await worker.run(work(b'"stay"'), kill)
        return first, await once("go")(worker)

    first, second = played(program(text, tmp_path), play)
    assert isinstance(first, Failure)
    assert first.abandoned
    assert second == Done(b"1")


def test_a_worker_that_dies_at_once_is_started_again_after_growing_pauses(tmp_path: Path) -> None:
    async def play(worker: Worker) -> list[float]:
        times = []
        for _ in range(4):
            assert (await once(1)(worker)).code == "other"
            times.append(time.monotonic())
        return times

    first, *rest = played(program("next(lines); sys.exit(4)", tmp_path, pause_s_min=0.2), play)
    gaps = [after - before for before, after in zip([first, *rest], rest, strict=False)]
    assert gaps[0] >= 0.2
    assert gaps[1] >= 0.4
    assert gaps[2] >= 0.8


@pytest.mark.parametrize(
    "text",
    [
        """l = next(lines); print('{"relaymesh": "done", "val')""",
        """l = next(lines); sys.stdout.buffer.write(b'\\xff\\xfe\\x00\\n' * 10)""",
        """l = next(lines); say(relaymesh='done', id=l['id'], valeu=1); time.sleep(60)""",
        """l = next(lines); say(relaymesh='done', id=l['id'], cost_usd=-1); time.sleep(60)""",
        """l = next(lines); say(relaymesh='done', id=l['id'], value='x' * 2_000_000); time.sleep(60)""",
        """l = next(lines)\nwhile True: os.write(1, b'x' * 65536)""",
    ],
)
def test_garbage_is_invalid(tmp_path: Path, text: str) -> None:
    limits = Limits(result_bytes_max=1_000_000, time_s=20, grace_s=0.1)
    got = played(program(text, tmp_path, limits=limits), once(1))
    assert isinstance(got, Failure)
    assert (got.code, got.final) == ("invalid", True)


def test_lines_that_are_no_forms_and_unknown_ids_do_no_harm(tmp_path: Path) -> None:
    text = "for l in lines:\n print('hello'); print('{}'); say(relaymesh='done', id='other', value=2)\n"
    text += " say(relaymesh='progress', id='other', text='x'); say(relaymesh='done', id=l['id'], value=1)\n"
    events: list[Event] = []
    assert played(program(text, tmp_path), once(1, events)) == Done(b"1")
    assert Text("hello", "stdout") in events
    assert not any(isinstance(event, Progress) for event in events)


def test_a_wrong_form_of_one_work_does_not_touch_another(tmp_path: Path) -> None:
    text = "a = next(lines); b = next(lines)\nfor l in (a, b):\n"
    text += " if l['work']['content'] == 'bad': say(relaymesh='done', id=l['id'], wrong=1)\n"
    text += " else: say(relaymesh='done', id=l['id'], value='fine')\ntime.sleep(60)\n"

    async def play(worker: Worker) -> Any:
        return await asyncio.gather(once("bad")(worker), once("good")(worker))

    bad, good = played(program(text, tmp_path, parallel=2), play)
    assert bad.code == "invalid"
    assert good == Done(b'"fine"')


def test_a_cancelled_work_leaves_the_process_to_the_others(tmp_path: Path) -> None:
    async def play(worker: Worker) -> Any:
        first = asyncio.ensure_future(once(None)(worker))
        await asyncio.sleep(0)
        while not marks_alive(worker.mark):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = list(marks_alive(worker.mark).values())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return before

    played(function("stuck_softly", tmp_path, limits=Limits(grace_s=3)), play)


def test_a_secret_in_a_result_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-0123456789")
    worker = program("for l in lines: say(relaymesh='done', id=l['id'], value=os.environ['T'])", tmp_path)

    def made() -> Worker:
        found = worker()
        found.command = Command(argv=found.command.argv, secrets={"T": "env:CANARY"})
        return found

    got = played(made, once(1))
    assert got.reason == "the output holds the value of the secret T"
