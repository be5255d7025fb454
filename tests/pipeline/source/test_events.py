"""Every record as rows: by hand for each kind, and against the rows that `journal cat` shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from relaymesh.errors import FormatTooNew, JournalDamaged
from relaymesh.journal import read_frames
from relaymesh.journal.aside import Aside, line_for, write_aside
from relaymesh.journal.events import EventRows
from relaymesh.kernel import records
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.source.usage import usage_in
from relaymesh.wire.envelope import iso
from relaymesh.wire.records import Unreadable
from tests.journal.tampering import make_unreadable
from tests.pipeline.source.journals import (
    T0,
    accepted,
    envelope,
    mesh_of,
    one_of_each,
    open_writer,
    read_rows,
    traffic,
    write_frames,
)

LINEAGE = {"partition", "event_date", "epoch", "source", "segment", "frame_offset"}


def said(row: dict[str, Any]) -> dict[str, Any]:
    """What a row says beyond where it comes from."""
    return {name: value for name, value in row.items() if value is not None and name not in LINEAGE}


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("journal")
    write_frames(path, [one_of_each()])
    return read_rows(path)


ENVELOPE = {
    "sender": "default/planner",
    "type": "message",
    "priority": 3,
    "ttl_ms": 3_600_000,
    "delay_ms": 0,
    "requires_ack": False,
    "tags": [],
    "encoding": 0,
    "content_bytes": 7,
}
BOX = {"mailbox": "default/coder"}
FAILURE = {"attempt": 1, "code": "timeout", "error": "too slow", "stack": "line 1"}

EXPECTED: list[dict[str, Any]] = [
    {"operation": "START", "operation_code": 1},
    {"operation": "OPEN_MAILBOX", "operation_code": 2, **BOX},
    {"operation": "SUBSCRIBE", "operation_code": 3, "mailbox": "default/news:coder", "pattern": "news/#"},
    {"operation": "APPEND", "operation_code": 5, **BOX, "message_sequence": 4, "message_id": "m-1",
     "content": b'{"n":1}', **ENVELOPE},
    {"operation": "APPEND", "operation_code": 5, **BOX, "message_sequence": 5, "message_id": "m-2",
     "content": b'{"n":2}', **ENVELOPE, "priority": 1, "tags": ["a", "b"], "task_id": "t"},
    {"operation": "PUBLISH", "operation_code": 6, "topic": "news/eu", "targets": 3, "message_sequence": 6,
     "message_id": "m-3", "content": b'{"n":3}', **ENVELOPE},
    {"operation": "PUBLISH", "operation_code": 6, "topic": "news/eu", "targets": 3, "message_sequence": 7,
     "message_id": "m-4", "content": b'{"n":4}', "extra": '{"x":1}', **ENVELOPE},
    {"operation": "GRANT", "operation_code": 7, **BOX, "message_sequence": 4, "holder": "holder-1",
     "lease_token": 1 << 40 | 5, "lease_ms": 30_000, "remote": True},
    {"operation": "GRANT", "operation_code": 7, **BOX, "message_sequence": 5, "holder": "holder-1",
     "lease_token": 1 << 40 | 6, "lease_ms": 30_000, "remote": True},
    {"operation": "NACK", "operation_code": 10, **BOX, "message_sequence": 4, "due_at": time(T0 + 1000),
     **FAILURE},
    {"operation": "NACK", "operation_code": 10, **BOX, "message_sequence": 5,
     "due_at": datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)},
    {"operation": "RELEASE", "operation_code": 10, **BOX, "message_sequence": 4, "due_at": time(T0)},
    {"operation": "DEAD_LETTER", "operation_code": 11, **BOX, "message_sequence": 4,
     "reason": "retries_exhausted", "alert": True, **FAILURE},
    {"operation": "DEAD_LETTER", "operation_code": 11, **BOX, "message_sequence": 5,
     "reason": "retries_exhausted", "alert": True},
    {"operation": "REDRIVE", "operation_code": 12, "mailbox": "default/second", "message_sequence": 15,
     "source_mailbox": "default/coder", "dead_sequence": 13, "message_id": "m-1", "origin_id": "m-0",
     "sent_at": time(T0 - 5), "content": b'{"n":1}', **ENVELOPE},
    {"operation": "PURGE", "operation_code": 13, **BOX, "dead_sequence": 14},
    {"operation": "REPRIORITISE", "operation_code": 14, **BOX, "message_sequence": 15, "priority": 2},
    {"operation": "REPRIORITISE", "operation_code": 14, **BOX, "message_sequence": 16, "priority": 2},
    {"operation": "FORCE_DELIVER", "operation_code": 15, **BOX, "message_sequence": 15},
    {"operation": "DROP", "operation_code": 9, **BOX, "message_sequence": 15, "code": "duplicate"},
    {"operation": "COMPLETE", "operation_code": 16, **BOX, "message_sequence": 16},
    {"operation": "ACK", "operation_code": 8, **BOX, "message_sequence": 16},
    {"operation": "SUSPEND", "operation_code": 17, "mailbox": "default/news:coder",
     "reason": "dead_letters_full"},
    {"operation": "RESUME", "operation_code": 18, "mailbox": "default/news:coder"},
    {"operation": "UNSUBSCRIBE", "operation_code": 4, "mailbox": "default/news:coder", "pattern": "news/#"},
    {"operation": "REGISTER", "operation_code": 128, **BOX},
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(EXPECTED)), ids=lambda i: f"{i + 1}-{EXPECTED[i]['operation']}")
def test_a_row_says_what_its_record_says(rows: list[dict[str, Any]], i: int) -> None:
    row = said(rows[i])
    declared = row.pop("settings", None)
    assert (declared is not None) == (row["operation"] in ("OPEN_MAILBOX", "SUBSCRIBE", "REGISTER"))
    assert row == {"sequence": i + 1, "timestamp": time(T0), **EXPECTED[i]}


def test_there_is_a_row_for_each_event_and_none_beyond(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == len(EXPECTED)


def test_settings_are_told_by_name(rows: list[dict[str, Any]]) -> None:
    opened = json.loads(rows[1]["settings"])
    assert opened["capacity"] == 7
    assert opened["schedule"] == "weighted"
    assert json.loads(rows[-1]["settings"]) == {
        "role": "coder",
        "capabilities": ["python", "review"],
        "protocol": "1.0",
        "metadata": {"gpu": 1},
        "draining": False,
    }


def test_rows_say_where_they_come_from(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(2))
    frames = list(read_frames(RealDisk(tmp_path)))
    rows = read_rows(tmp_path)
    assert {(row["segment"], row["frame_offset"]) for row in rows} == {(x.segment, x.offset) for x in frames}
    assert {row["source"] for row in rows} == {mesh_of(tmp_path)}
    assert {row["epoch"] for row in rows} == {1}
    assert {row["event_date"].isoformat() for row in rows} == {"2026-01-01"}


def test_content_can_be_left_out(tmp_path: Path) -> None:
    write_frames(tmp_path, [[accepted(1)]])
    (row,) = read_rows(tmp_path, includeContent="false")
    assert row["content"] is None
    assert row["content_bytes"] == 7


def test_without_content_nothing_is_left_of_what_senders_and_handlers_wrote(tmp_path: Path) -> None:
    usage = {"inputTokens": 3, "costUsd": 0.5}
    extra: dict[str, Any] = {"usage": {**usage, "outputTokens": "canary", "note": "canary"}, "note": "canary"}
    extra["metadata"] = {"usage": {"outputTokens": 4}, "who": "canary"}
    sent = envelope(1, extra=msgspec.json.encode(extra))
    failed = records.Failure(1, T0, "invalid", "no number", "canary")
    write_frames(
        tmp_path,
        [
            [records.Accepted(1, T0, "default/coder", [structs.replace(sent, content=b'"canary"')])],
            [records.Returned(1, T0, "default/coder", "nack", [1], [T0], [failed])],
        ],
    )
    append_raw(tmp_path, [[200, 1, T0, "canary"]], events=1)
    rows = read_rows(tmp_path, includeContent="false")
    assert "canary" not in str(rows)
    assert [row["operation"] for row in rows] == ["APPEND", "NACK", "OPERATION_200"]
    kept = {"usage": usage, "metadata": {"usage": {"outputTokens": 4}}}
    assert json.loads(rows[0]["extra"]) == kept, "what the tables read of it, and nothing else"
    assert (rows[1]["code"], rows[1]["error"]) == ("invalid", "no number")
    assert str(read_rows(tmp_path)).count("canary") >= 4


@pytest.mark.parametrize(
    "extra", [None, b"", b"{", b"[]", b"{}", b'{"usage": 1}', b'{"usage": {"costUsd": true}}']
)
def test_extra_fields_that_say_no_usage_are_null_without_content(extra: bytes | None) -> None:
    assert usage_in(extra) is None


def append_raw(path: Path, payload: Any, events: int) -> None:
    writer = open_writer(path)
    writer.append(msgspec.msgpack.encode(payload), events, T0 * 1_000_000)
    writer.sync()
    writer.close()


def test_an_operation_of_a_newer_version_is_kept_as_bytes(tmp_path: Path) -> None:
    news = [200, 2, T0 + 5, "who knows"]
    append_raw(tmp_path, [[16, 1, T0, "default/coder", [1]], news, [8, 1, T0, "default/coder", [1]]], 4)
    done, one, two, acked = read_rows(tmp_path)
    assert [done["operation"], acked["operation"]] == ["COMPLETE", "ACK"]
    assert acked["sequence"] == 4
    for row in (one, two):
        assert (row["operation"], row["operation_code"]) == ("OPERATION_200", 200)
        assert msgspec.msgpack.decode(row["raw"]) == news
        assert row["timestamp"] == time(T0 + 5)


def test_an_operation_that_must_be_understood_stops_the_read(tmp_path: Path) -> None:
    append_raw(tmp_path, [[99, 1, T0, "?"]], 1)
    with pytest.raises(FormatTooNew):
        read_rows(tmp_path, quarantine="rows")


@pytest.mark.parametrize(
    ("payload", "events", "why"),
    [
        ([[8, 1, T0, "default/coder", [1]]], 2, "says 2 events, its records have 1"),
        ([[8, 2, T0, "default/coder", [1]]], 2, "ACK of 2 events has not as many values"),
        ([[10, 1, T0, "default/coder", "nack", [1], [], []]], 1, "NACK of 1 events has not"),
        ({"not": "a list"}, 1, "holds no records"),
    ],
)
def test_records_that_contradict_themselves_are_damage(
    tmp_path: Path, payload: Any, events: int, why: str
) -> None:
    write_frames(tmp_path, [[accepted(1)]])
    append_raw(tmp_path, payload, events)
    with pytest.raises(JournalDamaged, match=why):
        read_rows(tmp_path)
    (kept,) = read_rows(tmp_path, quarantine="rows")
    assert kept["message_id"] == "m-1"
    (bad,) = read_rows(tmp_path, table="quarantine")
    assert why in bad["reason"]


@settings(deadline=None)
@given(
    picks=st.lists(st.lists(st.integers(0, len(one_of_each()) - 1), min_size=1, max_size=6), max_size=12),
    rows=st.integers(1, 30),
)
def test_any_mix_of_records_reads_as_journal_cat_shows_it(
    tmp_path_factory: pytest.TempPathFactory, picks: list[list[int]], rows: int
) -> None:
    path = tmp_path_factory.mktemp("mixed")
    kinds = one_of_each()
    write_frames(path, [[kinds[i] for i in frame] for frame in picks])
    shown = list(EventRows().rows(read_frames(RealDisk(path))))
    read = read_rows(path, rowsPerPartition=rows)
    assert [row["sequence"] for row in read] == [row["sequence"] for row in shown]
    for row, cat in zip(read, shown, strict=True):
        assert row["operation"] == cat["operation"]
        assert iso(int(row["timestamp"].timestamp() * 1000)) == cat["timestamp"]
        assert (row["topic"] or row["mailbox"]) == cat["mailbox"]
        named = row["dead_sequence"] if row["operation"] == "PURGE" else row["message_sequence"]
        assert named == cat["message_sequence"]


def test_every_kind_of_record_has_columns_of_its_own(rows: list[dict[str, Any]]) -> None:
    kinds = {type(each) for each in one_of_each()}
    assert kinds == set(records.AnyRecord.__args__), "a record without a golden row here"
    assert all(row["raw"] is None for row in rows)


def test_a_record_that_is_set_aside_keeps_its_rows_and_is_no_damage(tmp_path: Path) -> None:
    write_frames(tmp_path, [one_of_each()])
    whole = read_rows(tmp_path)
    sequence = next(row["sequence"] for row in whole if row["operation"] == "ACK")
    make_unreadable(tmp_path, sequence)
    with pytest.raises(JournalDamaged, match=f"sequence {sequence}"):
        read_rows(tmp_path)
    [frame] = [frame for frame in read_frames(RealDisk(tmp_path)) if frame.events > 1]
    [line] = [
        line_for(frame, index, at, record, reason="", at="", by="")
        for index, at, record in Aside().sort_out(frame)
        if isinstance(record, Unreadable)
    ]
    write_aside(RealDisk(tmp_path), Aside([line]))
    rows = read_rows(tmp_path)
    assert [row["sequence"] for row in rows] == [row["sequence"] for row in whole]
    bad = next(row for row in rows if row["sequence"] == sequence)
    assert (bad["operation"], bad["operation_code"], bad["mailbox"]) == ("UNREADABLE_8", 8, "default/coder")
    assert read_rows(tmp_path, table="quarantine") == []
