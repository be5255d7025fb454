"""Schedules in a node: one run for each tick, whatever the clock, the power and the process do."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, Mesh
from relaymesh.kernel.moment import iso
from relaymesh.kernel.schedules.commands import SetSchedule
from relaymesh.kernel.schedules.firing import LATE_MS
from relaymesh.kernel.schedules.schedule import Work
from relaymesh.node.schedules import TURN_MAX
from relaymesh.plans.cron import cron_of
from relaymesh.testing import AsyncManualMesh, Keep, ManualClock, ManualMesh, MemoryDisk, PowerLost
from relaymesh.testing.simulation.reading import read_frames
from tests.node.inside import node_of

ACCEPTED, SUBMITTED = 5, 19
WORK = {"workflow": "work", "steps": {"one": {"agent": "coder"}}}


def runs_of(files: Any) -> Counter[str]:
    """How many tasks and messages each tick has, by `schedule/NAME/TICK`."""
    found: Counter[str] = Counter()
    for _, records in read_frames(files):
        for record in records:
            if record[0] == SUBMITTED:
                found[record[6]] += 1
            elif record[0] == ACCEPTED:
                mail = [each for each in record[4] if len(each) > 14 and each[4] == "message"]
                found.update([each[14] for each in mail if each[14]])
    return Counter({mark: count for mark, count in found.items() if mark.startswith("schedule/")})


def files_of(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


# -- power and kills


def put_both(mesh: ManualMesh) -> None:
    mesh.agent("coder")
    mesh.put_schedule("send", "* * * * *", to="coder", content=1, ttl=0)
    mesh.put_schedule("run", "* * * * *", workflow=WORK)


def crashed(cut_after: int, keep: Keep, seed: int) -> tuple[Counter[str], bool]:
    """Four ticks of two schedules, with a power cut after so many changes of the disk; then two more."""
    disk, clock = MemoryDisk(seed=seed), ManualClock()
    disk.cut_power_after(cut_after)
    lost = False
    try:
        mesh = ManualMesh(disk=disk, clock=clock, seed=seed)
        put_both(mesh)
        mesh.advance(100)
        mesh.checkpoint()
        mesh.advance(150)
        mesh.close()
    except PowerLost:
        lost = True
    disk = disk.crash(keep, seed=seed)
    with ManualMesh(disk=disk, clock=clock, seed=seed + 1) as mesh:
        put_both(mesh)  # if the first puts were lost; else nothing is written
        mesh.advance(6 * 60 - (clock.wall_ms() / 1000 - START_S))
        mesh._node.core.sync()
        return runs_of(disk.files()), lost


START_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("keep", list(Keep))
def test_wherever_the_power_goes_each_tick_has_exactly_one_run(keep: Keep) -> None:
    wanted = Counter(
        [
            f"schedule/{name}/{iso(round(START_S + minute * 60) * 1000)}"
            for name in ("send", "run")
            for minute in range(1, 7)
        ]
    )
    cut_after, lost = 0, True
    while lost:
        cut_after += 1
        runs, lost = crashed(cut_after, keep, seed=cut_after)
        assert runs == wanted, f"the power went after {cut_after} changes"
    assert cut_after > 40, "there was something to lose"


CHILD = """
    import os, signal, sys, threading, time
    from relaymesh import Mesh
    from relaymesh.kernel.schedules.commands import SetSchedule
    from relaymesh.kernel.schedules.schedule import Work
    from relaymesh.kernel.envelope import Envelope

    mesh = Mesh(sys.argv[1])
    mesh.agent("coder")
    message = Envelope("", "default/mesh", b"1", ttl_ms=0)
    due = int(time.time()) // 60 * 60_000
    threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    for number in range(300):
        work = Work(to="default/coder", message=message)
        mesh._session.execute(SetSchedule(f"s{number}", "0 0 1 * *", "UTC", work, "default/mesh", due))
        print(number, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_ran_a_tick_once_or_not_yet(tmp_path: Path, seed: int) -> None:
    seconds = random.Random(seed).uniform(0.05, 1.0)
    child = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), str(seconds)]
    ended = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with Mesh(tmp_path) as mesh:
        promised = len(ended.stdout.split())
        node_of(mesh).tend()
        kept = mesh.schedules()
        assert len(kept) >= promised
        assert [each.runs for each in kept] == [1] * len(kept)
        runs = runs_of(files_of(tmp_path))
    assert len(runs) == len(kept)
    assert set(runs.values()) <= {1}


