"""Tables of tasks: what is written, looked up, purged, and brought over from an older store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import FormatTooNew
from relaymesh.kernel.dedup import Seen
from relaymesh.kernel.records import EpochStarted
from relaymesh.kernel.tasks.keys import KEY_MS, KeyHeld
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.kernel.token import TOKEN_COUNTER_BITS
from relaymesh.store import Projection, Purged, SqliteStore, schema
from relaymesh.store.key_filter import KeyFilter
from relaymesh.store.queries import QUERIES
from relaymesh.store.schema import migrations
from relaymesh.store.sqlite import FILTERED_KEYS_MAX
from relaymesh.store.tasks import hash_of

TOKEN = 3 << TOKEN_COUNTER_BITS | 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def task(number: int, ended_at: int = -1, *, status: Status = "RUNNING", key: str = "") -> TaskView:
    ended = ended_at >= 0
    return TaskView(
        f"t{number}",
        "build",
        "1",
        status if not ended or status != "RUNNING" else "SUCCESS",
        "default/owner",
        key or f"key-{number}",
        b"digest",
        "trace",
        number,
        number,
        ended_at,
        result=b"[1]" if ended and status in ("RUNNING", "SUCCESS") else None,
        steps_total=2,
        steps_ended=2 if ended else 0,
        sequence=number,
        through=number + 100 if ended else 0,
        cost_micros=1_200_000,
        tokens=3_400,
        cost_micros_max=5_000_000,
        tokens_max=9_000,
        waiting="" if ended else "its budget is used",
        again_of="t0" if ended else "",
    )


def steps(task: TaskView) -> list[StepView]:
    return [
        StepView(task.task, 0, "a", "default/w", "RUNNING", 1, 0, 0, 0, "w-1", TOKEN, 3, 5, 6, 7),
        StepView(
            task.task,
            1,
            "b",
            "default/w",
            "RETRYING",
            2,
            1,
            0,
            99,
            updated_at=8,
            code="x",
            output=b"1",
            uncertain=True,
        ),
    ]


def write(store: SqliteStore, *tasks: TaskView) -> None:
    """As one kernel's step."""
    every = [step for each in tasks for step in steps(each)]
    store.project([Projection(store.applied, EpochStarted(1, 1, 1), None, tasks, every)])


# -- writing


def test_a_task_and_its_steps_are_read_as_they_were_written(store: SqliteStore) -> None:
    write(store, task(1), task(2, 50))
    assert store.task("t1") == task(1)
    assert store.task("t2") == task(2, 50)
    assert store.task("t3") is None
    assert store.steps("t1") == steps(task(1))
    assert store.steps("t3") == []


def test_a_token_is_stored_as_clients_see_it_and_what_is_not_there_is_null(store: SqliteStore) -> None:
    write(store, task(1))
    asked = "SELECT step_id, lease_owner, lease_token, lease_epoch, next_retry_at_ms, ended_at_ms FROM steps"
    assert store._writer.execute(asked).fetchall() == [
        ("t1/a", "w-1", "0.3.7", 3, None, None),
        ("t1/b", None, None, None, 99, None),
    ]


def test_the_last_state_within_a_batch_is_the_one_that_stays(store: SqliteStore) -> None:
    first, last = task(1), task(1, 9, status="FAILED")
    batch = [Projection(i, EpochStarted(1, 1, 1), None, [each]) for i, each in enumerate((first, last))]
    store.project(batch)
    store.project(batch)  # again: nothing changes
    assert store.task("t1") == last


def test_more_tasks_than_one_statement_holds_all_arrive(store: SqliteStore) -> None:
    tasks = [task(number, 5) for number in range(1_234)]
    write(store, *tasks)
    assert store.tasks(limit=2_000).tasks == tasks[::-1]
    assert len(store._writer.execute("SELECT 1 FROM steps").fetchall()) == 2 * len(tasks)
    assert store._writer.cache_stats()["too_big"] == 0


def test_a_failed_transaction_writes_no_task(store: SqliteStore) -> None:
    broken = [*steps(task(1)), StepView("t1", 2, "c", "w", object())]  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.project([Projection(0, EpochStarted(1, 1, 1), None, [task(1)], broken)])
    assert (store.applied, store.task("t1"), store.steps("t1")) == (0, None, [])


