"""Make a record of a journal unreadable, with every checksum valid again: as a defective writer would."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal

import msgspec
from crc32c import crc32c

Field = Literal["time", "names"]
"""`time`: the record's time becomes a float. `names`: its first text is no UTF-8, so it names no mailbox."""

_HEADER = 64
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def segments_of(path: Path) -> list[Path]:
    found = [*(path / "journal").glob("*.rmj"), *(path / "archive").glob("*.rmj")]
    return sorted(found, key=lambda file: file.name)


def records_of(path: Path) -> list[tuple[int, list[object], bytes]]:
    """Each record of the journal: first sequence, values, bytes."""
    found: list[tuple[int, list[object], bytes]] = []
    for _, data, ends in _journal(path):
        for start, end in ends[1:]:
            sequence = struct.unpack_from("<Q", data, start + 32)[0]
            for raw in _raws(data[start + _HEADER : end]):
                values = msgspec.msgpack.decode(raw)
                found.append((sequence, values, bytes(raw)))
                sequence += values[1]
    return found


def make_unreadable(path: Path, sequence: int, field: Field = "time") -> None:
    """The record that begins at `sequence`, of the same length as before, cannot be read any more."""
    crc = 0
    for file, data, ends in _journal(path):
        changed = bytearray(data)
        for start, end in ends:
            at = struct.unpack_from("<Q", data, start + 32)[0]
            if start and at <= sequence:
                tamper(changed, start + _HEADER, end, at, sequence, field)
            struct.pack_into("<I", changed, start + 56, crc)
            crc = crc32c(bytes(changed[start + _HEADER : end]), crc32c(bytes(changed[start : start + 60])))
            struct.pack_into("<I", changed, start + 60, crc)
        if changed != data:
            file.write_bytes(bytes(changed))


def tamper(data: bytearray, start: int, end: int, first: int, sequence: int, field: Field) -> None:
    offset = start + (1 if data[start] & 0xF0 == 0x90 else 3)
    for raw in _raws(bytes(data[start:end])):
        values = msgspec.msgpack.decode(raw)
        if first == sequence and values[1]:
            bad = _bad(bytes(raw), field)
            assert len(bad) == len(raw)
            data[offset : offset + len(bad)] = bad
            return
        first += values[1]
        offset += len(raw)


def _bad(raw: bytes, field: Field) -> bytes:
    values = [bytes(each) for each in _raws(raw)]
    if field == "names":
        for i, each in enumerate(values[3:], 3):
            if each[0] & 0xE0 == 0xA0 and len(each) > 1:
                values[i] = each[:1] + b"\xff" + each[2:]
                break
        else:
            field = "time"
    if field == "time":
        assert values[2][0] == 0xCF, "times since 1970 take eight bytes"
        values[2] = b"\xcb" + values[2][1:]
    return raw[: len(raw) - sum(map(len, values))] + b"".join(values)


def _journal(path: Path) -> list[tuple[Path, bytes, list[tuple[int, int]]]]:
    """Each segment: its file, its bytes, where its frames begin and end, as far as they count."""
    files = segments_of(path)
    contents = [file.read_bytes() for file in files]
    seals = [struct.unpack_from("<Q", data, _HEADER + 24)[0] for data in contents[1:]]
    limits = [*seals, *(len(data) for data in contents[-1:])]
    return [
        (file, data, _frames(data, limit)) for file, data, limit in zip(files, contents, limits, strict=True)
    ]


def _frames(data: bytes, limit: int) -> list[tuple[int, int]]:
    ends: list[tuple[int, int]] = []
    start = 0
    while start + _HEADER <= limit and data[start : start + 4] == b"RMJF":
        end = start + _HEADER + struct.unpack_from("<I", data, start + 24)[0]
        ends.append((start, end))
        start = end
    return ends
