"""What a start gets wrong: damage believed, acknowledged data dropped, state forgotten."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from crc32c import crc32c

from relaymesh.journal import recovery, scan, verdict
from relaymesh.journal.checkpoint import Checkpoint
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame, Frame
from relaymesh.journal.layout import CHECKPOINTS
from relaymesh.journal.recovery import Recovery
from relaymesh.journal.scan import SegmentReader, Walk, read_frame
from relaymesh.journal.segment import SegmentHead, list_segments
from relaymesh.journal.verdict import Damage, LiveEnd, TornTail
from relaymesh.kernel import snapshot
from relaymesh.kernel.dedup import Admitted, Found, Remembered
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import EpochStarted
from relaymesh.kernel.snapshot import AnyPiece, EntryPiece, Grants, MailboxPiece, Snapshot
from relaymesh.kernel.state import State
from relaymesh.testing.planted.bug import Original, at, plant

CRC_AT = 60


@plant(at(scan, "decode"), broken="the checksum of a frame is not compared")
def crc_skipped(original: Original, data: bytes | memoryview, **where: Any) -> Frame:
    """It is made to match before it is compared; the frame keeps the one it came with."""
    head, stored, payload = bytes(data[:CRC_AT]), bytes(data[CRC_AT : CRC_AT + 4]), bytes(data[CRC_AT + 4 :])
    matching = struct.pack("<I", crc32c(payload, crc32c(head)))
    frame: Frame = original(head + matching + payload, **where)
    return msgspec.structs.replace(frame, crc=struct.unpack("<I", stored)[0])


@plant(
    at(recovery, "judge_live"),
    broken="damaged data that was acknowledged is cut off as if it were a torn write",
    like="NATS #7549: one flipped bit hides the records behind it",
)
def acknowledged_data_truncated(
    original: Original, reader: SegmentReader, head: SegmentHead, walk: Walk, marked: int
) -> LiveEnd:
    end: LiveEnd | Damage = original(reader, head, walk, marked)
    if isinstance(end, LiveEnd):
        return end
    return LiveEnd(walk.offset, walk.offset, walk.crc, TornTail(end.segment, end.offset, 1, end.why))


@plant(at(recovery, "judge_sealed"), broken="what is missing or bad in a sealed segment is not noticed")
def sealed_damage_skipped(original: Original, *arguments: Any) -> None:
    pass


@plant(
    at(verdict, "judge_link"),
    broken="a segment's header is not compared with the segment before it",
)
def missing_segment_skipped(original: Original, *arguments: Any) -> None:
    pass


@plant(
    at(SegmentReader, "whole_frames"),
    broken="whole frames behind a bad one are not asked what was synced",
    first_seed=35,
)
def later_marks_not_asked(
    original: Original, reader: SegmentReader, offset: int, salt: int
) -> Iterator[Frame]:
    return iter(())


@plant(at(recovery, "read_mark"), broken="the mark file is never read", first_seed=55)
def mark_never_read(original: Original, disk: Disk) -> None:
    pass


@plant(at(Walk, "_break"), broken="a torn tail takes the whole frame before it along")
def torn_tail_takes_a_frame(original: Original, walk: Walk, frame: Frame) -> str | None:
    why: str | None = original(walk, frame)
    if why is None:
        try:
            read_frame(walk._window, frame.end, frame.segment)
        except BadFrame as bad:
            return str(bad)
    return why


@plant(
    at(Recovery, "_judge_end"), broken="a start takes whole frames for synced and does not write them again"
)
def unsynced_tail_trusted(original: Original, *arguments: Any) -> LiveEnd:
    end: LiveEnd = original(*arguments)
    return replace(end, mark=end.end)


@plant(
    at(recovery, "newest_checkpoint"),
    broken="a damaged checkpoint is taken for an empty one, and the journal cleaned up accordingly",
    like="NATS #7556: a damaged snapshot is read as no data, and the data deleted",
)
def damaged_checkpoint_deletes_data(original: Original, disk: Disk) -> Checkpoint | None:
    found: Checkpoint | None = original(disk)
    if any(name.endswith(".damaged") for name in disk.list(CHECKPOINTS)):
        for segment in list_segments(disk)[:-1]:
            disk.remove(segment.path)
    return found


# What checkpoint and replay do not bring back


@plant(at(snapshot, "_piece_of"), broken="a checkpoint does not hold the leases of remote holders")
def checkpoint_drops_remote_leases(
    original: Original, entry: Entry, known: Mapping[str, Found]
) -> EntryPiece:
    piece: EntryPiece = original(entry, known)
    if piece.held is not None and piece.held.remote:
        return msgspec.structs.replace(piece, held=None)
    return piece


@plant(at(Snapshot, "_keep"), broken="a checkpoint holds entries as they are when drawn, not as they were")
def checkpoint_drifts(original: Original, taken: Snapshot, mailbox: Mailbox, entry: Entry) -> None:
    pass


@plant(at(Admitted, "remembered"), broken="a checkpoint does not hold the ids of settled messages")
def checkpoint_drops_ids(original: Original, admitted: Admitted) -> list[Remembered]:
    return []


@plant(
    at(snapshot, "_restore_piece"), broken="a lane that was halted goes on after a start from a checkpoint"
)
def checkpoint_drops_halts(original: Original, state: State, piece: AnyPiece, grants: Grants) -> None:
    if isinstance(piece, MailboxPiece):
        piece = msgspec.structs.replace(piece, halted=[])
    original(state, piece, grants)


@plant(at(State, "go_live"), broken="ids of settled messages are forgotten at a start")
def dedup_forgotten_after_restart(original: Original, state: State) -> None:
    original(state)
    state.admitted._order.clear()
    for known in state.admitted._by_target.values():
        for id in [id for id, found in known.items() if not isinstance(found, int)]:
            del known[id]


@plant(
    at(State, "_epoch_started"),
    broken="each start counts its tokens from the beginning",
    like="leases without fencing: an old holder's token is good again",
)
def tokens_start_anew(original: Original, state: State, record: EpochStarted) -> None:
    original(state, record)
    state.next_token = 1