# -- keys


def test_a_key_has_what_its_task_led_to_and_the_hash_of_the_result(store: SqliteStore) -> None:
    write(store, task(1, 50))
    assert store.find_key("default", "key-1", 51) == KeyHeld("t1", b"digest", "SUCCESS", 50, 101)
    asked = "SELECT result_ref, result_hash, result_hash_algo, status FROM idempotency"
    assert store._writer.execute(asked).fetchall() == [("t1", hash_of(b"[1]"), "sha256", "SUCCESS")]


def test_a_key_of_a_live_task_is_the_kernels(store: SqliteStore) -> None:
    write(store, task(1))
    assert store.find_key("default", "key-1", 51) is None


def test_a_key_is_known_for_7_days_and_not_a_millisecond_longer(store: SqliteStore) -> None:
    write(store, task(1, 50))
    assert store.find_key("default", "key-1", 50 + KEY_MS - 1) is not None
    assert store.find_key("default", "key-1", 50 + KEY_MS) is None


@pytest.mark.parametrize("read_at_most", [FILTERED_KEYS_MAX, 2])
def test_a_key_is_known_before_and_after_the_store_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, read_at_most: int
) -> None:
    monkeypatch.setattr("relaymesh.store.sqlite.FILTERED_KEYS_MAX", read_at_most)
    for first in (0, 10):
        store = SqliteStore(path)
        write(store, *[task(number, 50) for number in range(first, first + 10)])
        for number in range(first + 10):
            assert store.find_key("default", f"key-{number}", 51) is not None
        assert store.find_key("other", "key-1", 51) is None
        assert store.find_key("default", "key-20", 51) is None
        store.close()


@given(st.sets(st.tuples(st.text(), st.text()), max_size=50), st.sets(st.tuples(st.text(), st.text())))
def test_the_filter_has_every_key_that_was_added_and_few_others(
    added: set[tuple[str, str]], others: set[tuple[str, str]]
) -> None:
    keys = KeyFilter()
    keys.add(added)
    assert all(keys.may_have(*each) for each in added)
    assert sum(keys.may_have(*each) for each in others - added) <= 1


@pytest.mark.parametrize("at_once", [True, False])
def test_a_key_that_is_used_again_names_the_last_task_that_ended(store: SqliteStore, at_once: bool) -> None:
    first, live = task(1, 50, status="FAILED", key="k"), task(2, key="k")
    over = task(2, 60, key="k")
    if at_once:
        write(store, live, first)  # whatever the order they come in
    else:
        write(store, task(1, key="k"))
        write(store, first)
        write(store, live)
    held = store.find_key("default", "k", 70)
    assert held is not None
    assert (held.task, held.status) == ("t1", "FAILED")
    write(store, over)
    held = store.find_key("default", "k", 70)
    assert held is not None
    assert (held.task, held.status) == ("t2", "SUCCESS")
    assert [each.task for each in store.tasks().tasks] == ["t2", "t1"]


def test_a_key_is_unique_among_live_tasks_and_a_wrong_row_gives_way(store: SqliteStore) -> None:
    write(store, task(1, key="k"))
    write(store, task(2, key="k"))  # the record of the first one's end was set aside
    assert [each.task for each in store.tasks().tasks] == ["t2"]


# -- lists


def test_pages_follow_each_other(store: SqliteStore) -> None:
    write(store, *[task(number) for number in range(5)])
    first = store.tasks(limit=2)
    second = store.tasks(limit=2, before=first.next)
    third = store.tasks(limit=2, before=second.next)
    assert [[each.task for each in page.tasks] for page in (first, second, third)] == [
        ["t4", "t3"],
        ["t2", "t1"],
        ["t0"],
    ]
    assert third.next is None


