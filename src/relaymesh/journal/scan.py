"""Reading a segment's frames in order, and looking behind a bad one for frames that are still whole."""

from __future__ import annotations

from collections.abc import Iterator

from relaymesh.errors import JournalDamaged
from relaymesh.journal.disk import Disk, File
from relaymesh.journal.frame import DATA, HEADER_BYTES, MAGIC, BadFrame, Frame, decode, frame_bytes
from relaymesh.journal.segment import HEAD_BYTES, Located, SegmentHead, open_segment, parse_head

__all__ = ["SegmentReader", "Walk", "Window", "read_frame"]

_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(HEADER_BYTES)


class Window:
    """A file through a moving block of memory: small frames cost no call each."""

    def __init__(self, file: File, path: str) -> None:
        self.path = path
        self.size = file.size()
        self._file = file
        self._block = memoryview(b"")
        self._at = 0

    def view(self, offset: int, size: int) -> memoryview:
        """Up to `size` bytes from `offset`, fewer at the file's end. A failing read is damage, not an end."""
        start = offset - self._at
        if start < 0 or start + size > len(self._block):
            try:
                self._block = memoryview(self._file.read_at(offset, max(size, _BLOCK_BYTES)))
            except OSError as error:
                raise JournalDamaged(f"{self.path} cannot be read at offset {offset}: {error}") from error
            self._at, start = offset, 0
        return self._block[start : start + size]


def read_frame(window: Window, offset: int, segment: str) -> Frame | None:
    """The frame at `offset`, or None where zeros (space allocated ahead) or the end are; else `BadFrame`."""
    header = window.view(offset, HEADER_BYTES)
    if not header or (header[0] == 0 and header == _ZEROS[: len(header)]):
        return None
    size = frame_bytes(header)
    if size > window.size - offset:
        raise BadFrame("the file ends inside a frame")
    return decode(window.view(offset, size), segment=segment, offset=offset)


class Walk:
    """One pass over a segment's frames. Between frames, and at the end, it says how far it came.

    offset, crc, next_sequence: where the last good frame ended, its CRC, the sequence that follows.
    mark: the largest offset of this segment that any frame so far says was synced.
    why: None when the data simply ends (or reached `end`), else what is wrong at `offset`.
    """

    def __init__(self, window: Window, head: SegmentHead, end: int | None) -> None:
        self.offset = HEAD_BYTES
        self.crc = head.crc
        self.next_sequence = head.name.first_sequence
        self.mark = head.durable
        self.written_at_ns = head.created_at_ns
        self.why: str | None = None
        self._window = window
        self._head = head
        self._end = end

    def __iter__(self) -> Iterator[Frame]:
        window, name, end = self._window, self._head.name.file, self._end
        while end is None or self.offset < end:
            try:
                frame = read_frame(window, self.offset, name)
            except BadFrame as bad:
                self.why = str(bad)
                return
            if frame is None:
                return
            self.why = self._break(frame)
            if self.why:
                return
            self.offset = frame.end
            self.crc = frame.crc
            self.next_sequence = frame.next_sequence
            self.mark = max(self.mark, frame.mark)
            self.written_at_ns = max(self.written_at_ns, frame.written_at_ns)
            yield frame

    def _break(self, frame: Frame) -> str | None:
        """What keeps a whole frame from being the next one of this segment."""
        if frame.salt != self._head.salt or frame.epoch != self._head.epoch or frame.kind != DATA:
            return "the frame belongs to another file"
        if frame.previous_crc != self.crc or frame.first_sequence != self.next_sequence:
            return "the frame does not continue the one before it"
        return None


class SegmentReader:
    """One open segment. Use as a context manager."""

    def __init__(self, disk: Disk, segment: Located) -> None:
        self.segment = segment
        try:
            self._file = open_segment(disk, segment)
        except OSError as error:
            raise JournalDamaged(f"{segment.path} cannot be opened: {error}") from error
        try:
            self.window = Window(self._file, segment.path)
        except OSError as error:
            self._file.close()
            raise JournalDamaged(f"{segment.path} cannot be read: {error}") from error

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def head(self) -> SegmentHead:
        """The header; raises `BadFrame`."""
        frame = read_frame(self.window, 0, self.segment.name.file)
        if frame is None:
            raise BadFrame("the segment has no header")
        return parse_head(frame, self.segment.name)

    def whole_frames(self, offset: int, salt: int | None) -> Iterator[Frame]:
        """Every whole frame of this segment at or behind `offset`, wherever it begins.

        `salt` tells the segment's own frames from copies inside payloads; None when it is not known.
        """
        name, base, block = self.segment.name.file, offset, b""
        while True:
            found = block.find(MAGIC, offset - base)
            if found < 0:
                # The magic may begin in the last bytes of this block: the next one overlaps it.
                base = offset = max(offset, base + len(block) - len(MAGIC) + 1)
                block = bytes(self.window.view(base, _BLOCK_BYTES))
                if len(block) < HEADER_BYTES:
                    return
                continue
            offset = base + found
            try:
                frame = read_frame(self.window, offset, name)
            except BadFrame:
                frame = None
            if frame is not None and salt in (None, frame.salt):
                yield frame
                offset = frame.end
            else:
                offset += 1

    def data_end(self, offset: int) -> int:
        """The offset behind the last byte that is not zero, at least `offset`."""
        end = at = offset
        while at < self.window.size:
            block = bytes(self.window.view(at, _BLOCK_BYTES))
            used = len(block.rstrip(b"\0"))
            if used:
                end = at + used
            at += len(block) or self.window.size
        return end
