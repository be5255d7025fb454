"""Steps in the pool of threads: a chain changes no thread, and nothing that a thread keeps is lost."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh
from relaymesh.sdk.pool import WorkerPool
from tests.waiting import until

COUNT = 12
CHAIN: dict[str, Any] = {
    "workflow": "chain",
    "steps": {f"s{n}": {"agent": "a", "needs": [f"s{n - 1}"] if n else [], "input": n} for n in range(COUNT)},
}


def test_a_chain_of_steps_stays_in_one_thread(tmp_path: Path) -> None:
    threads: list[int] = []
    with Mesh(tmp_path) as mesh:

        @mesh.step("a")
        def work(delivery: Any) -> Any:
            threads.append(threading.get_ident())
            return delivery.input

        assert mesh.submit(CHAIN).result(10) == COUNT - 1
    assert len(threads) == COUNT
    changes = sum(one != other for one, other in pairwise(threads))
    assert changes <= COUNT // 3, "a commit of another thread may hand a step over, now and then"


def test_a_step_after_one_that_was_settled_early_runs_meanwhile(tmp_path: Path) -> None:
    second = threading.Event()
    with Mesh(tmp_path) as mesh:

        @mesh.step("a")
        def work(delivery: Any) -> Any:
            if delivery.input == 0:
                delivery.finish("early")
                assert second.wait(10), "the next step waited for a handler that goes on"
            second.set()
            return delivery.input

        assert mesh.submit(CHAIN).result(10) == COUNT - 1


def test_a_step_that_a_thread_kept_for_itself_goes_back_when_the_mesh_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, closing = threading.Event(), threading.Event()
    ran: list[int] = []
    original = WorkerPool._pull_again

    def held_up(pool: WorkerPool, route: Any) -> None:
        if pool._kept:
            kept.set()
            assert closing.wait(10)
        original(pool, route)

    monkeypatch.setattr(WorkerPool, "_pull_again", held_up)
    with Mesh(tmp_path) as mesh:

        @mesh.step("a")
        def work(delivery: Any) -> Any:
            ran.append(delivery.input)
            return delivery.input

        task = mesh.submit(CHAIN)
        assert kept.wait(10)
        pool = mesh._pool
        closer = threading.Thread(target=mesh.close)
        closer.start()
        until(lambda: not pool._kept)
        closing.set()
        closer.join(10)
    assert ran == list(range(len(ran)))
    monkeypatch.undo()
    with Mesh(tmp_path) as mesh:
        delivery = mesh.agent("a").receive(timeout=5)
        assert delivery is not None
        assert (delivery.step, delivery.attempt) == (f"s{len(ran)}", 1)
        assert mesh.task(task.id).show().step("s0").status == "SUCCESS"
