"""The crash-point enumerator: a bounded part of its states, and proof that it would notice.

`python -m relaymesh.testing.crashes --states 500000` recovers the rest: docs/explanation/crash-points.md.
"""

from __future__ import annotations

import json
import logging
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from relaymesh.journal import frame, recovery, verdict, writer
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame, Frame
from relaymesh.journal.scan import Walk
from relaymesh.journal.segment import LiveSegment, SegmentHead
from relaymesh.testing import crashes
from relaymesh.testing.enumeration import flips
from relaymesh.testing.enumeration.choices import paged, torn
from relaymesh.testing.enumeration.lives import LIVES, Scribe, recorded
from relaymesh.testing.enumeration.platter import Change, Platter
from relaymesh.testing.enumeration.recording import (
    FolderSynced,
    Named,
    Promise,
    RecordingDisk,
    Resized,
    Synced,
    Wrote,
)
from relaymesh.testing.enumeration.search import replay, search
from relaymesh.testing.enumeration.states import Moment, Thinning, crash_states, digest, moments


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


# The run itself


@pytest.mark.slow
def test_thousands_of_crash_states_of_every_life_are_recovered() -> None:
    found = search(12_000)
    assert found.failures == []
    assert len(found.digests) >= 12_000
    assert found.by_life.keys() == {life.name for life in LIVES} | {"inside a recovery"}
    assert found.recoveries >= len(found.digests)


def test_the_lives_do_what_they_are_named_for() -> None:
    discs = {life.name: recorded(life) for life in LIVES}
    names = {name: [call for call in disk.calls if isinstance(call, Named)] for name, disk in discs.items()}
    assert sum(call.new is not None and call.new.endswith(".rmj") for call in names["rotation"]) >= 4
    assert sum(call.new is not None and call.new.endswith(".rmc") for call in names["checkpoint"]) >= 3
    moved = [call for call in names["archive"] if (call.new or "").startswith("archive/")]
    dropped = [call for call in names["archive"] if (call.old or "").startswith("archive/") and not call.new]
    assert moved
    assert dropped
    assert discs["restart"].promises[-1].epoch == 3
    assert discs["killed"].promises[-1].epoch == 3
    assert any(isinstance(call, Resized) for call in discs["publish"].calls)
    assert not any(isinstance(call, Resized) for call in discs["no-allocation"].calls)


# What a crash may leave


def moment(*calls: Any, files: dict[str, bytes] | None = None) -> Moment:
    disk = RecordingDisk(files or {}, Promise(0, 0, 0))
    disk.calls = list(calls)
    disk.promises = [Promise(0, 0, 0)] * (len(calls) + 1)
    return moments(disk)[-1]


def left(at: Moment) -> list[dict[str, bytes]]:
    return [state.files for state in crash_states(at, (4,), Thinning())]


def test_what_is_synced_is_in_every_state() -> None:
    at = moment(Wrote(0, 0, b"durable"), Synced(0), Wrote(0, 7, b"maybe"), files={"a": b""})
    states = left(at)
    assert all(state["a"].startswith(b"durable"[: len(state["a"])]) for state in states)
    assert {b"durable" + b"maybe"[:length] for length in range(6)} <= {state["a"] for state in states}


def test_a_name_is_durable_with_its_folder_and_not_before() -> None:
    made = (Named(None, "x/a", 0), Wrote(0, 0, b"1"), Synced(0))
    assert {} in left(moment(*made))
    assert all("x/a" in state for state in left(moment(*made, FolderSynced("x"))))
    assert {} in left(moment(*made, FolderSynced("y")))


