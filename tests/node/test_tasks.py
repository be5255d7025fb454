"""Tasks of a node: the store says what the kernel said, and both together know every task of a week."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh.errors import Conflict, InvalidValue, StoreLagging
from relaymesh.kernel.commands import OpenMailbox
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.tasks import looks
from relaymesh.kernel.tasks.commands import Finish, Submit
from relaymesh.kernel.tasks.known import Known
from relaymesh.kernel.tasks.looks import TasksPart
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.views import TaskView, task_view
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import STORE_FILE, rebuild_store
from relaymesh.node.settings import MeshSettings
from relaymesh.node.tasks import LOOKS_MAX
from relaymesh.store import Projection
from relaymesh.store.tasks import cursor_of, hash_of
from relaymesh.wire.tasks import FindTasks
from tests.node.desk import WORKERS, Chance, Desk, plan, rows, step
from tests.node.doubles import LIGHT

DAY = 86_400
ONE = plan(step("only"))
MEMORY = MeshSettings(durability="memory", journal=LIGHT)


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_what_the_kernel_showed_also_after_restarts_and_rebuilt(seed: int, tmp_path: Path) -> None:
    desk = Desk(tmp_path / "mesh")
    chance = Chance(desk, seed)
    older = tmp_path / "older.db"
    shutil.copyfile(tmp_path / "mesh" / STORE_FILE, older)
    for turn in range(5):
        for _ in range(60):
            chance.act()
        desk.check()
        if turn == 2:
            desk.node.checkpoint()
        desk.restart(older if turn % 2 else None, force=turn % 3 == 0)
        desk.check()
        if turn == 1:
            desk.close()
            shutil.copyfile(tmp_path / "mesh" / STORE_FILE, older)
            desk.open()
    statuses = {each.task.status for each in desk.seen.values()}
    assert len(desk.seen) > 30
    assert len(statuses) >= 4, statuses
    desk.close()
    followed = rows(tmp_path / "mesh" / STORE_FILE)
    rebuild_store(RealDisk(tmp_path / "mesh"), tmp_path / "mesh" / STORE_FILE)
    assert rows(tmp_path / "mesh" / STORE_FILE) == followed


def test_without_a_store_nothing_is_collected() -> None:
    desk = Desk(None, MEMORY)
    desk.run(ONE)
    assert desk.node.core.kernel.state.board.moved is None
    desk.close()


def test_what_goes_to_the_store_holds_nothing_of_the_kernel(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    offered: list[Projection] = []
    inner = desk.node.core._project
    assert inner is not None

    def project(batch: list[Projection], events: int) -> None:
        offered.extend(batch)
        inner(batch, events)

    desk.node.core._project = project
    desk.run(ONE)
    views = [view for projection in offered for view in (*projection.tasks, *projection.steps)]
    assert views
    plain = (str, int, bool, bytes, type(None))
    assert all(type(getattr(view, name)) in plain for view in views for name in view.__struct_fields__)
    desk.close()


# -- keys


def test_a_key_is_known_for_7_days_after_its_end_and_not_a_moment_longer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = desk.run(ONE)
    desk.pass_time(1)
    board = desk.node.core.kernel.state.board
    assert board.keys.find("default", "key") is None, "the store has it"
    assert desk.node.store is not None
    held = desk.node.store.find_key("default", "key", desk.node.time.now())
    assert held is not None
    assert (held.task, held.request, held.status) == (first, b"request of key", "SUCCESS")
    assert board.keys.forgotten == held.through
    assert desk.submit(ONE).duplicate
    assert desk.submit(ONE).task == first
    with pytest.raises(Conflict, match="another request"):
        desk.submit(ONE, request=b"other")
    desk.restart()
    assert desk.submit(ONE).task == first
    desk.pass_time(7 * DAY - 60)
    assert desk.submit(ONE).task == first
    desk.pass_time(60)
    assert not desk.submit(ONE).duplicate
    desk.close()


def test_keys_of_namespaces_are_apart(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.run(ONE)
    desk.pass_time(1)
    assert desk.node.store is not None
    assert desk.node.store.find_key("team", "key", desk.node.time.now()) is None
    assert desk.node.store.find_key("default", "other", desk.node.time.now()) is None
    desk.close()


def test_a_run_again_takes_the_key_and_the_earlier_task_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = desk.submit(plan(step("only", timeout_ms=1_000))).task
    desk.pass_time(2)
    second = desk.submit(ONE, again=True)
    assert not second.duplicate
    store = desk.node.store
    assert store is not None
    assert [(each.task, each.key, each.status) for each in store.tasks().tasks] == [
        (second.task, "key", "PENDING"),
        (first, "key", "TIMEOUT"),
    ]
    held = store.find_key("default", "key", desk.node.time.now())
    assert held is not None
    assert (held.task, held.status) == (first, "TIMEOUT")
    (token,) = desk.take()
    desk.do(Finish(token, b"7"))
    held = store.find_key("default", "key", desk.node.time.now())
    assert held is not None
    assert (held.task, held.status) == (second.task, "SUCCESS")
    (row,) = store._writer.execute("SELECT result_ref, result_hash, result_hash_algo FROM idempotency")
    assert row == (second.task, hash_of(b"7"), "sha256")
    desk.close()


def test_a_key_that_is_forgotten_while_the_store_is_asked_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    first = desk.run(ONE)
    store, board = desk.node.store, desk.node.core.kernel.state.board
    assert store is not None
    looks: list[str] = []
    command = Submit("fresh", ONE, b"null", "key", b"request of key", "default/owner")
    real = store.find_key
    applied = store._applied
    store._applied = 0

    def racing(namespace: str, key: str, now_ms: int) -> object:
        looks.append(key)
        if len(looks) > 1:
            return real(namespace, key, now_ms)
        store._applied = applied
        board.forget(applied, now_ms)  # between the look and the decision
        return None

    monkeypatch.setattr(store, "find_key", racing)
    assert desk.node.tasks.submit(command).task == first
    assert len(looks) == 2
    desk.close()


def test_a_store_that_stays_behind_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    desk.run(ONE)
    desk.pass_time(1)
    looks = []
    monkeypatch.setattr(desk.node.store, "_applied", 0)
    monkeypatch.setattr(desk.node.store, "find_key", lambda *of: looks.append(of))
    with pytest.raises(StoreLagging, match="does not know yet"):
        desk.submit(ONE)
    assert len(looks) == LOOKS_MAX
    monkeypatch.undo()
    desk.close()


def test_a_mesh_in_memory_forgets_old_keys_and_takes_new_ones() -> None:
    desk = Desk(None, MEMORY)
    first = desk.run(ONE)
    desk.pass_time(DAY)
    assert desk.submit(ONE).task == first
    desk.pass_time(7 * DAY)
    assert not desk.submit(ONE).duplicate
    assert not desk.submit(ONE, "another").duplicate
    desk.close()


# -- looking


def test_a_task_is_shown_by_the_kernel_and_later_by_the_store(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tasks, board = desk.node.tasks, desk.node.core.kernel.state.board
    assert tasks.show("unknown") is None
    id = desk.submit(plan(step("first"), step("second", 0))).task
    live = tasks.show(id)
    assert live is not None
    assert [each.waiting for each in live.steps] == ["", "needs"]
    for _ in range(2):
        (token,) = desk.take()
        desk.do(Finish(token))
    over = tasks.show(id)
    assert id in board.over
    desk.pass_time(1)
    assert id not in board.over
    assert tasks.show(id) == over
    assert over is not None
    assert over.task.status == "SUCCESS"
    desk.close()


@pytest.mark.parametrize("looks_max", [1, 2, 2_000])
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_show_every_task_once_whoever_knows_it(
    limit: int, looks_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "LOOKS_MAX", looks_max)
    desk = Desk(tmp_path)
    ids = [desk.run(plan(step("only"), name=("build", "review")[i % 2]), f"old-{i}") for i in range(5)]
    desk.pass_time(1)
    ids += [desk.run(ONE, f"over-{i}") for i in range(2)]
    ids += [desk.submit(ONE, f"live-{i}").task for i in range(3)]
    desk.node.core.sync()

    def pages(**wanted: object) -> list[str]:
        found: list[str] = []
        before: str | None = None
        while True:
            page = desk.node.tasks.list(limit=limit, before=before, **wanted)  # type: ignore[arg-type]
            assert 0 < len(page.tasks) <= limit
            found += [view.task for view in page.tasks]
            before = page.next
            if before is None:
                return found

    assert pages() == ids[::-1]
    assert pages(namespace="default") == ids[::-1]
    assert pages(status="SUCCESS") == ids[:7][::-1]
    assert pages(status="PENDING") == ids[7:][::-1]
    assert pages(workflow="review") == [ids[3], ids[1]]
    assert pages(workflow="build", status="SUCCESS", namespace="default") == [ids[4], ids[2], ids[0]]
    assert desk.node.tasks.list(namespace="team").tasks == []
    desk.close()


@pytest.mark.parametrize("wanted", [{}, {"status": "SUCCESS"}, {"workflow": "other"}, {"before": "oldest"}])
def test_a_page_looks_at_few_tasks_at_a_time_however_many_live(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look holds the lock, and stops the event loop of a server."""
    desk = Desk(None, MEMORY)
    ids = [desk.submit(ONE, f"key-{i}").task for i in range(300)]
    views: list[str] = []
    seen: list[int] = []
    monkeypatch.setattr(looks, "LOOKS_MAX", 50)

    def viewed(task: Task) -> TaskView:
        views.append(task.id)
        return task_view(task)

    monkeypatch.setattr(looks, "task_view", viewed)
    observe, before = desk.node.core.observe, Known.before

    def counted(known: Known, sequence: int | None) -> Iterator[Any]:
        for each in before(known, sequence):
            seen[-1] += 1
            yield each

    def observed(look: Callable[[Kernel], Any]) -> Any:
        seen.append(0)
        return observe(look)

    monkeypatch.setattr(Known, "before", counted)
    monkeypatch.setattr(desk.node.core, "observe", observed)
    expected = ids[:-11:-1] if not wanted else []
    if "before" in wanted:
        expected, wanted = ids[4::-1], {"before": cursor_of(sequence_in(desk, ids[5]))}
    page = desk.node.tasks.list(limit=10, **wanted)
    assert [view.task for view in page.tasks] == expected
    assert len(views) <= 11
    assert max(seen) <= 50
    assert sum(seen) <= (300 if "status" in wanted or "workflow" in wanted else 11)
    desk.close()