# -- clocks

CRONS = ("0 * * * *", "30 2 * * *", "0 7 * * *", "15 */6 * * *", "0 3 * * MON", "*/20 1-3 * * *")
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")


class Expected:
    """A dumb twin: which ticks of each schedule run, by the stretches of time that it was told of."""

    def __init__(self, schedules: dict[str, tuple[str, str, str]]) -> None:
        self.schedules = schedules
        self.runs: Counter[str] = Counter()

    def awake(self, since: int, until: int) -> None:
        for name in self.schedules:
            self._ran(name, self._ticks(name, since, until))

    def asleep(self, since: int, until: int) -> None:
        for name, (_, _, missed) in self.schedules.items():
            last = self._ticks(name, since, until)[-1:]
            self._ran(name, [tick for tick in last if missed == "one" or until - tick <= LATE_MS])

    def _ticks(self, name: str, since: int, until: int) -> list[int]:
        cron, found = cron_of(*self.schedules[name][:2]), []
        while (since := cron.after(since)) <= until:
            found.append(since)
        return found

    def _ran(self, name: str, ticks: list[int]) -> None:
        self.runs.update([f"schedule/{name}/{iso(tick)}" for tick in ticks])


@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 27, 5, tzinfo=UTC), datetime(2026, 10, 23, 5, tzinfo=UTC)]
)
def test_a_thousand_schedules_and_a_clock_that_jumps(start: datetime) -> None:
    """Over days on which clocks go forward, and back: suspends, wall clocks that are set, and downtime."""
    schedules = {
        f"s{number}": (CRONS[number % 6], ZONES[number // 6 % 4], ("one", "none")[number // 24 % 2])
        for number in range(1_000)
    }
    disk, clock, expected = MemoryDisk(), ManualClock(start), Expected(schedules)
    mesh = ManualMesh(disk=disk, clock=clock, durability="batched")
    mesh.agent("coder")
    for name, (cron, zone, missed) in schedules.items():
        mesh.put_schedule(name, cron, tz=zone, missed=missed, to="coder", ttl=0)  # type: ignore[arg-type]

    def now() -> int:
        return mesh._node.time.now()

    def wake(hours: float) -> None:
        since = now()
        mesh.advance(hours * 3_600)
        expected.awake(since, now())

    wake(20)
    since = now()
    clock.suspend(2.5 * 86_400)
    mesh.advance()
    expected.asleep(since, now())
    wake(3)
    clock.jump_wall(-3 * 86_400)  # mesh time does not go back, and no tick comes again
    wake(2)
    since = now()
    mesh.close()
    clock.jump_wall(9 * 86_400)
    mesh = ManualMesh(disk=disk, clock=clock, durability="batched")
    mesh.advance()
    expected.asleep(since, now())
    wake(26)
    mesh.close()
    assert runs_of(disk.files()) == expected.runs
    assert set(expected.runs.values()) == {1}
    assert len({mark.split("/")[1] for mark in expected.runs}) > 900


def test_a_thousand_ticks_of_one_moment_share_their_syncs() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    mesh = ManualMesh(disk=disk, clock=clock)
    mesh.agent("coder")
    for number in range(1_000):
        mesh.put_schedule(f"s{number}", "0 12 * * *", to="coder")
    syncs: list[str] = []
    enter = disk.enter

    def counted(call: str, name: str) -> Any:
        if call == "sync":
            syncs.append(name)
        return enter(call, name)

    vars(disk)["enter"] = counted
    mesh.advance(12 * 3_600)
    assert mesh.stats().mailboxes["default/coder"].pending == 1_000
    assert len([name for name in syncs if name.startswith("journal/")]) < 3 * 1_000 // TURN_MAX
    mesh.close()


# -- what a tick runs


def test_a_workflow_without_a_version_is_the_one_put_last() -> None:
    mesh = ManualMesh()
    mesh.agent("a"), mesh.agent("b")
    for agent in ("a", "b"):
        mesh.put_workflow({"workflow": "work", "steps": {"one": {"agent": agent}}})
        if agent == "a":
            mesh.put_schedule("last", "0 * * * *", workflow="work")
            mesh.put_schedule("fixed", "0 * * * *", workflow="work@1")
            mesh.advance(3_600)
    mesh.advance(3_600)
    tasks = {mesh.schedule(name).last_run: name for name in ("last", "fixed")}
    agents = {tasks[id]: step.agent for id in tasks for step in mesh.task(str(id)).show().steps}
    assert agents == {"last": "b", "fixed": "a"}
    assert [mesh.schedule(name).runs for name in ("last", "fixed")] == [2, 2]


def test_a_tick_waits_for_its_workflow_and_says_so() -> None:
    mesh = ManualMesh()
    mesh.agent("coder")
    mesh.put_workflow(WORK)
    mesh.put_schedule("s", "*/5 * * * *", workflow="work")
    mesh.remove_workflow("work")
    mesh.advance(5 * 60 + 10)
    kept = mesh.schedule("s")
    assert (kept.runs, kept.tries) == (0, 4)
    assert "NOT_FOUND: there is no workflow 'work'" in (kept.waiting or "")
    mesh.put_workflow(WORK)
    mesh.advance(60)
    kept = mesh.schedule("s")
    assert (kept.runs, kept.waiting, kept.skipped) == (1, None, 0)


def test_a_tick_waits_for_room_and_is_overtaken() -> None:
    mesh = ManualMesh()
    coder = mesh.agent("coder", capacity=1)
    mesh.put_schedule("s", "*/5 * * * *", to="coder", content={"go": True}, ttl=0)
    mesh.advance(5 * 60)
    mesh.advance(11 * 60)
    kept = mesh.schedule("s")
    assert (kept.runs, "MAILBOX_FULL" in (kept.waiting or "")) == (1, True)
    with coder.receive(timeout=0) as delivery:
        assert delivery.content == {"go": True}
        assert delivery.trace == "schedule/s/2026-01-01T00:05:00.000Z"
    mesh.advance(60)
    kept = mesh.schedule("s")
    assert (kept.runs, kept.skipped, kept.waiting) == (2, 1, None)
    assert "MAILBOX_FULL" in (kept.reason or "")


def test_an_hour_is_slept_through_and_each_tick_comes_in_its_second() -> None:
    mesh = ManualMesh(seed=3)
    seen: list[str] = []
    mesh.agent("coder").handle(lambda _: seen.append(f"{mesh.now:%H:%M:%S}"))
    mesh.put_schedule("s", "*/15 * * * *", to="coder")
    assert mesh.advance(3_600) == 4
    assert seen == ["00:15:00", "00:30:00", "00:45:00", "01:00:00"]


def test_an_async_mesh_fires_too() -> None:
    async def play() -> int:
        async with AsyncManualMesh() as mesh:
            await mesh.agent("coder")
            await mesh.put_schedule("s", "*/15 * * * *", to="coder")
            await mesh.advance(3_600)
            return (await mesh.schedule("s")).runs

    assert asyncio.run(play()) == 4


def test_housekeeping_of_an_async_mesh_fires_too(tmp_path: Path) -> None:
    async def play() -> Any:
        async with AsyncMesh(tmp_path) as mesh:
            coder = await mesh.agent("coder")
            await mesh.put_workflow(WORK)
            due_long_ago = SetSchedule("s", "0 7 1 * *", "UTC", Work("work"), "default/mesh", 1)
            await mesh._session.execute(due_long_ago)
            delivery = await coder.receive(timeout=10)
            await delivery.finish("done")
            return await mesh.task(str((await mesh.schedule("s")).last_run)).result(10)

    assert asyncio.run(play()) == "done"
    assert list(runs_of(files_of(tmp_path)).values()) == [1]