def test_a_rename_between_folders_may_be_seen_from_both() -> None:
    moved = moment(Named("x/a", "y/a", 0), files={"x/a": b"1"})
    assert {frozenset(state) for state in left(moved)} == {
        frozenset({"x/a"}), frozenset({"y/a"}), frozenset({"x/a", "y/a"}),
    }  # fmt: skip
    half = moment(Named("x/a", "y/a", 0), FolderSynced("y"), files={"x/a": b"1"})
    assert {frozenset(state) for state in left(half)} == {frozenset({"y/a"}), frozenset({"x/a", "y/a"})}
    whole = moment(Named("x/a", "y/a", 0), FolderSynced("y"), FolderSynced("x"), files={"x/a": b"1"})
    assert left(whole) == [{"y/a": b"1"}]


def test_a_write_is_torn_at_every_byte_with_and_without_the_space_ahead() -> None:
    changes: list[Change] = [Resized(0, 10), Wrote(0, 2, b"abcd")]
    found = list(torn(b"..", changes))
    assert found[::2] == [b".." + b"abcd"[:n].ljust(8, b"\0") for n in range(4)]
    assert found[1::2] == [b".." + b"abcd"[:n] for n in range(4)]


def test_a_later_page_may_be_there_without_an_earlier_one() -> None:
    changes = [Wrote(0, 0, b"aaaa"), Wrote(0, 4, b"bbbb"), Wrote(0, 6, b"BB")]
    found = set(paged(b"", changes, 4, b"", random.Random(0)))
    assert {b"\0\0\0\0bbBB", b"aaaa\0\0\0\0", b"aaaabbbb", b"aaaabbBB", bytes(8)} <= found


def test_pages_that_were_never_written_may_hold_what_lay_there_before() -> None:
    found = set(paged(b"", [Wrote(0, 0, b"aaaabbbb")], 4, b"OLD!", random.Random(0)))
    assert b"OLD!bbbb" in found


def test_of_too_many_pages_the_telling_choices_are_kept() -> None:
    pages = [bytes([65 + n]) * 4 for n in range(20)]
    found = set(paged(b"", [Wrote(0, 0, b"".join(pages))], 4, b"", random.Random(0)))
    for missing in range(20):
        assert b"".join(bytes(4) if n == missing else page for n, page in enumerate(pages)) in found


def test_a_digest_tells_names_and_bytes_apart() -> None:
    assert digest([("a", b"1"), ("b", b"2")]) == digest([("b", b"2"), ("a", b"1")])
    different = [[("a", b"1")], [("b", b"1")], [("a", b"2")], [("a", b"1"), ("b", b"")], [("a", b"")]]
    assert len({digest(each) for each in different}) == len(different)


def test_the_platter_follows_a_recording_to_the_same_bytes() -> None:
    for life in LIVES:
        disk = recorded(life)
        platter = Platter(disk.at_first, disk.first_numbers)
        for call in disk.calls:
            platter.apply(call)
        assert disk.files in left(Moment(0, platter, disk.promises[-1], None)), life.name


# It notices


def sync_nothing(self: writer.Writer) -> None:
    self._synced = self._written
    self._write_mark()


def publish_unsynced(disk: Disk, live: LiveSegment) -> None:
    disk.rename(live.path + ".new", live.path)
    live.file = disk.open(live.path)


def no_checksum(*_: object) -> int:
    return 0


def epoch_not_written(disk: Disk, epoch: int) -> None:
    pass


def never_broken(self: Walk, frame: object) -> None:
    pass


