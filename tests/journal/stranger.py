"""A reader written from docs/formats/journal.md alone. It shares no code with the product."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """One frame as a stranger reads it."""

    kind: int
    start: int
    end: int
    first_sequence: int
    events: int
    mark: int
    previous_crc: int
    crc: int
    payload: bytes
    salt: int = 0


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frames(data: bytes) -> list[Found]:
    """The frames of one segment, its header first, up to the first bytes that are no frame."""
    found: list[Found] = []
    at = 0
    while data[at : at + 4] == b"RMJF" and len(data) >= at + 64:
        kind = data[at + 5]
        salt = struct.unpack_from("<Q", data, at + 8)[0]
        length, events = struct.unpack_from("<II", data, at + 24)
        first, mark, _written_at = struct.unpack_from("<QQQ", data, at + 32)
        previous, crc = struct.unpack_from("<II", data, at + 56)
        end = at + 64 + length
        if end > len(data) or crc32c(data[at : at + 60] + data[at + 64 : end]) != crc:
            break
        found.append(Found(kind, at, end, first, events, mark, previous, crc, data[at + 64 : end], salt))
        at = end
    return found


def seal(header: Found) -> tuple[int, int]:
    """From a segment's header: the number and the seal of the segment before it."""
    _number, before, _first, offset = struct.unpack("<QQQQ", header.payload)
    return before, offset


def all_payloads(files: dict[str, bytes]) -> list[bytes]:
    return [frame.payload for frame in all_frames(files)]


def all_frames(files: dict[str, bytes]) -> list[Found]:
    """Every data frame in order, sealed segments up to their seals, the last one to its end."""
    names = sorted(name.partition("/")[2] for name in files if name.endswith(".rmj"))
    segments = [files.get(f"journal/{name}") or files[f"archive/{name}"] for name in names]
    headers = [frames(data)[0] for data in segments]
    ends = [seal(header)[1] for header in headers[1:]] + [len(segments[-1])] if segments else []
    return [
        frame
        for data, end in zip(segments, ends, strict=True)
        for frame in frames(data)[1:]
        if frame.end <= end
    ]


def sequences_set_aside(
    files: dict[str, bytes], split: Callable[[bytes], list[tuple[int, int, bytes]]]
) -> dict[int, int]:
    """The first sequence and the count of each record that `aside.jsonl` names, checked against the journal.

    `split` takes a payload apart: operation, count and bytes of each record.
    """
    lines = [json.loads(line) for line in files.get("aside.jsonl", b"").splitlines()]
    there: dict[int, tuple[int, int, str]] = {}
    for found in all_frames(files):
        sequence = found.first_sequence
        for operation, count, raw in split(found.payload):
            there[sequence] = (operation, count, hashlib.sha256(raw).hexdigest())
            sequence += count
    for line in lines:
        assert there[line["sequence"]] == (line["operation"], line["count"], line["digest"]), (
            "not this journal"
        )
    return {line["sequence"]: line["count"] for line in lines}
