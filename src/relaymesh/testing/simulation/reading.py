"""Reading the journal again, by its written format alone (docs/formats/journal.md).

The checkers read with this and not with `relaymesh.journal`: a mistake that writer and reader of the
product share would be invisible to its own reader. Only the CRC function is the same.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
from crc32c import crc32c

from relaymesh.testing.simulation.verdict import Violation

_MAGIC = b"RMJF"
_HEAD = struct.Struct("<4sBBHQQIIQQQII")
_SEGMENT = struct.Struct("<QQQQ")
_MARK = struct.Struct("<4sIQQQQ20xI")
_BYTES = _HEAD.size
_PAYLOAD = re.compile(rb"\x01payload ([0-9a-f]{64}) [0-9a-f]{32} ([0-9]+)\x01")
_decode = msgspec.msgpack.Decoder().decode


@dataclass(slots=True)
class FrameRead:
    """One whole frame."""

    offset: int
    end: int
    first_sequence: int
    events: int
    mark: int
    payload: bytes


@dataclass(slots=True)
class Segment:
    """One segment as far as its frames are whole.

    `protected`: below this offset something whole says that it is synced.
    """

    folder: str
    file: str
    number: int
    first_sequence: int
    seal_of_predecessor: int
    durable: int
    frames: list[FrameRead] = field(default_factory=list)
    sealed_at: int | None = None
    protected: int = 0

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.file}"

    @property
    def next_sequence(self) -> int:
        """The sequence behind its last frame."""
        kept = [each for each in self.frames if self.sealed_at is None or each.end <= self.sealed_at]
        return kept[-1].first_sequence + kept[-1].events if kept else self.first_sequence


def read_segments(files: Mapping[str, bytes]) -> list[Segment]:
    """Every segment of the journal and its archive, in order. One without a whole header is left out."""
    found: dict[str, Segment] = {}
    for folder in ("archive", "journal"):
        for path in sorted(files):
            if path.startswith(folder + "/") and path.endswith(".rmj"):
                segment = _read_segment(folder, path.partition("/")[2], files[path])
                if segment is not None:
                    found[segment.file] = segment
    segments = [found[file] for file in sorted(found)]
    for before, after in pairwise(segments):
        before.sealed_at = before.protected = after.seal_of_predecessor
    if segments:
        last = segments[-1]
        marks = [frame.mark for frame in last.frames]
        last.protected = max([last.durable, *marks, _marked(files, last)])
    return segments


def _marked(files: Mapping[str, bytes], segment: Segment) -> int:
    data = files.get("mark", b"")
    if len(data) != _MARK.size or crc32c(data[:-4]) != _MARK.unpack(data)[-1]:
        return 0
    _, _, _, number, offset, _, _ = _MARK.unpack(data)
    return int(offset) if number == segment.number else 0


def _read_segment(folder: str, file: str, data: bytes) -> Segment | None:
    frames = _frames(data)
    if not frames or len(frames[0].payload) != _SEGMENT.size:
        return None
    number, _, _, seal = _SEGMENT.unpack(frames[0].payload)
    return Segment(folder, file, number, frames[0].first_sequence, seal, frames[0].mark, frames[1:])


def _frames(data: bytes) -> list[FrameRead]:
    found: list[FrameRead] = []
    at = 0
    while data[at : at + 4] == _MAGIC and len(data) >= at + _BYTES:
        fields = _HEAD.unpack_from(data, at)
        length, events, first, mark, crc = fields[6], fields[7], fields[8], fields[9], fields[12]
        end = at + _BYTES + length
        payload = data[at + _BYTES : end]
        if end > len(data) or crc32c(payload, crc32c(data[at : at + _BYTES - 4])) != crc:
            break
        found.append(FrameRead(at, end, first, events, mark, payload))
        at = end
    return found


def payloads_in(data: bytes) -> list[tuple[str, int]]:
    """Path and size of each payload file that is named in these bytes (docs/formats/payloads.md)."""
    return [(_path(found[1].decode()), int(found[2])) for found in _PAYLOAD.finditer(data)]


def _path(sha256: str) -> str:
    return f"payloads/{sha256[:2]}/{sha256}"


def with_payloads(data: bytes, content: Callable[[str], bytes | None]) -> bytes:
    """The text with the payload files that it names. `content`: of a file; None: it is missing."""

    def put_in(found: re.Match[bytes]) -> bytes:
        name, size = found[1].decode(), int(found[2])
        file = content(_path(name))
        if file is None or len(file) != size or hashlib.sha256(file).hexdigest() != name:
            state = "missing" if file is None else "not whole"
            raise Violation("payload_whole", f"{_path(name)} is named by the journal, and is {state}")
        return file

    return _PAYLOAD.sub(put_in, data)


def _whole(value: Any, files: Mapping[str, bytes]) -> Any:
    """A record with all content in place, as if none were in files."""
    if isinstance(value, bytes):
        return with_payloads(value, files.get) if b"\x01payload " in value else value
    if not isinstance(value, list):
        return value
    whole = [_whole(each, files) for each in value]
    if len(whole) > 3 and isinstance(whole[2], bytes) and whole[2] is not value[2]:
        whole[3] -= 2  # an envelope whose content was in a file
    return whole


def read_frames(files: Mapping[str, bytes]) -> list[tuple[int, list[list[Any]]]]:
    """Every frame's first sequence and its records, as plain lists, in order."""
    return [
        (frame.first_sequence, _whole(_decode(frame.payload), files))
        for segment in read_segments(files)
        for frame in segment.frames
        if segment.sealed_at is None or frame.end <= segment.sealed_at
    ]