PLANTED: dict[str, list[tuple[Any, str, Any]]] = {
    "a receipt before the sync": [(writer.Writer, "_sync", sync_nothing)],
    "no sync of the folder": [
        (recovery, "publish_segment", publish_unsynced),
        (writer, "publish_segment", publish_unsynced),
    ],
    "no checksum": [(frame, "crc32c", no_checksum)],
    "an epoch given out again": [(recovery, "write_epoch", epoch_not_written)],
    "whatever is whole is taken": [(Walk, "_break", never_broken)],
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_can_be_replayed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name, replacement in PLANTED[bug]:
        monkeypatch.setattr(place, name, replacement)
    found = search(20_000, failures_max=1)
    assert found.failures, f"{len(found.digests)} states, and nobody noticed {bug}"
    first = found.failures[0]
    assert replay(first.place) == first
    monkeypatch.undo()


def test_a_place_without_a_bug_replays_clean() -> None:
    life = LIVES[0]
    at = moments(recorded(life))[30]
    state = next(crash_states(at, life.pages, Thinning()))
    assert replay(f"{life.name}:30:{state.digest:x}") is None
    with pytest.raises(LookupError, match="no crash state"):
        replay(f"{life.name}:30:1234")


def test_the_last_line_is_json_and_the_exit_code_tells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashes.main(["--states", "300"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["distinct"] >= 300
    assert (result["silent"], result["failed"]) == (0, 0)
    assert {"states", "recoveries", "refused", "took_s"} <= result.keys()
    monkeypatch.setattr(writer.Writer, "_sync", sync_nothing)
    assert crashes.main(["--states", "3000", "--json"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1])["failed"] > 0
    place = next(line for line in lines if "--replay" in line).rpartition(" ")[2]
    assert crashes.main(["--replay", place]) == 1
    monkeypatch.undo()
    assert crashes.main(["--states", "200", "--jobs", "2", "--json"]) == 0


# The bits of 64 KiB


@pytest.mark.slow
@pytest.mark.parametrize("mark", [True, False], ids=["with mark", "without mark"])
def test_every_fifty_third_bit_of_64_kib_gets_its_verdict(mark: bool) -> None:
    logging.disable(logging.NOTSET)
    journal = flips.journal_of_64_kib(mark=mark)
    assert journal.bits == 524_288
    found = flips.flip_bits(journal, step=53)
    assert found.failures == []
    assert (found.silent, found.unexpected) == (0, 0)
    assert found.verdicts.total() == -(-524_288 // 53)
    assert found.verdicts.keys() == {"refused", "torn tail", "whole"}
    assert (found.known_limit > 0) == (not mark), "the one bold cell of docs/formats/journal.md"


def test_the_bits_are_shared_out_without_gap_or_overlap() -> None:
    journal = flips.journal_of_64_kib(mark=True)
    parts = [list(flips.bits_of(journal, part, None, 3001 * 7)) for part in range(0, 3001 * 7, 3001)]
    shared = [bit for part in parts for bit in part]
    assert sorted(shared) == sorted(flips.bits_of(journal, 0, None, 3001))


def test_damage_taken_for_a_torn_tail_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable(logging.NOTSET)

    def forgiving(reader: Any, head: SegmentHead, walk: Walk, marked: int) -> verdict.LiveEnd:
        torn = verdict.TornTail(reader.segment.path, walk.offset, 1, "whatever")
        return verdict.LiveEnd(head.durable, walk.offset, walk.crc, torn if walk.why else None)

    monkeypatch.setattr(recovery, "judge_live", forgiving)
    found = flips.flip_bits(flips.journal_of_64_kib(mark=True), step=5_003)
    assert found.unexpected > 0


def test_a_skipped_checksum_is_a_silent_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable(logging.NOTSET)

    def unchecked(data: bytes, *, segment: str = "", offset: int = 0) -> Frame:
        if len(data) != 64 + int.from_bytes(data[24:28], "little"):
            raise BadFrame("too long")
        _, _, kind, _, *fields, crc = struct.unpack_from("<4sBBHQQIIQQQII", data)
        salt, epoch, _, events, first, mark, at, before = fields
        return Frame(
            kind, salt, epoch, events, first, mark, at, before, crc, bytes(data[64:]), segment, offset
        )

    monkeypatch.setattr("relaymesh.journal.scan.decode", unchecked)
    assert flips.flip_bits(flips.journal_of_64_kib(mark=True), step=5_003).silent > 0


def test_a_scribe_must_start_first() -> None:
    life = LIVES[0]
    with pytest.raises(Exception, match="writes before it starts"):
        Scribe(life, RecordingDisk({}, Promise(0, 0, 0))).append()