@pytest.mark.parametrize(
    "wanted", [{}, {"namespace": "default"}, {"status": "FAILED"}, {"workflow": "build"}], ids=str
)
def test_a_list_goes_along_an_index_and_sorts_nothing(store: SqliteStore, wanted: dict[str, str]) -> None:
    conditions = "".join([f" AND {name} = '{value}'" for name, value in wanted.items()])
    text = QUERIES["tasks"].replace("{columns}", "task_id").replace("{conditions}", conditions)
    found = str(store._writer.execute("EXPLAIN QUERY PLAN " + text, (9, 9)).fetchall())
    assert f"idx_tasks_{next(iter(wanted), 'sequence')}" in found
    assert "TEMP B-TREE" not in found
    assert "SCAN" not in found


# -- purging


def test_ended_tasks_go_after_7_days_and_live_ones_stay(store: SqliteStore) -> None:
    write(store, task(1, 50), task(2, 51), task(3))
    assert store.purge(49 + KEY_MS) == Purged()
    assert store.purge(50 + KEY_MS) == Purged(tasks=1, steps=2, idempotency=1)
    assert [each.task for each in store.tasks().tasks] == ["t3", "t2"]
    assert store.purge(100 * KEY_MS) == Purged(tasks=1, steps=2, idempotency=1)
    assert store.task("t3") == task(3)
    assert store.steps("t3") == steps(task(3))


def test_a_purge_of_tasks_in_slices_says_when_there_is_more(store: SqliteStore) -> None:
    write(store, *[task(number, 5) for number in range(7)])
    slices = [store.purge(5 + KEY_MS, 4) for _ in range(4)]
    assert [(each.tasks, each.steps, each.idempotency, each.more) for each in slices] == [
        (2, 4, 4, True),
        (2, 4, 3, True),
        (2, 4, 0, True),
        (1, 2, 0, False),
    ]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("purge_tasks", "idx_tasks_ended_at"),
        ("purge_steps", "idx_tasks_ended_at"),
        ("purge_keys", "idx_idempotency_processed_at"),
    ],
)
def test_a_purge_of_tasks_is_a_range_of_an_index(name: str, index: str, store: SqliteStore) -> None:
    found = [row[3] for row in store._writer.execute("EXPLAIN QUERY PLAN " + QUERIES[name], (5, 5))]
    assert any(index in line for line in found), found
    assert not [line for line in found if line.startswith("SCAN") and "CONSTANT" not in line], found


# -- a store of the version before


def older(path: Path, version: int) -> apsw.Connection:
    """A store as a RelayMesh wrote it that knew so many migrations."""
    connection = apsw.Connection(str(path))
    for migration in migrations()[:version]:
        connection.execute(migration.text)
    connection.pragma("user_version", version)
    return connection


def test_a_store_of_the_version_before_keeps_its_ids_under_another_name(path: Path) -> None:
    connection = older(path, 4)
    connection.execute(
        "INSERT INTO idempotency (sequence, namespace, target, idempotency_key, result_hash, processed_at_ms,"
        " due_at_ms, boundary, sender) VALUES (0, 'default', 'default/a', 'm', x'00', 10, 10, 1, 'default/s')"
    )
    connection.execute("UPDATE projection SET applied = 1")
    connection.close()
    store = SqliteStore(path)
    assert store.applied == 1
    assert store.lookup([("default/a", "m")], 11) == {
        ("default/a", "m"): Seen(0, 10, b"\0", 1, 10, "default/s")
    }
    write(store, task(5, 50))
    assert store.find_key("default", "key-5", 51) is not None
    assert store.purge(100 * KEY_MS) == Purged(admissions=1, tasks=1, steps=2, idempotency=1)
    store.close()


def test_a_store_brought_over_has_the_schema_of_a_new_one(path: Path, tmp_path: Path) -> None:
    older(path, 4).close()
    asked = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    found = []
    for file in (path, tmp_path / "new.db"):
        SqliteStore(file).close()
        connection = apsw.Connection(str(file))
        found.append(connection.execute(asked).fetchall())
        connection.close()
    assert found[0] == found[1]


def test_the_version_before_refuses_this_store_by_name_and_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(path).close()
    before = path.read_bytes()
    known = migrations()[:4]
    monkeypatch.setattr(schema, "migrations", lambda: known)
    with pytest.raises(
        FormatTooNew, match=r"store\.db has schema version 5; this RelayMesh knows .* up to 4"
    ):
        SqliteStore(path)
    assert path.read_bytes() == before
