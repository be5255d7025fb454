"""`ManualMesh`: what users test their agents with keeps its own promises."""

from __future__ import annotations

import re
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import relaymesh.testing
from relaymesh import Empty, InvalidValue, MailboxFull, NoAnswer, Retry
from relaymesh.testing import Keep, ManualClock, ManualMesh, MemoryDisk


def test_the_example_in_the_package_s_docstring_runs() -> None:
    text = relaymesh.testing.__doc__ or ""
    blocks = re.findall(r"\n\n((?:    .*\n|\n)+)", text)
    (example,) = [block for block in blocks if "def test_" in block]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_it_needs_no_threads() -> None:
    before = threading.active_count()
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        coder.handle(lambda delivery: mesh.advance(60))
        planner.send("coder", 1)
        mesh.advance(120)
        assert threading.active_count() == before


def test_a_day_of_retries_takes_no_time() -> None:
    began = time.perf_counter()
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=100)
        coder.handle(_always_late)
        planner.send("coder", 1, ttl=0)
        assert mesh.advance(86_400) == 101
    assert time.perf_counter() - began < 5


def _always_late(delivery: Any) -> None:
    raise Retry(after=600)


def test_receive_lets_time_pass_only_as_far_as_it_must() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        began = mesh.now
        planner.send("coder", 1, delay_ms=3000)
        assert coder.receive(timeout=5).content == 1
        assert mesh.now - began == timedelta(seconds=3)
        with pytest.raises(Empty):
            coder.receive(timeout=5)
        assert mesh.now - began == timedelta(seconds=8)


def test_receive_without_a_timeout_waits_for_what_is_to_come_but_not_for_ever() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, delay_ms=3_600_000)
        delivery = coder.receive()
        assert delivery.content == 1
        delivery.ack()
        with pytest.raises(Empty):
            coder.receive()


def test_time_moves_through_every_event_in_order() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        began, seen = mesh.now, []

        @coder.handle
        def work(delivery: Any) -> None:
            seen.append((delivery.content, (mesh.now - began).total_seconds()))
            if delivery.content == "slow":
                mesh.advance(4)

        for n, delay in enumerate((5000, 1000, 3000)):
            planner.send("coder", n, delay_ms=delay)
        planner.send("coder", "slow", delay_ms=500)
        assert mesh.advance(10) == 4
        assert seen == [("slow", 0.5), (1, 4.5), (2, 4.5), (0, 5.0)]
        assert (mesh.now - began).total_seconds() == 10


def test_a_handler_says_how_long_it_takes_and_keeps_its_lease() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        coder.handle(lambda delivery: mesh.advance(600))
        planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
        assert mesh.advance() == 3
        stats = mesh.stats().mailboxes["default/coder"]
        assert (stats.acked, stats.delivered, stats.retried) == (3, 3, 0)


def test_ask_lets_handlers_answer() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")

        @coder.handle
        async def work(delivery: Any) -> None:
            if delivery.attempt == 1:
                raise Retry(after=20)
            coder.answer(delivery, delivery.content * 2)

        assert planner.ask("coder", 21, timeout=60).content == 42
        with pytest.raises(NoAnswer):
            planner.ask("coder", 21, timeout=10)


def test_a_sender_that_waits_for_room_lets_the_handlers_make_it() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", capacity=1)
        planner.send("coder", 1)
        with pytest.raises(MailboxFull):
            planner.send("coder", 2, timeout=10)
        coder.handle(lambda delivery: None)
        planner.send("coder", 2, timeout=10)
        mesh.advance()
        assert mesh.stats().mailboxes["default/coder"].acked == 2


def test_the_same_seed_goes_the_same_way() -> None:
    def run(seed: int) -> list[Any]:
        with ManualMesh(seed=seed) as mesh:
            planner, coder = mesh.agent("planner"), mesh.agent("coder")
            seen: list[Any] = []

            @coder.handle
            def work(delivery: Any) -> None:
                seen.append((delivery.id, mesh.now))
                raise ValueError

            planner.send("coder", 1)
            mesh.advance(60)
            return seen

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_it_survives_what_the_disk_survives() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    mesh = ManualMesh(disk=disk, clock=clock)
    planner, _ = mesh.agent("planner"), mesh.agent("coder")
    receipt = planner.send("coder", "synced before the power went")
    disk = disk.crash(Keep.NOTHING)
    with ManualMesh(disk=disk, clock=clock) as mesh:
        assert mesh.agent("coder").receive(timeout=0).id == receipt.id


def test_it_lives_in_a_directory_too(tmp_path: Path) -> None:
    for n in range(2):
        with ManualMesh(tmp_path) as mesh:
            coder = mesh.agent("coder")
            assert len(coder.peek()) == n
            coder.send("coder", n)
            assert mesh.stats().store_lag == 0


def test_run_is_advance() -> None:
    with ManualMesh() as mesh:
        began = mesh.now
        mesh.run(30)
        mesh.run()
        assert mesh.now - began == timedelta(seconds=30)


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_time_does_not_go_back(seconds: float) -> None:
    with ManualMesh() as mesh, pytest.raises(InvalidValue, match="seconds must lie between 0"):
        mesh.advance(seconds)
    with pytest.raises(ValueError, match="time"):
        ManualClock().advance(seconds)


def test_a_suspended_clock_sleeps_and_a_jumping_one_does_not() -> None:
    clock = ManualClock()
    wall, elapsed, awake = clock.wall_ms(), clock.elapsed_ns(), clock.awake_ns()
    clock.suspend(60)
    assert (clock.wall_ms() - wall, clock.elapsed_ns() - elapsed, clock.awake_ns() - awake) == (
        60_000,
        60_000_000_000,
        0,
    )
    clock.jump_wall(-60)
    assert (clock.wall_ms() - wall, clock.elapsed_ns() - elapsed) == (0, 60_000_000_000)
