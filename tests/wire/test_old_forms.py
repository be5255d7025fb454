"""Values that 0.1.0 could write and the decoder refuses: each reads as the nearest value of today."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import force_setattr

from relaymesh.errors import FormatTooNew, JournalDamaged, RecordUnreadable
from relaymesh.kernel.bounds import MOMENT_MS_MAX
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.mailbox import Counters
from relaymesh.kernel.records import (
    Acked,
    AnyRecord,
    DeadLettered,
    Dropped,
    Failure,
    Granted,
    MailboxOpened,
    Returned,
    Subscribed,
)
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import EntriesPiece, EntryPiece, Held, LettersPiece, MailboxPiece
from relaymesh.wire.old_forms import OLD_FORMS
from relaymesh.wire.records import Unreadable, decode_records, read_records
from relaymesh.wire.snapshot import decode_piece


def wrong(value: object) -> Any:
    """A value of a wrong type, as 0.1.0 took it."""
    return value


ENVELOPE = Envelope("a", "default/x", b"1")
RULES = {"E": Rule(3, "dead_letter")}


def bad_settings(lease_ms: int = 0) -> MailboxSettings:
    """Settings that today's cannot be built with."""
    rule, settings = Rule(0), MailboxSettings(lease_ms=lease_ms)
    force_setattr(rule, "retries", "3")
    force_setattr(rule, "exit", "dlq")
    force_setattr(settings, "contract", {"E": rule})
    return settings


OLD_RECORDS: list[tuple[AnyRecord, AnyRecord]] = [
    (
        Returned(2, 5, "default/a", "nack", [3, 4], [wrong(10.5), 11], []),
        Returned(2, 5, "default/a", "nack", [3, 4], [11, 11], []),
    ),
    (
        Returned(1, 5, "default/a", "nack", [3], [10], [Failure(1, 5, wrong(503), "busy")]),
        Returned(1, 5, "default/a", "nack", [3], [10], [Failure(1, 5, "503", "busy")]),
    ),
    (
        DeadLettered(2, 5, "default/a", [3, 4], "x", [Failure(1, 5, "nack", wrong(404)), None]),
        DeadLettered(2, 5, "default/a", [3, 4], "x", [Failure(1, 5, "nack", "404"), None]),
    ),
    (Dropped(1, 5, "default/a", [3], wrong(503)), Dropped(1, 5, "default/a", [3], "503")),
    (
        MailboxOpened(1, 5, "default/a", bad_settings()),
        MailboxOpened(1, 5, "default/a", MailboxSettings(contract=RULES)),
    ),
    (
        Subscribed(1, 5, "default/t", "default/t:a", bad_settings(500)),
        Subscribed(1, 5, "default/t", "default/t:a", MailboxSettings(contract=RULES, lease_ms=500)),
    ),
    (
        Granted(1, 5, "default/a", "p", 7, [3], False, wrong(500.5)),
        Granted(1, 5, "default/a", "p", 7, [3], False, 501),
    ),
]


@pytest.mark.parametrize(("old", "new"), OLD_RECORDS)
def test_an_old_form_of_a_record_reads_as_its_value_of_today(old: AnyRecord, new: AnyRecord) -> None:
    acked = Acked(1, 6, "default/a", [3])
    assert decode_records(msgspec.msgpack.encode([acked, old, acked])) == [acked, new, acked]


def test_old_forms_in_checkpoints_read_as_values_of_today() -> None:
    failure, read = Failure(1, 5, wrong(503), wrong(404)), Failure(1, 5, "503", "404")
    held = Held(7, "p", wrong(99.5), False, wrong(10.5))
    entry = EntryPiece(ENVELOPE, 3, 5, 5, wrong(10.5), 3, 3, True, failures=[failure], held=held)
    piece = EntriesPiece("default/a", [entry])
    assert decode_piece(msgspec.msgpack.encode(piece)) == EntriesPiece(
        "default/a",
        [EntryPiece(ENVELOPE, 3, 5, 5, 11, 3, 3, True, failures=[read], held=Held(7, "p", 100, False, 11))],
    )
    letter = DeadLetter("default/a", 3, 4, 5, 5, "x", ENVELOPE, 1, 0, [failure])
    letters = decode_piece(msgspec.msgpack.encode(LettersPiece([letter])))
    assert letters == LettersPiece([msgspec.structs.replace(letter, failures=[read])])
    mailbox = MailboxPiece("default/a", bad_settings(), Counters(), [])
    opened = decode_piece(msgspec.msgpack.encode(mailbox))
    assert isinstance(opened, MailboxPiece)
    assert opened.settings == MailboxSettings(contract=RULES)


@pytest.mark.parametrize(
    "record",
    [
        [10, 1, 5, "default/a", "nack", [3], ["soon"], []],
        [10, 1, 5, "default/a", "nack", [3], [float("nan")], []],
        [10, 1, 5.5, "default/a", "nack", [3], [10], []],
        [10, 1, 5, "default/a", "nack", [3], [10], [["one", 5, "503"]]],
        [8, 1, 5, "default/a", [3.5]],
        [2, 1, 5, "default/a", [100, 100, "sideways"]],
        [2, 1, 5, "default/a", [100, 100, "fifo", 1, 0, None, 1, 1, 0.5, 1, False, False, "at_least_once",
            "reject", {"E": ["three"]}]],
    ],
)  # fmt: skip
def test_what_is_not_listed_stays_unreadable(record: list[object]) -> None:
    payload = msgspec.msgpack.encode([record])
    with pytest.raises(RecordUnreadable, match=rf"operation {record[0]} "):
        decode_records(payload)
    (found,) = read_records(payload)
    assert isinstance(found, Unreadable)
    assert (found.operation, found.count, found.raw) == (record[0], 1, msgspec.msgpack.encode(record))


def test_an_operation_that_is_not_known_is_one_of_a_newer_version() -> None:
    with pytest.raises(FormatTooNew, match="operation 100 "):
        decode_records(msgspec.msgpack.encode([[100, 1, 0]]))


def test_a_piece_that_is_not_listed_is_damage() -> None:
    with pytest.raises(JournalDamaged, match="cannot be read"):
        decode_piece(msgspec.msgpack.encode([3, "default/a", [["no entry"]]]))


def test_every_listed_form_names_a_field_and_a_release() -> None:
    for (kind, field), form in OLD_FORMS.items():
        assert field in kind.__struct_fields__  # type: ignore[attr-defined]
        assert form.written_by
        assert form.example


def test_a_time_beyond_the_bound_is_cut_to_it() -> None:
    assert OLD_FORMS[Returned, "due"].read(2**64 - 1) == MOMENT_MS_MAX