def sequence_in(desk: Desk, task: str) -> int:
    return desk.node.core.kernel.state.board.tasks[task].sequence


def test_a_task_that_ends_and_is_forgotten_while_a_page_is_read_is_not_shown_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    task = desk.submit(ONE, "key").task
    desk.node.core.sync()
    store = desk.node.store
    assert store is not None
    read = store.tasks

    def reads_before_it_ends(**wanted: Any) -> Any:
        page = read(**wanted)
        for token in desk.take():
            desk.do(Finish(token))
        desk.node.core.sync()
        desk.do(OpenMailbox("default/any"))
        desk.node.core.kernel.state.board.forget(store.applied, desk.node.core.time.now())
        return page

    monkeypatch.setattr(store, "tasks", reads_before_it_ends)
    listing = desk.node.tasks.listing(FindTasks(status="PENDING"))
    listing.add(TasksPart([]))  # the kernel did not know it as pending
    assert desk.node.tasks.page(listing).tasks == []
    assert desk.node.tasks.show(task).task.status == "SUCCESS"  # type: ignore[union-attr]
    assert [view.task for view in desk.node.tasks.list().tasks] == [task]
    desk.close()


def test_a_store_that_is_behind_does_not_show_an_old_state(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    ids = [desk.submit(ONE, f"key-{i}").task for i in range(4)]
    desk.node.core._project = lambda _batch, _events: None  # the store hangs from here on
    for token in desk.take():
        desk.do(Finish(token))
    tasks = desk.node.tasks
    assert tasks.list(status="PENDING").tasks == []
    assert tasks.list(status="PENDING", limit=1).tasks == []
    assert [view.task for view in tasks.list(status="SUCCESS", limit=2).tasks] == [ids[3], ids[2]]
    desk.close()


@pytest.mark.parametrize("cursor", ["", "x", "é", "AAAAAAAAAAB", "AAAAAAAAAAA=", "A" * 12])
def test_a_cursor_that_is_none_is_refused(cursor: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(InvalidValue, match="page of tasks"):
        desk.node.tasks.list(before=cursor)
    desk.close()


# -- after a week


def test_ended_tasks_go_after_7_days_at_the_start_and_daily(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    old = desk.run(ONE, "old")
    live = desk.submit(plan(step("only", mailbox=WORKERS[1])), "live").task
    for day in range(6):
        desk.pass_time(DAY)
        assert desk.node.tasks.show(old) is not None, day
    young = desk.run(ONE, "young")
    desk.pass_time(2 * DAY)
    desk.do(OpenMailbox("default/any"))  # without threads a purge comes with the next record
    assert desk.node.tasks.show(old) is None, "a node that runs on purges daily"
    desk.clock.advance(6 * DAY)
    desk.restart()
    assert desk.node.tasks.show(young) is None, "and at its start"
    shown = desk.node.tasks.show(live)
    assert shown is not None
    assert [view.task for view in desk.node.tasks.list().tasks] == [live]
    desk.close()
    left = rows(tmp_path / STORE_FILE)
    assert [len(left[table]) for table in ("tasks", "steps", "idempotency")] == [1, 1, 0]


def test_a_node_that_is_restarted_every_few_hours_purges_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    old = desk.run(ONE)
    for _ in range(22):
        desk.clock.advance(8 * 3_600)
        desk.restart()
    assert desk.node.tasks.show(old) is None
    desk.close()


def test_a_store_that_is_built_from_a_checkpoint_has_every_live_task_whole(tmp_path: Path) -> None:
    settings = MeshSettings(journal=LIGHT, archive_days=1)
    desk = Desk(tmp_path, settings)
    live = desk.submit(plan(step("first"), step("second", 0), step("third", 1))).task
    (token,) = desk.take()
    desk.do(Finish(token, b"1"))
    for _ in range(3):
        desk.restart()
        desk.node.checkpoint()
    desk.look()
    desk.close()
    shutil.rmtree(tmp_path / "archive")
    for file in tmp_path.glob(STORE_FILE + "*"):
        file.unlink()
    desk.open()
    desk.check()
    store = desk.node.store
    assert store is not None
    assert [each.name for each in store.steps(live)] == ["first", "second", "third"]
    desk.close()
