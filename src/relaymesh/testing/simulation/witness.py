"""The witness stands at the disk: it knows which event lies in which bytes, and whether they are safe.

The product says that something is synced; the witness compares what is on the platter with what was
written, so a receipt that leaves too early is seen at once and not only after a lucky power loss.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from relaymesh.journal.writer import Writer
from relaymesh.node.core import JournalPort
from relaymesh.testing.disk import MemoryDisk
from relaymesh.testing.simulation.reading import payloads_in

TASK_RECORDS = (*range(19, 25), *range(28, 36))
_decode = msgspec.msgpack.Decoder().decode


def cut_between(frames: list[tuple[int, bytes]], survived: int) -> tuple[int, int] | None:
    """The last record that survived a crash and the first that did not, if one of them is of a task."""
    index = bisect_right([through for through, _ in frames], survived)
    if not 0 < index < len(frames) or frames[index - 1][0] != survived:
        return None
    pair = _decode(frames[index - 1][1])[-1][0], _decode(frames[index][1])[0][0]
    return pair if pair[0] in TASK_RECORDS or pair[1] in TASK_RECORDS else None


class Witness:
    """The frames of one life: up to which sequence each goes, in which file, up to which byte."""

    def __init__(self) -> None:
        self._through: list[int] = []
        self._ends: list[tuple[str, int]] = []
        self._disk: MemoryDisk | None = None
        self._early: list[str] = []
        self._first = 0
        self._tried: list[tuple[int, bytes]] = []
        """What was to be written, whether it was or not: up to which sequence each frame goes, and it."""

    def forget(self) -> None:
        self._through.clear()
        self._ends.clear()
        self._tried = []
        self._disk = None

    def tap(self, journal: JournalPort, disk: MemoryDisk, early: list[str]) -> JournalPort:
        """`early`: gets what is on its way to the disk too early."""
        assert isinstance(journal, Writer)
        self._disk = disk
        self._early = early
        return Tapped(journal, self)

    def names(self, payload: bytes) -> None:
        """A frame is about to be written: the payload files that it names must be durable."""
        for path, size in payloads_in(payload):
            if self._disk is not None and not self._disk.is_synced(path, 0, size):
                self._early.append(f"a record that names {path}")

    def tries(self, through: int, payload: bytes) -> None:
        self._tried.append((through, payload))

    def decided(self, waiting: list[bytes]) -> list[tuple[int, bytes]]:
        """Every frame of this life, and what waits to be written, as one more."""
        rest = [(1 << 60, b"\x91" + waiting[0])] if waiting else []
        return self._tried + rest

    def wrote(self, through: int, file: str, end: int) -> None:
        self._through.append(through)
        self._ends.append((file, end))

    def is_safe(self, sequence: int) -> bool:
        """Whether this event would survive a power loss now. What no frame of this life holds, did before."""
        if sequence < self._first or self._disk is None:
            return True
        index = bisect_right(self._through, sequence)
        if index == len(self._through):
            return False  # not even written
        file, end = self._ends[index]
        return any(self._disk.is_synced(f"{folder}/{file}", 0, end) for folder in ("journal", "archive"))

    def begin_at(self, sequence: int) -> None:
        """What lies before this sequence was there when this life began."""
        self._first = sequence


class Tapped:
    """The journal's writer, with the witness looking over its shoulder."""

    def __init__(self, writer: Writer, witness: Witness) -> None:
        self.writer = writer
        self._witness = witness
        witness.begin_at(writer.written)
        self.room = writer.room
        self.sync = writer.sync
        self.reserve_for_checkpoint = writer.reserve_for_checkpoint
        self.close = writer.close

    def append(self, payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None:
        self._witness.names(payload)
        self._witness.tries(self.writer.written + events, before + payload)
        self.writer.append(payload, events, now_ns, before)
        offset, through = self.writer._written
        self._witness.wrote(through, self.writer.segment, offset)

    @property
    def at_hand(self) -> int:
        return self.writer.at_hand

    @property
    def synced(self) -> int:
        return self.writer.synced

    @property
    def bytes_written(self) -> int:
        return self.writer.bytes_written
