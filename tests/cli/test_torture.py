"""torture: a short one passes, a broken one says so, and nothing of yours is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from relaymesh.testing.torture import child, torture
from relaymesh.testing.torture.plan import DEEDS, cycles
from relaymesh.testing.torture.torture import Settings, Torture
from tests.cli.running import Cli, command, environment, piped

PROMISED = ("lost", "phantom", "disorder", "early", "token", "stale", "attempts", "twice", "came_back")


SEED = "8"
"""Of its first twelve cycles, which are always done, more than five are kills."""


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes whose stderr is a file below the folder: our workers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if str(entry.readlink()).startswith(str(folder)):
                found.append(entry.parent.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_short_torture_breaks_no_promise(tmp_path: Path) -> None:
    """Promises 1, 2, 3, 4, 5 and 8: over kills, pauses and restarts of real processes."""
    began = time.monotonic()
    place = tmp_path / "tried"
    ran = piped("torture", "--minutes", "0.15", "--seed", SEED, "--data", str(place), "--json")
    told = json.loads(ran.out.splitlines()[-1])
    assert ran.err == ""
    assert (told["broken"], told["failures"]) == ([], [])
    assert {rule: told[rule] for rule in PROMISED} == dict.fromkeys(PROMISED, 0)
    assert (ran.code, told["verdict"], told["kept"]) == (0, "passed", None)
    assert told["kills"] > 5
    assert told["stops"] >= 1
    assert told["restarts"] >= 1
    assert told["messages"] > 500
    assert told["recovery_ms"] >= told["recovery_ms_p50"] > 0
    assert not place.exists(), "what passed is cleared away"
    assert time.monotonic() - began < 55
    assert processes_of(tmp_path) == []


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_gives_the_verdict_so_far_and_leaves_no_worker(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("torture", "--minutes", "5", "--json", "--keep", "--data", str(tmp_path / "tried")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        ledgers = tmp_path / "tried" / "ledgers"
        deadline = time.monotonic() + 30
        while not list(ledgers.glob("0*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    told = json.loads(out)
    assert (process.returncode, err) == (130, "")
    assert (told["interrupted"], told["verdict"]) == (True, "passed")
    assert told["kept"] == str(tmp_path / "tried")
    assert list((ledgers / "round-0").glob("0*")), "--keep keeps the ledgers"
    assert processes_of(tmp_path) == []


def test_a_directory_that_holds_something_is_left_alone(cli: Cli) -> None:
    before = sorted(path.name for path in cli.path.iterdir())
    ran = cli.json("torture")
    assert (ran.code, ran.error["code"], ran.out) == (8, "CONFLICT", "")
    assert "--on-existing-data" in ran.error["hint"]
    assert sorted(path.name for path in cli.path.iterdir()) == before


def test_memory_has_nothing_to_prove(empty: Cli) -> None:
    ran = empty.json("torture", "--durability", "memory")
    assert (ran.code, ran.error["code"]) == (2, "USAGE")
    assert not empty.path.exists()


def test_the_place_is_named_once(empty: Cli) -> None:
    ran = empty.json("torture", "--data", str(empty.path))
    assert (ran.code, ran.error["code"]) == (2, "USAGE")


def test_a_mesh_that_is_there_keeps_what_is_in_it(cli: Cli) -> None:
    """`--on-existing-data`; a second torture counts from where the first one ended."""
    held = [letter["message_id"] for letter in cli.json("dlq", "list").rows]
    for number in range(2):
        settings = Settings(
            data=cli.path,
            ledgers=cli.path.parent / f"ledgers-{number}",
            seconds=0.1,
            seed=number,
            tag=f"t{number}",
            workers=1,
            cycles_min=2,
        )
        verdict = Torture(settings).run()
        assert (verdict.failures, verdict.found.words) == ([], [])
    assert [letter["message_id"] for letter in cli.json("dlq", "list").rows] == held
    assert "bump-1" in [row["id"] for row in cli.json("inbox", "coder").rows]


def test_a_worker_that_cannot_start_is_the_verdict(
    empty: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    ran = empty("torture", "--seed", "7")
    assert ran.code == 1
    assert "FAILED" in ran.out
    assert "ended by itself (exit code 3): no such module" in ran.out
    assert "relaymesh torture --seed 7 --minutes 1" in ran.out
    assert (empty.path / "ledgers").is_dir(), "what failed is kept"


def test_a_worker_that_is_never_ready_does_not_hold_it_up(
    empty: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho still thinking >&2\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    monkeypatch.setattr(torture, "READY_S_MAX", 0.5)
    ran = empty.json("torture")
    told: dict[str, Any] = json.loads(ran.out)
    assert ran.code == 1
    assert "did not start within 0.5 s" in told["failures"][0]
    assert "still thinking" in told["failures"][0]
    assert processes_of(empty.path) == []


def test_lost_data_is_found_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way from a ledger to the verdict: a receipt for something that no mesh has."""
    settings = Settings(
        data=tmp_path / "mesh",
        ledgers=tmp_path / "ledgers",
        seconds=0.1,
        seed=1,
        tag="t",
        workers=1,
        cycles_min=1,
    )
    settings.ledgers.mkdir()
    lines = "I gone torture-lanes - 1 d 0 1 ok 0 1 1\nR gone 999999999 0 1\n"
    (settings.ledgers / "000000.001").write_text(lines, encoding="ascii")
    verdict = Torture(settings).run()
    assert not verdict.good
    assert verdict.found.broken["lost"] == 1
    assert any("gone in torture-lanes was never delivered" in words for words in verdict.found.words)
    assert (settings.ledgers / "000000.001").exists()


def test_a_seed_is_a_plan_and_a_short_plan_has_everything() -> None:
    first, again, other = cycles(3), cycles(3), cycles(4)
    planned = [next(first) for _ in range(200)]
    assert planned == [next(again) for _ in range(200)]
    assert planned != [next(other) for _ in range(200)]
    assert {cycle.deed for cycle in planned[: len(DEEDS)]} == set(DEEDS)
    assert {cycle.on_a_loop for cycle in planned} == {cycle.small for cycle in planned} == {True, False}


def test_every_deed_of_the_plan_can_be_done() -> None:
    assert all(callable(getattr(Torture, f"_{deed}")) for deed in DEEDS)


def test_sends_slow_down_before_the_disk_is_used_up(tmp_path: Path) -> None:
    settings = Settings(
        data=tmp_path, ledgers=tmp_path, seconds=100, seed=1, tag="t", disk_bytes_max=100_000_000
    )
    run = Torture(settings)
    unused = run._per_second()
    run.verdict.found.messages, run.verdict.disk_bytes = 20_000, 50_000_000
    assert run._per_second() < unused
    run.verdict.disk_bytes = 200_000_000
    assert run._per_second() == torture.PER_SECOND_MIN


def test_a_worker_ends_with_whoever_started_it(tmp_path: Path) -> None:
    worker = child.Child(tmp_path / "stderr")
    try:
        worker.let_go()
        assert worker.wait(30) == 0
    finally:
        worker.end()
    assert not os.path.exists(f"/proc/{worker.pid}")  # noqa: PTH110
