"""The SQLite store: opening, looking up, purging, being looked at, crashing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from relaymesh.errors import FormatTooNew, StoreMisconfigured
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.dedup import WINDOW_MS, Seen, digest_of
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import (
    Accepted,
    Acked,
    AnyRecord,
    DeadLettered,
    DeadLettersPurged,
    Dropped,
    Failure,
    Published,
    Redriven,
    Returned,
)
from relaymesh.store import Projection, SqliteStore, connect, rebuild
from relaymesh.store.schema import migrate, migrations

DAY = 86_400_000
BOX = "default/a"


class Journal:
    """Numbers records one after another."""

    def __init__(self) -> None:
        self.sequence = 0

    def __call__(self, record: AnyRecord, detail: object = None) -> Projection:
        base, self.sequence = self.sequence, self.sequence + record.count
        return Projection(base, record, detail)


def envelope(id: str = "m", **more: object) -> Envelope:
    return Envelope(id, "default/s", b"content", **more)  # type: ignore[arg-type]


def accepted(at: int, *ids: str, mailbox: str = BOX) -> Accepted:
    return Accepted(len(ids), at, mailbox, [envelope(id) for id in ids])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


# -- opening


def test_a_new_store_has_nothing_applied(store: SqliteStore) -> None:
    assert store.applied == 0
    assert store.counts() == {}


def test_what_was_projected_is_there_at_the_next_open(path: Path) -> None:
    first = SqliteStore(path)
    first.project([Projection(0, accepted(1, "m"))])
    first.close()
    assert not path.with_name("store.db-wal").exists()
    second = SqliteStore(path)
    assert second.applied == 1
    assert [row.msg_id for row in second.messages()] == ["m"]
    second.close()


def test_two_stores_may_have_the_file_open_and_one_sees_what_the_other_wrote(path: Path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    first.project([Projection(0, accepted(1, "m"))])
    assert second.counts() == {"pending": 1}
    second.close()
    first.close()


def test_a_setting_that_did_not_take_stops_the_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignoring(connection: apsw.Connection, name: str) -> object:
        return 0 if name == "foreign_keys" else connection.pragma(name)

    monkeypatch.setattr(connect, "read_back", ignoring)
    with pytest.raises(StoreMisconfigured, match="foreign_keys is 0 after it was set to 1"):
        SqliteStore(path)


@pytest.mark.parametrize("name", [":memory:", ""])
def test_a_database_that_is_no_file_is_refused_and_leaves_none_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreMisconfigured, match="file"):
        SqliteStore(name)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_synchronous_setting_is_refused(path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="NORMLA"):
        SqliteStore(path, synchronous="NORMLA")


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(StoreMisconfigured, match=r"store\.db cannot be used"):
        SqliteStore(path)


def test_the_store_of_another_journal_is_refused(path: Path) -> None:
    SqliteStore(path, journal="first").close()
    SqliteStore(path, journal="first").close()
    with pytest.raises(StoreMisconfigured, match="journal first, not of second"):
        SqliteStore(path, journal="second")


# -- migrations


def test_migrations_are_numbered_without_gaps() -> None:
    assert [m.number for m in migrations()] == list(range(1, len(migrations()) + 1))


def test_the_schema_is_the_sum_of_the_migrations(store: SqliteStore, path: Path) -> None:
    plain = apsw.Connection(":memory:")
    for migration in migrations():
        plain.execute(migration.text)
    asked = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    opened = apsw.Connection(str(path))
    assert opened.execute(asked).fetchall() == plain.execute(asked).fetchall()
    assert opened.pragma("user_version") == migrations()[-1].number
    opened.close()


def test_migrating_twice_changes_nothing(path: Path) -> None:
    connection = apsw.Connection(str(path))
    migrate(connection, "here")
    changes = connection.total_changes()
    migrate(connection, "here")
    assert connection.total_changes() == changes
    connection.close()


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    SqliteStore(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 9_999)
    connection.close()
    with pytest.raises(FormatTooNew, match="9999"):
        SqliteStore(path)


def test_the_seeds_tables_columns_and_indexes_are_there(store: SqliteStore, path: Path) -> None:
    connection = apsw.Connection(str(path))
    columns = {
        table: {row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
        for table in ("messages", "dead_letter_queue", "tasks", "steps", "idempotency", "admissions")
    }
    indexes = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    connection.close()
    assert columns["messages"] >= {
        "msg_id",
        "task_id",
        "from_agent",
        "to_agent",
        "priority",
        "state",
        "meta_path",
        "payload_path",
        "created_at_ms",
        "namespace",
    }
    assert columns["dead_letter_queue"] >= {
        "id",
        "message_id",
        "sender",
        "receiver",
        "content",
        "failed_at",
        "retry_count",
        "reason",
        "stack_trace",
        "status",
    }
    assert columns["idempotency"] >= {
        "idempotency_key",
        "status",
        "result_ref",
        "result_hash",
        "result_hash_algo",
        "processed_at_ms",
        "namespace",
    }
    assert columns["admissions"] >= columns["idempotency"]
    assert columns["tasks"] >= {
        "task_id",
        "status",
        "idempotency_key",
        "trace_id",
        "created_at_ms",
        "updated_at_ms",
        "namespace",
    }
    assert columns["steps"] >= {
        "step_id",
        "task_id",
        "agent_id",
        "status",
        "attempt",
        "next_retry_at_ms",
        "lease_owner",
        "lease_token",
        "lease_epoch",
        "updated_at_ms",
    }
    assert indexes >= {
        "idx_messages_state_priority_created",
        "idx_steps_status_next_retry",
        "idx_steps_lease_owner_updated",
        "idx_idempotency_processed_at",
        "idx_admissions_processed_at",
    }


# -- projecting


def test_a_gap_is_refused_and_nothing_is_written(store: SqliteStore) -> None:
    with pytest.raises(StoreMisconfigured, match="stands at sequence 0, but was given 5"):
        store.project([Projection(5, accepted(1, "m"))])
    assert (store.applied, store.counts()) == (0, {})


def test_a_gap_inside_a_batch_refuses_the_whole_batch(store: SqliteStore) -> None:
    with pytest.raises(StoreMisconfigured, match="stands at sequence 1, but was given 2"):
        store.project([Projection(0, accepted(1, "m")), Projection(2, accepted(1, "n"))])
    assert (store.applied, store.counts()) == (0, {})


def test_a_journal_that_no_longer_reaches_back_is_followed_from_where_it_begins(store: SqliteStore) -> None:
    store.skip_to(100)
    store.project([Projection(100, accepted(1, "m"))])
    assert store.applied == 101


def test_a_failed_transaction_leaves_rows_and_position_as_they_were(store: SqliteStore) -> None:
    store.project([Projection(0, accepted(1, "m"))])
    broken = Accepted(1, 1, BOX, [envelope(type=object())])
    with pytest.raises(TypeError):
        store.project([Projection(1, accepted(1, "n")), Projection(2, broken)])
    assert (store.applied, store.counts()) == (1, {"pending": 1})
    store.project([Projection(1, accepted(1, "n"))])
    assert (store.applied, store.counts()) == (2, {"pending": 2})


def test_a_crash_between_transactions_loses_whole_batches_only(path: Path) -> None:
    store = SqliteStore(path)
    store.project([Projection(0, accepted(1, "m"))])
    store._writer.execute("BEGIN IMMEDIATE")
    store._writer.execute("UPDATE projection SET applied = 99")
    store._writer.execute("DELETE FROM messages")
    store._writer.close(True)  # as a process that is gone: no commit, no checkpoint
    again = SqliteStore(path)
    assert (again.applied, again.counts()) == (1, {"pending": 1})
    again.close()


def test_an_id_that_comes_again_after_the_window_is_another_message(store: SqliteStore) -> None:
    journal = Journal()
    later = 1 + WINDOW_MS
    store.project([journal(accepted(1, "m")), journal(Acked(1, 2, BOX, [0]))])
    store.project([journal(accepted(later, "m"))])
    assert store.counts() == {"acked": 1, "pending": 1}
    assert store.lookup([(BOX, "m")], later)[BOX, "m"].sequence == 2


def test_the_same_id_may_die_twice(store: SqliteStore) -> None:
    journal = Journal()
    for at in (1, 1 + WINDOW_MS):
        base = journal.sequence
        letter = DeadLetter(BOX, base, base + 1, at, at, "fatal", envelope(), 1, 0, [])
        store.project([journal(accepted(at, "m"))])
        store.project([journal(DeadLettered(1, at, BOX, [base], "fatal", [None]), [letter])])
    assert [row.dead_sequence for row in store.dead_letters()] == [3, 1]


# -- looking up


def test_a_lookup_gives_what_is_needed_for_the_same_receipt(store: SqliteStore) -> None:
    journal = Journal()
    store.project(
        [
            journal(Accepted(1, 10, BOX, [envelope("m", delay_ms=5)])),
            journal(
                Published(1, 20, "default/t.x", 2, [envelope("p")]), ["default/t.*:one", "default/t.*:two"]
            ),
        ]
    )
    keys = [(BOX, "m"), (BOX, "p"), ("topic:default/t.x", "p"), ("default/b", "m")]
    assert store.lookup(keys, 30) == {
        (BOX, "m"): Seen(0, 10, digest_of(b"content"), 1, 15, "default/s"),
        ("topic:default/t.x", "p"): Seen(1, 20, digest_of(b"content"), 2, 20, "default/s"),
    }


def test_a_lookup_of_nothing_finds_nothing(store: SqliteStore) -> None:
    assert store.lookup([], 1) == {}


def test_an_id_is_known_for_the_window_and_not_a_millisecond_longer(store: SqliteStore) -> None:
    store.project([Projection(0, accepted(1_000, "m"))])
    assert store.lookup([(BOX, "m")], 1_000 + WINDOW_MS - 1) != {}
    assert store.lookup([(BOX, "m")], 1_000 + WINDOW_MS) == {}


def test_a_redriven_message_is_outside_dedup(store: SqliteStore) -> None:
    journal = Journal()
    letter = DeadLetter(BOX, 0, 1, 2, 1, "fatal", envelope(), 1, 0, [Failure(1, 2, "fatal")])
    store.project(
        [
            journal(accepted(1, "m")),
            journal(DeadLettered(1, 2, BOX, [0], "fatal", [None]), [letter]),
            journal(Redriven(1, 3, BOX, 1, BOX, envelope("edited")), 1),
        ]
    )
    assert store.lookup([(BOX, "edited")], 4) == {}
    assert [(row.state, row.redrive_count) for row in store.message("edited")] == [("pending", 1)]


# -- purging


def test_settled_messages_go_after_history_and_unsettled_ones_stay(store: SqliteStore) -> None:
    journal = Journal()
    letter = DeadLetter(BOX, 2, 6, 3, 1, "fatal", envelope("dead"), 1, 0, [])
    store.project(
        [
            journal(accepted(1, "acked", "dropped", "dead", "pending")),
            journal(Acked(1, 2, BOX, [0])),
            journal(Dropped(1, 2, BOX, [1])),
            journal(DeadLettered(1, 3, BOX, [2], "fatal", [None]), [letter]),
        ]
    )
    before = store.purge(7 * DAY)
    assert (before.admissions, before.messages) == (0, 0)
    after = store.purge(7 * DAY + 2)
    assert (after.admissions, after.messages) == (2, 2)
    assert store.counts() == {"dead": 1, "pending": 1}


def test_a_message_settled_late_is_kept_for_history_from_then(store: SqliteStore) -> None:
    store.project([Projection(0, accepted(1, "m"))])
    store.project([Projection(1, Acked(1, 5 * DAY, BOX, [0]))])
    assert store.purge(8 * DAY).messages == 0
    assert store.purge(12 * DAY).messages == 1


def test_ids_are_kept_for_the_window_even_when_history_is_shorter(path: Path) -> None:
    store = SqliteStore(path, history_days=0)
    store.project([Projection(0, accepted(1, "m")), Projection(1, Acked(1, 1, BOX, [0]))])
    assert store.purge(WINDOW_MS)[:2] == (0, 1)
    assert store.lookup([(BOX, "m")], WINDOW_MS) != {}
    assert store.purge(WINDOW_MS + 1)[:2] == (1, 0)
    store.close()


def test_a_purge_in_slices_says_when_there_is_more(store: SqliteStore) -> None:
    ids = [str(i) for i in range(25)]
    store.project([Projection(0, accepted(1, *ids)), Projection(25, Acked(25, 1, BOX, list(range(25))))])
    slices = [store.purge(8 * DAY, 10) for _ in range(3)]
    assert [(p.messages, p.admissions, p.more) for p in slices] == [
        (10, 10, True),
        (10, 10, True),
        (5, 5, False),
    ]


def test_purging_finds_its_end_through_the_index(store: SqliteStore) -> None:
    plan = store._writer.execute(
        "EXPLAIN QUERY PLAN SELECT sequence FROM admissions WHERE boundary = 1 AND processed_at_ms <= 5 "
        "ORDER BY processed_at_ms DESC, sequence DESC LIMIT 1"
    ).fetchall()
    assert "idx_admissions_processed_at" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


# -- being looked at


def test_pending_messages_are_shown_by_priority_and_age(store: SqliteStore) -> None:
    journal = Journal()
    store.project(
        [
            journal(Accepted(2, 1, BOX, [envelope("low", priority=4), envelope("old", priority=2)])),
            journal(Accepted(1, 2, "default/b", [envelope("new", priority=2)])),
        ]
    )
    assert [row.msg_id for row in store.messages(state="pending")] == ["old", "new", "low"]
    assert [row.msg_id for row in store.messages(state="pending", mailbox=BOX, limit=1)] == ["old"]
    assert [row.msg_id for row in store.messages()] == ["new", "old", "low"]
    assert store.messages(state="acked") == []
    assert store.counts(BOX) == {"pending": 2}


def test_a_message_is_found_by_id_in_every_mailbox_it_entered(store: SqliteStore) -> None:
    routed = ["default/t.*:one", "default/t.*:two"]
    journal = Journal()
    store.project(
        [
            journal(Published(1, 1, "default/t.x", 2, [envelope("m")]), routed),
            journal(accepted(2, "m")),
            journal(Acked(1, 3, routed[0], [0])),
        ]
    )
    rows = [(row.mailbox, row.topic, row.state, row.namespace) for row in store.message("m")]
    assert rows == [
        (routed[0], "default/t.x", "acked", "default"),
        (routed[1], "default/t.x", "pending", "default"),
        (BOX, None, "pending", "default"),
    ]


def test_a_dead_letter_shows_why_and_every_attempt(store: SqliteStore) -> None:
    journal = Journal()
    failures = [Failure(1, 2, "timeout", "slow"), Failure(2, 3, "fatal", "bang", "line 1")]
    letter = DeadLetter(BOX, 0, 1, 3, 1, "fatal", envelope(), 2, 0, failures)
    store.project(
        [journal(accepted(1, "m")), journal(DeadLettered(1, 3, BOX, [0], "fatal", [None]), [letter])]
    )
    [row] = store.dead_letters(mailbox=BOX)
    assert (row.message_id, row.code, row.stack_trace, row.retry_count) == ("m", "fatal", "line 1", 1)
    assert row.content == b"content"
    assert row.failures == '[[1,2,"timeout","slow",""],[2,3,"fatal","bang","line 1"]]'
    assert store.dead_letters(mailbox="default/b") == []


def test_of_many_failures_a_row_keeps_the_first_and_the_last(store: SqliteStore) -> None:
    """However they come: each in a batch of its own, or many in one."""
    journal = Journal()
    failed = [Failure(attempt, 2, "other", "é") for attempt in range(1, 81)]
    store.project([journal(accepted(1, "m"))])
    for failure in failed[:40]:
        store.project([journal(Returned(1, 2, BOX, "nack", [0], [2], [failure]))])
    store.project([journal(Returned(1, 2, BOX, "nack", [0], [2], [failure])) for failure in failed[40:]])
    [(kept,)] = store._reader.execute("SELECT failures FROM messages")
    assert [failure[0] for failure in json.loads(kept)] == [1, *range(50, 81)]
    assert json.loads(kept)[0] == [1, 2, "other", "é", ""]


@pytest.mark.parametrize("together", [True, False])
def test_a_redriven_message_stays_redriven_when_its_letter_is_purged(
    store: SqliteStore, together: bool
) -> None:
    journal = Journal()
    letter = DeadLetter(BOX, 0, 1, 3, 1, "fatal", envelope(), 2, 0, [])
    events = [
        journal(accepted(1, "m")),
        journal(DeadLettered(1, 3, BOX, [0], "fatal", []), [letter]),
        journal(Redriven(1, 4, BOX, 1, "default/b", envelope()), 1),
        journal(DeadLettersPurged(1, 5, BOX, [1])),
    ]
    for batch in [events] if together else [[event] for event in events]:
        store.project(batch)
    state = "SELECT state FROM messages WHERE mailbox = ? AND sequence = 0"
    assert list(store._reader.execute(state, (BOX,))) == [("redriven",)]
    assert store.dead_letters(mailbox=BOX) == []


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(apsw.ReadOnlyError):
        store._reader.execute("DELETE FROM messages")


# -- rebuilding


def test_a_rebuilt_store_replaces_the_old_one_whole(path: Path) -> None:
    old = SqliteStore(path)
    old.project([Projection(0, accepted(1, "old"))])
    old.close()
    path.with_name("store.db-wal").write_bytes(b"left over")
    assert rebuild(path, [Projection(7, accepted(1, "new", "newer"))], journal="j") == 9
    store = SqliteStore(path, journal="j")
    assert [row.msg_id for row in store.messages()] == ["newer", "new"]
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


def test_a_rebuild_that_fails_leaves_the_old_store(path: Path) -> None:
    old = SqliteStore(path)
    old.project([Projection(0, accepted(1, "old"))])
    old.close()
    with pytest.raises(StoreMisconfigured):
        rebuild(path, [Projection(0, accepted(1, "m")), Projection(5, accepted(1, "n"))])
    store = SqliteStore(path)
    assert [row.msg_id for row in store.messages()] == ["old"]
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
