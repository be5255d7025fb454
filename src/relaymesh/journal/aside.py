"""Records set aside: a file that lists what a reader passes over, so that no byte of a segment changes.

    {"sequence": 41, "count": 1, "operation": 10, "segment": "000000000001-00000000000000000001.rmj",
     "offset": 1830, "record": 0, "salt": "9f2c…", "digest": "sha256 of the record's bytes",
     "reason": "…", "at": "2026-01-02T03:04:05Z", "by": "root"}

One JSON object a line, in order of sequence. A line counts only for a record that really cannot be read and
whose bytes have the digest: a file that says anything else does not belong to this journal, and every reader
refuses it. `segment`, `offset` and `salt` say where the record lay; a start may since have written the frame
again into the next segment, with the bytes unchanged.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from relaymesh.errors import AsideInvalid, FormatTooNew, JournalDamaged, RecordUnreadable
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import Frame
from relaymesh.journal.layout import ASIDE, NEW
from relaymesh.kernel.records import AnyRecord
from relaymesh.wire.records import Skipped, Unreadable, decode_records, read_records

__all__ = ["Aside", "AsideLine", "line_for", "read_aside", "write_aside"]

BYTES_MAX = 64 << 20


class AsideLine(msgspec.Struct, frozen=True, kw_only=True):
    """One record set aside."""

    sequence: int
    count: int
    operation: int
    segment: str
    offset: int
    record: int
    salt: str
    digest: str
    reason: str
    at: str
    by: str


_decode_line = msgspec.json.Decoder(AsideLine).decode


class Aside:
    """The lines of the file. `records` is the one rule by which readers pass over records."""

    __slots__ = ("_sequences", "lines")

    def __init__(self, lines: Iterable[AsideLine] = ()) -> None:
        self.lines = {line.sequence: line for line in sorted(lines, key=lambda line: line.sequence)}
        self._sequences = list(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def records(self, frame: Frame) -> Sequence[AnyRecord | Skipped | Unreadable]:
        """The records of a frame; an `Unreadable` among them is set aside.

        Raises `RecordUnreadable` or `FormatTooNew` for one that is not, with its place, and `AsideInvalid`
        for a line that does not fit.
        """
        if not self.lines or not self._within(frame.first_sequence, frame.next_sequence):
            try:
                return decode_records(frame.payload)
            except (RecordUnreadable, FormatTooNew, JournalDamaged):
                pass  # once more, to name the place
        found = self.sort_out(frame)
        for index, sequence, record in found:
            if isinstance(record, Unreadable) and sequence not in self.lines:
                raise record.error(place_of(frame, index, sequence), sequence)
        return [record for _, _, record in found]

    def sort_out(self, frame: Frame) -> list[tuple[int, int, AnyRecord | Skipped | Unreadable]]:
        """Each record of a frame with its place in it and its first sequence, set aside or not."""
        found: list[tuple[int, int, AnyRecord | Skipped | Unreadable]] = []
        sequence = frame.first_sequence
        named = set(self._within(frame.first_sequence, frame.next_sequence))
        for index, record in enumerate(_read(frame)):
            line = self.lines.get(sequence) if sequence in named and record.count else None
            if line is not None:
                named.discard(sequence)
                _check(line, frame, record)
            found.append((index, sequence, record))
            sequence += record.count
        if named:
            raise AsideInvalid(f"{ASIDE} names sequence {min(named)}, where no record begins")
        return found

    def check_end(self, next_sequence: int) -> None:
        """Raise `AsideInvalid` for a line behind the journal's end."""
        if self._sequences and self._sequences[-1] >= next_sequence:
            raise AsideInvalid(
                f"{ASIDE} names sequence {self._sequences[-1]}, but the journal ends before {next_sequence}"
            )

    def _within(self, first: int, end: int) -> list[int]:
        return self._sequences[bisect_left(self._sequences, first) : bisect_left(self._sequences, end)]


def _read(frame: Frame) -> Sequence[AnyRecord | Skipped | Unreadable]:
    try:
        return read_records(frame.payload)
    except JournalDamaged as error:
        raise JournalDamaged(f"{frame.segment} at offset {frame.offset}: {error.message}") from error


def place_of(frame: Frame, index: int, sequence: int) -> str:
    """Where a record lies, in words."""
    return f"{frame.segment} at offset {frame.offset}, record {index}, sequence {sequence}"


def line_for(
    frame: Frame, index: int, sequence: int, record: Unreadable, *, reason: str, at: str, by: str
) -> AsideLine:
    return AsideLine(
        sequence=sequence,
        count=record.count,
        operation=record.operation,
        segment=_file_of(frame),
        offset=frame.offset,
        record=index,
        salt=f"{frame.salt:016x}",
        digest=hashlib.sha256(record.raw).hexdigest(),
        reason=reason,
        at=at,
        by=by,
    )


def _file_of(frame: Frame) -> str:
    return frame.segment.rpartition("/")[2]


def _check(line: AsideLine, frame: Frame, record: AnyRecord | Skipped | Unreadable) -> None:
    where = f"{ASIDE} names sequence {line.sequence}"
    if not isinstance(record, Unreadable):
        raise AsideInvalid(f"{where}, a record that can be read")
    if not record.known:
        raise AsideInvalid(f"{where}, a record of a newer version, which may not be set aside")
    same_place = line.segment == _file_of(frame)
    if same_place and (line.offset, line.salt) != (frame.offset, f"{frame.salt:016x}"):
        raise AsideInvalid(f"{where}, but {line.segment} has another salt or another frame there")
    said = (line.operation, line.count, line.digest)
    if said != (record.operation, record.count, hashlib.sha256(record.raw).hexdigest()):
        raise AsideInvalid(f"{where}, but the record there is another one than the line describes")


def read_aside(disk: Disk) -> Aside:
    """The file of a data directory; none at all is an empty one. Raises `AsideInvalid`."""
    if not disk.exists(ASIDE):
        return Aside()
    try:
        file = disk.open(ASIDE, write=False)
        try:
            data = file.read_at(0, min(file.size(), BYTES_MAX))
        finally:
            file.close()
    except OSError as error:
        raise AsideInvalid(f"{ASIDE} cannot be read: {error}") from error
    lines: list[AsideLine] = []
    for number, text in enumerate(data.splitlines(), 1):
        try:
            lines.append(_decode_line(text))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AsideInvalid(f"line {number} of {ASIDE} cannot be read: {error}") from error
    if len({line.sequence for line in lines}) != len(lines):
        raise AsideInvalid(f"{ASIDE} names a sequence twice")
    return Aside(lines)


def write_aside(disk: Disk, aside: Aside) -> None:
    """Replace the file durably."""
    file = disk.open(ASIDE + NEW, create=True)
    try:
        file.write_at(b"".join(msgspec.json.encode(line) + b"\n" for line in aside.lines.values()), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(ASIDE + NEW, ASIDE)
    disk.sync_folder("")
