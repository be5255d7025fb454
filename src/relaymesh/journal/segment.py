"""The segment: one file of frames, whose first frame is its header and seals the segment before it.

A segment is written and synced under an unfinished name and then renamed. So a file with a
segment's name always has a whole header, and whatever lay in it at that moment is durable: a bad
header is damage, never a torn write.

The header's payload, behind a frame header of kind SEGMENT:

    offset size field
         0    8 number               of this segment: one more than its predecessor's
         8    8 predecessor          its number; 0 when there is none
        16    8 predecessor's first sequence
        24    8 seal                 the predecessor's data ends at this offset; nothing behind it counts

In the frame header the `mark` is where the data that was durable when the segment got its name ends,
and the previous CRC is that of the predecessor's last frame before the seal.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from relaymesh.journal.disk import Disk, File, is_full
from relaymesh.journal.frame import DATA, HEADER_BYTES, SEGMENT, BadFrame, Frame, encode
from relaymesh.journal.layout import ARCHIVE, JOURNAL, NEW

__all__ = [
    "FIRST_SEQUENCE",
    "LiveSegment",
    "Located",
    "Seal",
    "SegmentHead",
    "SegmentName",
    "list_segments",
    "make_segment",
    "open_segment",
    "parse_head",
    "publish_segment",
]

log = logging.getLogger("relaymesh.journal")

FIRST_SEQUENCE = 1
"""The first event of a journal: 0 stays free to mean "none"."""

_PAYLOAD = struct.Struct("<QQQQ")
HEAD_BYTES = HEADER_BYTES + _PAYLOAD.size
_NAME = re.compile(r"(\d{12})-(\d{20})\.rmj")


class SegmentName(NamedTuple):
    """Number and first sequence: a sorted listing is the journal's order, and finds a sequence unopened."""

    number: int
    first_sequence: int

    @property
    def file(self) -> str:
        return f"{self.number:012d}-{self.first_sequence:020d}.rmj"

    @classmethod
    def parse(cls, file: str) -> SegmentName | None:
        match = _NAME.fullmatch(file)
        return cls(int(match[1]), int(match[2])) if match else None


class Located(NamedTuple):
    """A segment and the folder it was seen in."""

    name: SegmentName
    folder: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name.file}"


class Seal(NamedTuple):
    """Where a segment's data ends, and the CRC of its last frame."""

    segment: SegmentName
    offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """A segment's header as read. `durable` is where the data that came with its name ends."""

    name: SegmentName
    salt: int
    epoch: int
    created_at_ns: int
    crc: int
    durable: int
    seal: Seal | None


@dataclass(slots=True)
class LiveSegment:
    """The segment that is written to: its file, and where and after what the next frame goes."""

    name: SegmentName
    file: File
    salt: int
    epoch: int
    offset: int
    crc: int
    next_sequence: int
    allocated: int
    zeroed: int = 0
    """Zeros are written up to here."""

    @property
    def path(self) -> str:
        return f"{JOURNAL}/{self.name.file}"


def list_segments(disk: Disk) -> list[Located]:
    """All segments in journal order, wherever they lie.

    `journal/` is listed first: a segment that a node archives in between is then seen twice, not never.
    """
    found: dict[int, Located] = {}
    for folder in (JOURNAL, ARCHIVE):
        for file in disk.list(folder):
            name = SegmentName.parse(file)
            if name is not None:
                found.setdefault(name.number, Located(name, folder))
    return [found[number] for number in sorted(found)]


def open_segment(disk: Disk, segment: Located) -> File:
    """Open a listed segment for reading, also when it was archived since."""
    try:
        return disk.open(segment.path, write=False)
    except FileNotFoundError:
        return disk.open(f"{ARCHIVE}/{segment.name.file}", write=False)


