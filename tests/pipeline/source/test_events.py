"""Every record as rows: by hand for each kind, and against the rows that `journal cat` shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from relaymesh.errors import FormatTooNew, JournalDamaged
from relaymesh.journal import JournalSettings, read_frames
from relaymesh.journal.aside import Aside, line_for, write_aside
from relaymesh.journal.events import EventRows
from relaymesh.kernel import records
from relaymesh.kernel.payload import reference_to
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from relaymesh.kernel.tasks.status import Status
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
    {"operation": "SUBMIT", "operation_code": 19, "task_id": "t-1", "sender": "default/coder"},
    {"operation": "STEP_SENT", "operation_code": 20, **BOX, "task_id": "t-1", "message_sequence": 17,
     "step": 0},
    {"operation": "STEP_SENT", "operation_code": 20, **BOX, "task_id": "t-1", "message_sequence": 18,
     "step": 1},
    {"operation": "STEPS_ADDED", "operation_code": 22, "task_id": "t-1", "step": 1, "items": 2},
    {"operation": "STEP_TAKEN", "operation_code": 27, **BOX, "message_sequence": 17, "lease_ms": 90_000},
    {"operation": "STEP_ENDED", "operation_code": 21, "task_id": "t-1", "lease_token": 1 << 40 | 6,
     "step": 0, "status": "FAILED", "code": "missing", "reason": "no such file"},
    {"operation": "TASK_CLOSING", "operation_code": 23, "task_id": "t-1", "status": "CANCELLED",
     "reason": "not wanted"},
    {"operation": "TASK_ENDED", "operation_code": 24, "task_id": "t-1", "status": "CANCELLED",
     "reason": "not wanted"},
    {"operation": "PUT_WORKFLOW", "operation_code": 25},
    {"operation": "REMOVE_WORKFLOW", "operation_code": 26},
    {"operation": "STEP_WAITS", "operation_code": 28, **BOX, "task_id": "t-1", "step": 1, "type": "ask",
     "due_at": time(T0 + 1000), "message_sequence": 17},
    {"operation": "SIGNAL", "operation_code": 29, "task_id": "t-1", "type": "go", "sender": "default/coder"},
    {"operation": "STEP_WITHDRAWN", "operation_code": 30, "task_id": "t-1", "step": 0, "reason": "budget"},
    {"operation": "STEP_WITHDRAWN", "operation_code": 30, "task_id": "t-1", "step": 1, "reason": "budget"},
    {"operation": "TASK_UNDOING", "operation_code": 31, "task_id": "t-1", "items": 2},
    {"operation": "USAGE", "operation_code": 32, "task_id": "t-1", "step": 1, "lease_token": 1 << 40 | 6,
     "cost_micros": 2_500_000, "tokens": 1_200},
    {"operation": "BUDGET_PAUSED", "operation_code": 33, "task_id": "t-1", "reason": "its budget is used"},
    {"operation": "BUDGET_SET", "operation_code": 34, "task_id": "t-1", "sender": "default/coder",
     "cost_micros": 5_000_000, "tokens": 0},
    {"operation": "NOTICE", "operation_code": 35, **BOX, "task_id": "t-1", "type": "budget"},
    {"operation": "SET_SCHEDULE", "operation_code": 36},
    {"operation": "FIRE_SCHEDULE", "operation_code": 38, "reason": "passed over"},
    {"operation": "PAUSE_SCHEDULE", "operation_code": 39},
    {"operation": "REMOVE_SCHEDULE", "operation_code": 37},
    {"operation": "REGISTER", "operation_code": 128, **BOX},
]  # fmt: skip


DECLARING = {
    "OPEN_MAILBOX", "SUBSCRIBE", "SUBMIT", "TASK_UNDOING", "PUT_WORKFLOW", "REMOVE_WORKFLOW", "SET_SCHEDULE",
    "FIRE_SCHEDULE", "PAUSE_SCHEDULE", "REMOVE_SCHEDULE", "REGISTER",
}  # fmt: skip


@pytest.mark.parametrize("i", range(len(EXPECTED)), ids=lambda i: f"{i + 1}-{EXPECTED[i]['operation']}")
def test_a_row_says_what_its_record_says(rows: list[dict[str, Any]], i: int) -> None:
    row = said(rows[i])
    declared = row.pop("settings", None)
    assert (declared is not None) == (row["operation"] in DECLARING)
    assert row == {"sequence": i + 1, "timestamp": time(T0), **EXPECTED[i]}


def test_there_is_a_row_for_each_event_and_none_beyond(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == len(EXPECTED)


def test_a_workflow_is_named_and_its_document_stays_in_the_journal(rows: list[dict[str, Any]]) -> None:
    home = {"namespace": "default", "workflow": "release"}
    put, removed = (
        json.loads(row["settings"]) for row in rows if row["operation"] in ("PUT_WORKFLOW", "REMOVE_WORKFLOW")
    )
    assert put == {**home, "version": "2.1", "digest": "0f", "owner": "default/coder"}
    assert removed == {**home, "versions": ["1", "2.1"], "by": "default/coder"}


def test_a_schedule_is_named_and_its_work_stays_in_the_journal(rows: list[dict[str, Any]]) -> None:
    home = {"namespace": "default", "schedule": "nightly"}
    kept, fired, paused, removed = (json.loads(row["settings"]) for row in rows[-5:-1])
    assert kept == {
        **home, "cron": "0 7 * * *", "tz": "UTC", "missed": "one", "owner": "default/coder",
        "next_at": T0 + 60_000, "workflow": "release",
    }  # fmt: skip
    assert fired == {
        **home, "tick_at": T0 + 60_000, "next_at": T0 + 120_000, "run": "t-2", "skipped": 1
    }  # fmt: skip
    assert paused == {**home, "next_at": 0, "paused": True, "by": "default/coder"}
    assert removed == {**home, "by": "default/coder"}


def test_a_plan_has_names_agents_and_needs_and_nothing_that_people_wrote(tmp_path: Path) -> None:
    one = StepPlan(name="a", mailbox="default/coder", input=b'"canary"', when="canary")
    two = StepPlan(
        name="b",
        mailbox="",
        capability="review",
        needs=(0, 0),
        for_each="canary",
        on_failure="handle",
        handler=2,
    )
    three = StepPlan(name="c", mailbox="default/coder", needs=(1,))
    plan = Plan(name="release", steps=(one, two, three), version="2", deadline_ms=60_000)
    write_frames(
        tmp_path, [[records.TaskSubmitted(1, T0, "t", plan, b'"canary"', "k", b"", "default/boss", "trace")]]
    )
    [row] = read_rows(tmp_path)
    assert (row["sender"], row["traceparent"]) == ("default/boss", "trace")
    assert "canary" not in str(row)
    assert json.loads(row["settings"]) == {
        "workflow": "release",
        "version": "2",
        "deadline_ms": 60_000,
        "steps": [
            {"name": "a", "agent": "default/coder", "needs": []},
            {
                "name": "b",
                "agent": "",
                "needs": [0],
                "capability": "review",
                "on_failure": "handle",
                "handler": 2,
                "for_each": True,
            },
            {"name": "c", "agent": "default/coder", "needs": [1]},
        ],
    }


def test_added_steps_undone_steps_and_given_results_are_told_by_number(tmp_path: Path) -> None:
    undo = StepPlan(name="a", mailbox="default/coder", input=b'"canary"')
    wait = WaitPlan(kind="ask", options=("canary",), default=b'"canary"')
    one = StepPlan(name="a", mailbox="default/coder", undo=undo)
    two = StepPlan(name="b", mailbox="default/coder", needs=(0,), wait=wait)
    plan = Plan(name="w", steps=(one,))
    given: list[tuple[int, Status, bytes]] = [(0, "SUCCESS", b'"canary"')]
    again = records.TaskSubmitted(1, T0, "t", plan, b"", "k", b"", "default/boss", given=given, again_of="s")
    added = records.StepsAdded(1, T0, "t", 0, [], [one, two], b'"canary"')
    undoing = records.TaskUndoing(1, T0, "t", [2, 0], [True, False])
    write_frames(tmp_path, [[again, added, undoing]])
    rows = read_rows(tmp_path)
    assert "canary" not in str(rows)
    said = [json.loads(row["settings"]) for row in rows]
    undone = {"name": "a", "agent": "default/coder", "needs": []}
    assert said[0]["steps"] == [undone | {"undo": undone}]
    assert said[0]["given"] == [[0, "SUCCESS", sha256(b'"canary"').hexdigest()]]
    asks = {"name": "b", "agent": "default/coder", "needs": [0], "wait": "ask", "default": True}
    assert said[1] == {"steps": [undone | {"undo": undone}, asks]}
    assert (rows[1]["step"], rows[1]["items"]) == (0, 2)
    assert said[2] == {"undo": [2, 0], "uncertain": [True, False]}


def test_results_are_there_as_hashes_alone(tmp_path: Path) -> None:
    ended = records.StepsEnded(2, T0, "t", [0, 1], "SUCCESS", [b'"canary"', b"[1, 2]"])
    over = records.TaskEnded(1, T0, "t", "SUCCESS", b'{"a":"canary","b":[1, 2]}')
    plain = records.TaskEnded(1, T0, "u", "SUCCESS", b'"canary"')
    odd = records.TaskEnded(1, T0, "v", "SUCCESS", b"[" * 100_000)
    write_frames(tmp_path, [[ended, over, plain], [odd]], JournalSettings())
    first, second, whole, text, deep = read_rows(tmp_path)
    assert "canary" not in str([first, second, whole, text])
    hashes = [sha256(each).hexdigest() for each in ended.outputs]
    assert [first["result_hash"], second["result_hash"]] == hashes
    assert whole["result_hash"] == sha256(over.result).hexdigest()
    assert whole["parts_hash"] == sha256("".join(hashes).encode()).hexdigest()
    assert (text["result_hash"], text["parts_hash"]) == (hashes[0], None)
    assert deep["parts_hash"] is None


def test_results_in_payload_files_are_known_by_the_names_of_the_files(tmp_path: Path) -> None:
    large = b'"' + b"x" * 70_000 + b'"'
    reference = reference_to(large).encode()
    ended = records.StepsEnded(2, T0, "t", [0, 1], "SUCCESS", [reference, b"1"])
    over = records.TaskEnded(1, T0, "t", "SUCCESS", b'{"a":' + reference + b',"b":1}')
    alone = records.TaskEnded(1, T0, "u", "SUCCESS", reference)
    write_frames(tmp_path, [[ended, over, alone]])
    first, second, whole, single = read_rows(tmp_path, includeContent="false")
    assert first["result_hash"] == single["result_hash"] == sha256(large).hexdigest()
    joined = (first["result_hash"] + second["result_hash"]).encode()
    assert (whole["result_hash"], whole["parts_hash"]) == (None, sha256(joined).hexdigest())


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


def test_a_step_that_was_taken_has_the_lease_from_then_on(tmp_path: Path) -> None:
    write_frames(tmp_path, [[records.StepsTaken(2, T0, "default/coder", [4, 5], 90_000)]])
    shown = list(EventRows().rows(read_frames(RealDisk(tmp_path))))
    read = read_rows(tmp_path)
    assert [(row["operation"], row["message_sequence"], row["lease_ms"]) for row in read] == [
        ("STEP_TAKEN", 4, 90_000),
        ("STEP_TAKEN", 5, 90_000),
    ]
    assert [row["message_sequence"] for row in shown] == [4, 5]


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
        ([[21, 1, T0, "t", [0], "SUCCESS", [b"1", b"2"]]], 1, "STEP_ENDED of 1 events has not"),
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
