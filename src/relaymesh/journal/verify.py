"""Verification: read every byte in both folders and report, without stopping at the first damage."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaymesh.errors import AsideInvalid, JournalDamaged
from relaymesh.journal.aside import Aside, AsideLine, line_for, read_aside
from relaymesh.journal.checkpoint import checkpoint_chunks, checkpoint_path, list_checkpoints, read_checkpoint
from relaymesh.journal.disk import Disk
from relaymesh.journal.epoch import read_epoch
from relaymesh.journal.frame import BadFrame, Frame
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.layout import ASIDE, EPOCH, INCOMPLETE, MARK, MESH, pairs_in
from relaymesh.journal.mark import Mark, read_mark
from relaymesh.journal.payloads import check_payload
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import Located, SegmentHead, list_segments
from relaymesh.journal.verdict import Damage, TornTail, judge_link, judge_live, judge_sealed, read_head
from relaymesh.kernel.payload import REFERENCE_MARK, Reference
from relaymesh.wire.payload import named_in
from relaymesh.wire.records import Unreadable, read_records
from relaymesh.wire.snapshot import decode_piece

__all__ = ["Report", "UnreadableAt", "verify"]


@dataclass(frozen=True, slots=True)
class UnreadableAt:
    """A record that cannot be read, where it lies, and whether it is set aside."""

    record: Unreadable
    line: AsideLine
    """Its line in the file of records set aside, or the one it would have."""
    set_aside: bool


@dataclass(slots=True)
class Report:
    """What `verify` found. `damage` is empty when every acknowledged byte reads back.

    Beside a running node the live segment's unsynced end may look torn: that is a write under way.
    """

    segments: int = 0
    frames: int = 0
    events: int = 0
    bytes: int = 0
    first_sequence: int | None = None
    next_sequence: int | None = None
    checkpoints: int = 0
    torn_tail: TornTail | None = None
    damage: list[Damage] = field(default_factory=list)
    found: list[UnreadableAt] = field(default_factory=list)
    """Records that cannot be read, set aside or not; looked for only when `verify` is told to."""
    aside: Aside | None = None
    payloads: dict[str, Reference] = field(default_factory=dict)
    """The payload files that are named, by SHA-256."""

    @property
    def unreadable(self) -> list[UnreadableAt]:
        """Those that stop a start."""
        return [each for each in self.found if not each.set_aside]

    @property
    def set_aside(self) -> list[UnreadableAt]:
        return [each for each in self.found if each.set_aside]

    def count(self, frame: Frame) -> None:
        self.frames += 1
        self.events += frame.events
        self.bytes += frame.end - frame.offset
        self.next_sequence = frame.next_sequence
        if REFERENCE_MARK in frame.payload:
            for record in read_records(frame.payload):
                self.name(record)
        if self.aside is not None:
            self._look_into(frame, self.aside)

    def name(self, value: object) -> None:
        """Note the payload files that a record or a piece of a checkpoint names."""
        for reference in named_in(value):
            self.payloads[reference.sha256] = reference

    def _look_into(self, frame: Frame, aside: Aside) -> None:
        try:
            records = aside.sort_out(frame)
        except JournalDamaged as error:
            self.damage.append(Damage(frame.segment, frame.offset, error.message))
            return
        except AsideInvalid as error:
            self.damage.append(Damage(ASIDE, 0, error.message))
            return
        for index, sequence, record in records:
            if isinstance(record, Unreadable):
                line = aside.lines.get(sequence)
                new = line_for(frame, index, sequence, record, reason="", at="", by="")
                self.found.append(UnreadableAt(record, line or new, line is not None))


def verify(disk: Disk, *, records: bool = False) -> Report:
    """Check every segment, checkpoint, the mark and the epoch. Damage is reported, not raised.

    `records`: also decode each record, and report those that cannot be read.
    """
    report = Report()
    if records:
        _read_aside(disk, report)
    mark = read_mark(disk)
    segments = list_segments(disk)
    heads = [_head(disk, segment, report) for segment in segments]
    for index, (segment, head) in enumerate(zip(segments, heads, strict=True)):
        last = index + 1 == len(segments)
        if head is not None:
            _verify_segment(disk, segment, head, None if last else heads[index + 1], last, mark, report)
    _verify_links(segments, heads, report)
    if mark is not None and mark.segment > (segments[-1].name.number if segments else 0):
        report.damage.append(Damage(MARK, 0, f"segment {mark.segment}, which the mark names, is missing"))
    _verify_other_files(disk, mark, report)
    _verify_payloads(disk, report)
    if report.aside is not None and not report.damage:
        try:
            report.aside.check_end(report.next_sequence or 0)
        except AsideInvalid as error:
            report.damage.append(Damage(ASIDE, 0, error.message))
    return report


def _read_aside(disk: Disk, report: Report) -> None:
    try:
        report.aside = read_aside(disk)
    except AsideInvalid as error:
        report.aside = Aside()
        report.damage.append(Damage(ASIDE, 0, error.message))


def _head(disk: Disk, segment: Located, report: Report) -> SegmentHead | None:
    report.segments += 1
    if report.first_sequence is None:
        report.first_sequence = report.next_sequence = segment.name.first_sequence
    try:
        head = read_head(disk, segment)
    except JournalDamaged as error:
        head = Damage(segment.path, 0, error.message)
    if isinstance(head, Damage):
        report.damage.append(head)
        return None
    return head


def _verify_segment(
    disk: Disk,
    segment: Located,
    head: SegmentHead,
    successor: SegmentHead | None,
    last: bool,
    mark: Mark | None,
    report: Report,
) -> None:
    seal = successor.seal if successor else None
    try:
        with SegmentReader(disk, segment) as reader:
            walk = Walk(reader.window, head, seal.offset if seal else None)
            for frame in walk:
                report.count(frame)
            if seal and successor:
                damage = judge_sealed(segment.path, walk, seal, successor)
            elif last:
                marked = mark.offset if mark and mark.segment == head.name.number else 0
                end = judge_live(reader, head, walk, marked)
                damage = end if isinstance(end, Damage) else None
                report.torn_tail = None if isinstance(end, Damage) else end.torn
            else:
                damage = Damage(segment.path, walk.offset, walk.why) if walk.why else None
            if damage:
                report.damage.append(damage)
                _look_behind(reader, head, walk, seal.offset if seal else None, report)
    except JournalDamaged as error:
        report.damage.append(Damage(segment.path, 0, error.message))


def _look_behind(
    reader: SegmentReader, head: SegmentHead, walk: Walk, end: int | None, report: Report
) -> None:
    """Count the frames that are still whole behind the first damage, and name each further bad stretch."""
    expected: int | None = None
    for frame in reader.whole_frames(walk.offset + 1, head.salt):
        if end is not None and frame.offset >= end:
            return
        if expected is not None and frame.offset != expected:
            why = f"{frame.offset - expected} bytes are no frame"
            report.damage.append(Damage(reader.segment.path, expected, why))
        expected = frame.end
        report.count(frame)


def _verify_links(segments: list[Located], heads: list[SegmentHead | None], report: Report) -> None:
    for segment, head, successor in zip(segments[1:], heads, heads[1:], strict=False):
        broken = judge_link(segment.path, head, successor) if head and successor else None
        if broken:
            report.damage.append(broken)


def _verify_other_files(disk: Disk, mark: Mark | None, report: Report) -> None:
    if disk.exists(INCOMPLETE):
        why = pairs_in(disk, INCOMPLETE).get("why", "it was being filled")
        report.damage.append(Damage(INCOMPLETE, 0, f"the directory is not complete: {why}"))
    if mark is None and disk.exists(MARK):
        report.damage.append(Damage(MARK, 0, "the mark file is not whole"))
    if disk.exists(MESH) and read_mesh_id(disk) is None:
        report.damage.append(Damage(MESH, 0, "the mesh id is not whole"))
    if disk.exists(EPOCH) and read_epoch(disk) is None:
        report.damage.append(Damage(EPOCH, 0, "the epoch file is not whole"))
    for sequence in list_checkpoints(disk):
        report.checkpoints += 1
        try:
            for chunk in checkpoint_chunks(disk, read_checkpoint(disk, sequence)):
                if REFERENCE_MARK in chunk:
                    report.name(decode_piece(chunk))
        except (BadFrame, OSError, JournalDamaged) as error:
            report.damage.append(Damage(checkpoint_path(sequence), 0, str(error)))


def _verify_payloads(disk: Disk, report: Report) -> None:
    """Read every payload file that is named."""
    for name in sorted(report.payloads):
        if why := check_payload(disk, report.payloads[name]):
            report.damage.append(Damage(report.payloads[name].path, 0, why))