def parse_head(frame: Frame, name: SegmentName) -> SegmentHead:
    """The header that must begin the segment called `name`; raises `BadFrame`."""
    if frame.kind != SEGMENT or len(frame.payload) != _PAYLOAD.size:
        raise BadFrame("the segment does not begin with a segment header")
    number, before, before_sequence, seal_offset = _PAYLOAD.unpack(frame.payload)
    if number != name.number or frame.first_sequence != name.first_sequence:
        raise BadFrame("the segment header belongs to another segment")
    seal = Seal(SegmentName(before, before_sequence), seal_offset, frame.previous_crc) if before else None
    return SegmentHead(name, frame.salt, frame.epoch, frame.written_at_ns, frame.crc, frame.mark, seal)


def make_segment(
    disk: Disk,
    name: SegmentName,
    *,
    seal: Seal | None,
    epoch: int,
    now_ns: int,
    allocate_bytes: int,
    tail: Iterable[Frame] = (),
    tail_bytes: int = 0,
) -> LiveSegment:
    """Write a segment with its header and the frames of `tail` under its unfinished name, and sync it.

    It does not count before `publish_segment`; until then any failure leaves the journal as it was.
    The live segment returned has no usable file yet.
    """
    salt = disk.salt()
    before, seal_offset, seal_crc = seal or (SegmentName(0, 0), 0, 0)
    payload = _PAYLOAD.pack(name.number, *before, seal_offset)
    durable = HEAD_BYTES + tail_bytes
    data, crc = encode(
        payload,
        kind=SEGMENT,
        salt=salt,
        epoch=epoch,
        events=0,
        first_sequence=name.first_sequence,
        mark=durable,
        written_at_ns=now_ns,
        previous_crc=seal_crc,
    )
    file = disk.open(f"{JOURNAL}/{name.file}{NEW}", create=True)
    live = LiveSegment(name, file, salt, epoch, 0, 0, name.first_sequence, 0)
    try:
        _allocate_ahead(live, max(allocate_bytes, durable) if allocate_bytes else 0)
        write_frame(live, data, crc, 0)
        for frame in tail:
            data, crc = next_frame(live, frame.payload, frame.events, durable, frame.written_at_ns)
            write_frame(live, data, crc, frame.events)
        file.sync()
    finally:
        file.close()
    return live


def _allocate_ahead(live: LiveSegment, size: int) -> None:
    try:
        live.file.allocate(size)
        live.allocated = size
    except OSError as error:
        if not is_full(error):
            raise
        # Not allocated is only slower. The writer asks again at its first frame, and then refuses publishes.


def publish_segment(disk: Disk, live: LiveSegment) -> None:
    """Give a made segment its name, durably, and open it. A failure here is final: the name may be out."""
    disk.rename(live.path + NEW, live.path)
    disk.sync_folder(JOURNAL)
    live.file = disk.open(live.path)


def give_back_zeros(disk: Disk, path: str, data_end: int) -> None:
    """Free what was allocated ahead in a sealed segment: only zeros lie there, so a failure is no loss."""
    try:
        file = disk.open(path)
        try:
            file.truncate(data_end)
        finally:
            file.close()
    except OSError as error:
        log.warning("%s keeps the space allocated behind its data: %s", path, error)


def next_frame(
    live: LiveSegment, payload: bytes, events: int, mark: int, now_ns: int, before: bytes = b""
) -> tuple[bytes, int]:
    """The bytes and CRC of the data frame that continues `live`; its payload is `before` and `payload`."""
    return encode(
        payload,
        kind=DATA,
        salt=live.salt,
        epoch=live.epoch,
        events=events,
        first_sequence=live.next_sequence,
        mark=mark,
        written_at_ns=now_ns,
        previous_crc=live.crc,
        before=before,
    )


LARGE_BYTES = 1_048_576
"""A larger frame is not copied to be written together with zeros: the copy takes longer than a call."""


def write_frame(live: LiveSegment, data: bytes, crc: int, events: int, zeros: int = 0) -> None:
    """Write an encoded frame at the segment's end and move the end behind it; `zeros` follow it."""
    if zeros and len(data) > LARGE_BYTES:
        live.file.write_at(data, live.offset)
        live.file.write_at(bytes(zeros), live.offset + len(data))
    else:
        live.file.write_at(data + bytes(zeros) if zeros else data, live.offset)
    live.offset += len(data)
    live.crc = crc
    live.next_sequence += events
