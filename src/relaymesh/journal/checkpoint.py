"""The checkpoint: the whole state at one sequence, so that a start need not replay what lies before it.

A checkpoint is a file of frames: one of kind CHECKPOINT, one CHUNK per chunk, and an END that says
how many there were. It is written and synced under an unfinished name, then renamed; the newest
two are kept, so that a damaged one has a fallback.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from relaymesh.errors import DirectoryError, DiskFloor, JournalDamaged
from relaymesh.journal.disk import Disk, File, is_full
from relaymesh.journal.frame import CHECKPOINT, CHUNK, END, BadFrame, Frame, encode
from relaymesh.journal.layout import CHECKPOINTS, NEW
from relaymesh.journal.scan import Window, read_frame

__all__ = [
    "KEPT",
    "Checkpoint",
    "checkpoint_chunks",
    "list_checkpoints",
    "newest_checkpoint",
    "read_checkpoint",
    "write_checkpoint",
]

log = logging.getLogger("relaymesh.journal")

KEPT = 2
_NAME = re.compile(r"(\d{20})\.rmc")
_END = struct.Struct("<QQ")
_SYNC_BYTES = 8_000_000  # synced in steps: one large sync would hold up the journal's own


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint: it holds the effect of every event below `sequence`."""

    sequence: int
    epoch: int
    created_at_ns: int
    chunks: int
    bytes: int

    @property
    def path(self) -> str:
        return checkpoint_path(self.sequence)


def checkpoint_path(sequence: int) -> str:
    return f"{CHECKPOINTS}/{sequence:020d}.rmc"


def list_checkpoints(disk: Disk) -> list[int]:
    """The sequences of the checkpoints by name, newest first, whole or not."""
    matches = (_NAME.fullmatch(name) for name in disk.list(CHECKPOINTS))
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def write_checkpoint(
    disk: Disk, sequence: int, chunks: Iterator[bytes], now_ns: int, *, epoch: int = 0
) -> Checkpoint:
    """Write a checkpoint durably and remove all but the newest two.

    The caller promises: `sequence` lies between two frames, and every event below it is synced.
    Raises `DiskFloor` when the disk is full and `DirectoryError` when it fails: the journal is as it was.
    """
    path = checkpoint_path(sequence)
    writing = _Writing(disk.salt(), sequence, epoch, now_ns)
    try:
        checkpoint = writing.write_new(disk, path + NEW, chunks)
        disk.rename(path + NEW, path)
        disk.sync_folder(CHECKPOINTS)
        for old in list_checkpoints(disk)[KEPT:]:
            disk.remove(checkpoint_path(old))
    except OSError as error:
        if is_full(error):
            raise DiskFloor(f"no room for the checkpoint at sequence {sequence}") from error
        raise DirectoryError(f"the checkpoint at sequence {sequence} failed: {error}") from error
    return checkpoint


class _Writing:
    """The frames of one checkpoint being written."""

    def __init__(self, salt: int, sequence: int, epoch: int, now_ns: int) -> None:
        self._salt, self._sequence, self._epoch, self._now_ns = salt, sequence, epoch, now_ns
        self._offset = self._crc = 0

    def write_new(self, disk: Disk, path: str, chunks: Iterator[bytes]) -> Checkpoint:
        file = disk.open(path, create=True)
        try:
            checkpoint = self._write(file, chunks)
        except BaseException:
            file.close()
            self._give_up(disk, path)
            raise
        file.close()
        return checkpoint

    def _give_up(self, disk: Disk, path: str) -> None:
        try:
            disk.remove(path)
        except OSError as error:
            log.warning("%s could not be removed (%s); the next start does", path, error)

    def _write(self, file: File, chunks: Iterator[bytes]) -> Checkpoint:
        self._frame(file, CHECKPOINT, b"")
        count = size = unsynced = 0
        for chunk in chunks:
            self._frame(file, CHUNK, chunk)
            count += 1
            size += len(chunk)
            unsynced += len(chunk)
            if unsynced >= _SYNC_BYTES:
                file.sync()
                unsynced = 0
        self._frame(file, END, _END.pack(count, size))
        file.sync()
        return Checkpoint(self._sequence, self._epoch, self._now_ns, count, size)

    def _frame(self, file: File, kind: int, payload: bytes) -> None:
        data, self._crc = encode(
            payload,
            kind=kind,
            salt=self._salt,
            epoch=self._epoch,
            events=0,
            first_sequence=self._sequence,
            mark=0,
            written_at_ns=self._now_ns,
            previous_crc=self._crc,
        )
        file.write_at(data, self._offset)
        self._offset += len(data)


def read_checkpoint(disk: Disk, sequence: int) -> Checkpoint:
    """Read the checkpoint through and check every byte; raises `BadFrame` when it is not whole."""
    count = size = 0
    for frame in _frames(disk, sequence):
        if frame.kind == CHUNK:
            count += 1
            size += len(frame.payload)
    if frame.payload != _END.pack(count, size):
        raise BadFrame("chunks are missing")
    return Checkpoint(sequence, frame.epoch, frame.written_at_ns, count, size)


def checkpoint_chunks(disk: Disk, checkpoint: Checkpoint) -> Iterator[bytes]:
    """The chunks of a checkpoint that was read through before; `JournalDamaged` if it no longer reads so."""
    try:
        for frame in _frames(disk, checkpoint.sequence):
            if frame.kind == CHUNK:
                yield frame.payload
    except (OSError, BadFrame) as error:
        raise JournalDamaged(
            f"{checkpoint.path} read back whole before, and now does not: {error}"
        ) from error


def _frames(disk: Disk, sequence: int) -> Iterator[Frame]:
    """The frames from CHECKPOINT to END, which must fill the file in one chain; else `BadFrame`."""
    path = checkpoint_path(sequence)
    file = disk.open(path, write=False)
    try:
        window = Window(file, path)
        offset = crc = 0
        salt: int | None = None
        expected = {CHECKPOINT}
        while expected:
            frame = read_frame(window, offset, path)
            if frame is None or frame.kind not in expected:
                raise BadFrame(f"the frame at offset {offset} is not the one expected there")
            salt = frame.salt if salt is None else salt
            if (frame.salt, frame.first_sequence, frame.previous_crc) != (salt, sequence, crc):
                raise BadFrame(f"the frame at offset {offset} does not belong there")
            offset, crc = frame.end, frame.crc
            expected = set() if frame.kind == END else {CHUNK, END}
            yield frame
        if offset != window.size:
            raise BadFrame("bytes follow the end")
    finally:
        file.close()


def newest_checkpoint(disk: Disk) -> Checkpoint | None:
    """The newest whole checkpoint. Damaged ones are logged and set aside as `.damaged`, not deleted."""
    for sequence in list_checkpoints(disk):
        path = checkpoint_path(sequence)
        try:
            return read_checkpoint(disk, sequence)
        except BadFrame as bad:
            log.warning("%s is damaged (%s): an older checkpoint or a full replay is used", path, bad)
            disk.rename(path, f"{path}.damaged")
        except (OSError, JournalDamaged) as error:
            log.warning("%s cannot be read (%s): an older checkpoint or a full replay is used", path, error)
    return None
