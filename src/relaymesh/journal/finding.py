"""Finding the frames that hold a few events, without reading what lies between them.

From one frame header to the next: payloads are neither read nor checked on the way, so this says nothing
about the journal being whole. The frames that are found are checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from relaymesh.errors import JournalDamaged
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import HEADER_BYTES, BadFrame, Frame, span_of
from relaymesh.journal.scan import SegmentReader, read_frame
from relaymesh.journal.segment import HEAD_BYTES, Located, list_segments

__all__ = ["find_frames"]


def find_frames(disk: Disk, sequences: Iterable[int]) -> Iterator[Frame]:
    """The frames that hold these events, in order, each once; what is written is found, synced or not.

    An event that retention has dropped has none. Raises `JournalDamaged` where a frame cannot be read.
    """
    segments = list_segments(disk)
    firsts = [segment.name.first_sequence for segment in segments]
    by_segment: dict[int, list[int]] = {}
    for sequence in sorted(set(sequences)):
        index = bisect_right(firsts, sequence) - 1
        if index >= 0:
            by_segment.setdefault(index, []).append(sequence)
    for index, wanted in by_segment.items():
        yield from _find(disk, segments[index], wanted)


def _find(disk: Disk, segment: Located, wanted: list[int]) -> Iterator[Frame]:
    with SegmentReader(disk, segment) as reader:
        window, offset, at = reader.window, HEAD_BYTES, 0
        try:
            while at < len(wanted):
                header = window.view(offset, HEADER_BYTES)
                if not any(header):
                    return  # space allocated ahead, or the end
                size, first, end = span_of(header)
                if first > wanted[at]:
                    return  # behind the seal: what lies there was never part of the journal
                if wanted[at] < end:
                    frame = read_frame(window, offset, segment.name.file)
                    if frame is None:
                        return
                    yield frame
                    while at < len(wanted) and wanted[at] < end:
                        at += 1
                offset += size
        except BadFrame as bad:
            raise JournalDamaged(f"{segment.path} at offset {offset}: {bad}") from bad
