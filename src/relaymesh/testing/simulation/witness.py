"""The witness stands at the disk: it knows which event lies in which bytes, and whether they are safe.

The product says that something is synced; the witness compares what is on the platter with what was
written, so a receipt that leaves too early is seen at once and not only after a lucky power loss.
"""

from __future__ import annotations

from bisect import bisect_right

from relaymesh.journal.writer import Writer
from relaymesh.node.core import JournalPort
from relaymesh.testing.disk import MemoryDisk


class Witness:
    """The frames of one life: up to which sequence each goes, in which file, up to which byte."""

    def __init__(self) -> None:
        self._through: list[int] = []
        self._ends: list[tuple[str, int]] = []
        self._disk: MemoryDisk | None = None
        self._first = 0

    def forget(self) -> None:
        self._through.clear()
        self._ends.clear()
        self._disk = None

    def tap(self, journal: JournalPort, disk: MemoryDisk) -> JournalPort:
        assert isinstance(journal, Writer)
        self._disk = disk
        return Tapped(journal, self)

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
