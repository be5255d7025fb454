"""Recovery: take the directory, find out what is durable, hand it over, and go on in a new segment.

    recovery = recover(disk, settings)
    for chunk in recovery.chunks(): ...    # the checkpoint's state
    for frame in recovery.frames(): ...    # every frame behind it, in order
    writer = recovery.open_writer(now_ns)

All data in `journal/` is checked on the way, `archive/` only as far as it must be
replayed. No old segment is appended to; frames that are whole but not known to be synced are written
again into the new segment and synced there before it gets its name, so a crash at any point here
leaves what the next recovery needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

from relaymesh.errors import Closed, DirectoryError, JournalDamaged, JournalPoisoned
from relaymesh.journal.checkpoint import Checkpoint, checkpoint_chunks, newest_checkpoint
from relaymesh.journal.disk import Disk, Lock
from relaymesh.journal.epoch import read_epoch, write_epoch
from relaymesh.journal.frame import Frame
from relaymesh.journal.identity import settle_mesh_id
from relaymesh.journal.layout import JOURNAL, check_complete, prepare, remove_unfinished, take_lock
from relaymesh.journal.mark import Mark, read_mark
from relaymesh.journal.mirror import HeldMirror, Mirror
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import (
    FIRST_SEQUENCE,
    Located,
    Seal,
    SegmentHead,
    SegmentName,
    give_back_zeros,
    list_segments,
    make_segment,
    publish_segment,
)
from relaymesh.journal.settings import JournalSettings
from relaymesh.journal.verdict import Damage, LiveEnd, TornTail, judge_live, judge_sealed, read_chain
from relaymesh.journal.writer import Writer

__all__ = ["Recovery", "recover"]

log = logging.getLogger("relaymesh.journal")

T = TypeVar("T")


def recover(disk: Disk, settings: JournalSettings | None = None, mirror: Mirror | None = None) -> Recovery:
    """Take the directory and find its checkpoint; the new epoch is durable when this returns.

    A mirror is taken too, and brought in step by `open_writer`: not before all of `journal/` has read back.
    Raises `DirectoryInUse`, `JournalDamaged`, `FormatTooNew`, or `JournalPoisoned` when a write fails.
    """
    try:
        prepare(disk)
    except OSError as error:
        raise DirectoryError(f"the data directory cannot be prepared: {error}") from error
    lock = take_lock(disk)
    held: HeldMirror | None = None
    try:
        held = mirror.take(disk) if mirror else None
        return _look_around(disk, settings or JournalSettings(), lock, held)
    except BaseException as error:
        if held is not None:
            held.release()
        lock.release()
        if isinstance(error, OSError):
            raise JournalPoisoned(f"the disk failed during recovery: {error}") from error
        raise


def _look_around(disk: Disk, settings: JournalSettings, lock: Lock, mirror: HeldMirror | None) -> Recovery:
    check_complete(disk)
    remove_unfinished(disk)
    mark = read_mark(disk)
    checkpoint = newest_checkpoint(disk)
    found = list_segments(disk)
    _check_newest(found, mark, checkpoint)
    segments = _segments_to_read(found, checkpoint)
    heads = read_chain(disk, segments)
    seen = [read_epoch(disk) or 0, mark.epoch if mark else 0, checkpoint.epoch if checkpoint else 0]
    seen.append(mirror.epoch if mirror else 0)
    epoch = max(seen + [head.epoch for head in heads]) + 1
    write_epoch(disk, epoch)
    settle_mesh_id(disk, mirror.mesh_id if mirror else None)
    chain = list(zip(segments, heads, strict=True))
    return Recovery(disk, settings, lock, epoch, mark, checkpoint, chain, mirror)


def _check_newest(segments: list[Located], mark: Mark | None, checkpoint: Checkpoint | None) -> None:
    """Whether the segments that were certainly there once still are."""
    newest = segments[-1].name.number if segments else 0
    if mark and mark.segment > newest:
        raise JournalDamaged(f"segment {mark.segment}, which the mark names, is missing")
    if checkpoint and not segments:
        raise JournalDamaged(f"there is a checkpoint at sequence {checkpoint.sequence}, but no segment")


def _segments_to_read(segments: list[Located], checkpoint: Checkpoint | None) -> list[Located]:
    """All that lie in `journal/`, and those before them that the replay needs."""
    start = checkpoint.sequence if checkpoint else FIRST_SEQUENCE
    if segments and segments[0].name.first_sequence > start:
        raise JournalDamaged(
            f"the journal begins at sequence {segments[0].name.first_sequence}, but the replay must begin "
            f"at {start}: the events between are missing"
        )
    replayed = max((i for i, each in enumerate(segments) if each.name.first_sequence <= start), default=0)
    in_journal = min((i for i, each in enumerate(segments) if each.folder == JOURNAL), default=0)
    return segments[min(replayed, in_journal) :]


class Recovery:
    """A directory taken for this process. Ends with `open_writer`, which passes the lock on, or `close`.

    As a context manager it closes unless a writer was opened.

    epoch: the new one. checkpoint: the one in use, None for a full replay.
    disk: the directory, with its mirror once a writer was opened.
    After `frames` is exhausted: `torn` says what was dropped at the end, `next_sequence` what the next event
    gets, and `last_written_at_ns` the newest timestamp seen.
    """

    def __init__(
        self,
        disk: Disk,
        settings: JournalSettings,
        lock: Lock,
        epoch: int,
        mark: Mark | None,
        checkpoint: Checkpoint | None,
        chain: list[tuple[Located, SegmentHead]],
        mirror: HeldMirror | None = None,
    ) -> None:
        self.epoch = epoch
        self.checkpoint = checkpoint
        self.torn: TornTail | None = None
        self.next_sequence = checkpoint.sequence if checkpoint else FIRST_SEQUENCE
        self.last_written_at_ns = checkpoint.created_at_ns if checkpoint else 0
        self.disk = disk
        self._settings = settings
        self._lock: Lock | None = lock
        self._mark = mark
        self._chain = chain
        self._mirror = mirror
        self._end: LiveEnd | None = None
        self._replay = self._or_give_free(self._read_frames())

    def __enter__(self) -> Recovery:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def chunks(self) -> Iterator[bytes]:
        """The checkpoint's chunks, none for a full replay."""
        if self.checkpoint is None:
            return iter(())
        return self._or_give_free(checkpoint_chunks(self.disk, self.checkpoint))

    def frames(self) -> Iterator[Frame]:
        """The frames behind the checkpoint, once. Raises `JournalDamaged` where acknowledged data is bad."""
        return self._replay

    def open_writer(self, now_ns: int) -> Writer:
        """Go on in a new segment, which seals the last one. Reads what is left of `frames` first."""
        if self._lock is None:
            raise Closed("this recovery has ended")
        try:
            for _ in self._replay:
                pass
            if self._mirror is not None:
                self.disk, self._lock = self._mirror.join(self.disk, self._lock, self.next_sequence)
                self._mirror = None
            writer = self._open_writer(self._lock, now_ns)
        except OSError as error:
            self.close()
            raise JournalPoisoned(f"the disk failed while a new segment was opened: {error}") from error
        except BaseException:
            self.close()
            raise
        self._lock = None
        return writer

    def close(self) -> None:
        """Give the directory and its mirror free without writing to them."""
        if self._mirror is not None:
            self._mirror.release()
            self._mirror = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _or_give_free(self, items: Iterator[T]) -> Iterator[T]:
        try:
            yield from items
        except Exception:
            self.close()  # a refused start must not keep the directory
            raise

    def _read_frames(self) -> Iterator[Frame]:
        start = self.next_sequence
        heads = [head for _, head in self._chain]
        for (segment, head), successor in zip(self._chain, [*heads[1:], None], strict=False):
            with SegmentReader(self.disk, segment) as reader:
                seal = successor.seal if successor else None
                walk = Walk(reader.window, head, seal.offset if seal else None)
                for frame in walk:
                    if frame.first_sequence >= start:
                        yield frame
                    elif frame.next_sequence > start:
                        why = f"the checkpoint at {start} cuts this frame"
                        raise Damage(segment.path, frame.offset, why).error()
                self.last_written_at_ns = max(self.last_written_at_ns, walk.written_at_ns)
                self.next_sequence = walk.next_sequence
                if seal and successor:
                    damage = judge_sealed(segment.path, walk, seal, successor)
                    if damage:
                        raise damage.error()
                else:
                    self._end = self._judge_end(reader, head, walk)

    def _judge_end(self, reader: SegmentReader, head: SegmentHead, walk: Walk) -> LiveEnd:
        mark = self._mark
        marked = mark.offset if mark and mark.segment == head.name.number else 0
        end = judge_live(reader, head, walk, marked)
        if isinstance(end, Damage):
            raise end.error()
        if self.checkpoint and walk.next_sequence < self.checkpoint.sequence:
            why = f"the journal ends here, before the checkpoint at {self.checkpoint.sequence}"
            raise Damage(reader.segment.path, walk.offset, walk.why or why).error()
        self.torn = end.torn
        if end.torn:
            log.warning(
                "%s has a torn tail at offset %d: %d bytes that were never acknowledged are dropped (%s)",
                end.torn.segment,
                end.torn.offset,
                end.torn.bytes,
                end.torn.why,
            )
        return end

    def _open_writer(self, lock: Lock, now_ns: int) -> Writer:
        if self._end is None:
            return self._go_on_in(SegmentName(1, self.next_sequence), None, now_ns, lock)
        segment, head = self._chain[-1]
        with SegmentReader(self.disk, segment) as reader:
            seal, first_sequence, tail = self._unsynced_tail(reader, head, self._end)
            data_end = reader.data_end(self._end.end)
            name = SegmentName(head.name.number + 1, first_sequence)
            writer = self._go_on_in(name, seal, now_ns, lock, tail, self._end.end - self._end.mark)
        give_back_zeros(self.disk, segment.path, data_end)  # torn bytes stay there, to be looked at
        return writer

    def _unsynced_tail(
        self, reader: SegmentReader, head: SegmentHead, end: LiveEnd
    ) -> tuple[Seal, int, Iterator[Frame]]:
        """Where the durable part ends, the sequence that follows it, and the whole frames behind it."""
        if end.mark == end.end:
            return Seal(head.name, end.end, end.crc), self.next_sequence, iter(())
        walk = Walk(reader.window, head, end.end)
        frames = iter(walk)
        while walk.offset < end.mark and next(frames, None):
            pass
        if walk.offset != end.mark:
            raise Damage(reader.segment.path, walk.offset, f"the mark {end.mark} lies inside a frame").error()
        return Seal(head.name, walk.offset, walk.crc), walk.next_sequence, frames

    def _go_on_in(
        self,
        name: SegmentName,
        seal: Seal | None,
        now_ns: int,
        lock: Lock,
        tail: Iterable[Frame] = (),
        tail_bytes: int = 0,
    ) -> Writer:
        live = make_segment(
            self.disk,
            name,
            seal=seal,
            epoch=self.epoch,
            now_ns=max(
                now_ns, self.last_written_at_ns
            ),  # retention trusts it to be no earlier than the frames
            allocate_bytes=self._settings.allocate_bytes,
            tail=tail,
            tail_bytes=tail_bytes,
        )
        if live.next_sequence != self.next_sequence:
            raise JournalDamaged(f"the frames for {name.file} did not read back as they did before")
        publish_segment(self.disk, live)
        try:
            return Writer(self.disk, self._settings, live, lock)
        except BaseException:
            live.file.close()
            raise
