"""The audit's lines: each contains the hash of the line before, so a changed or removed line is found.

A line is one JSON object: UTF-8, keys sorted, no spaces. Its `hash` is the SHA-256, in hex, of that same
object without `hash`; its `prev` is the `hash` of the line before, `GENESIS` for the first. A chain cannot
show that its end was cut off: save the newest hash elsewhere, and use `relaymesh audit verify --contains
HASH`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

GENESIS = "0" * 64
CURRENT = "audit.jsonl"
VALUE_LENGTH_MAX = 300

_ROTATED = re.compile(r"audit\.(\d{6,})\.jsonl\Z")
_SECRET = re.compile(r"rm_([a-z0-9]{1,16})_[A-Za-z0-9_%-]{8,}")
_encode = msgspec.json.Encoder(order="sorted").encode


def redacted(text: str) -> str:
    """Text from outside, made safe for a log: without tokens and control characters, and not too long."""
    if "rm_" in text:
        text = _SECRET.sub(r"rm_\1_…", text)
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= VALUE_LENGTH_MAX else text[:VALUE_LENGTH_MAX] + "…"


def sealed(fields: dict[str, Any], prev: str) -> tuple[bytes, str]:
    """The line for these fields, and its hash."""
    body = {**fields, "prev": prev}
    hash = hashlib.sha256(_encode(body)).hexdigest()
    return _encode({**body, "hash": hash}) + b"\n", hash


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it was read. `fault` says why it breaks the chain."""

    file: str
    number: int
    fields: dict[str, Any]
    fault: str = ""


def audit_files(folder: Path) -> list[Path]:
    """Every file of the log, the oldest first."""
    numbered = sorted(path for path in folder.glob("audit.*.jsonl") if _ROTATED.match(path.name))
    current = folder / CURRENT
    return [*numbered, current] if current.exists() else numbered


def rotated_name(number: int) -> str:
    return f"audit.{number:06d}.jsonl"


def number_of(path: Path) -> int:
    match = _ROTATED.match(path.name)
    return int(match[1]) if match else 0


def read_lines(folder: Path) -> Iterator[Line]:
    """Every line, the oldest first, each checked against the one before; also while a server writes.

    Ends after the first line that breaks the chain: what follows it proves nothing. A last line
    without its end is one being written, or torn by a crash; it was never part of the log.
    """
    with ExitStack() as stack:
        prev, seq = "", 0
        for name, file in _opened(folder, stack):
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    break
                line = _checked(name, number, raw, prev, seq)
                yield line
                if line.fault:
                    return
                prev, seq = line.fields["hash"], line.fields["seq"]


def _opened(folder: Path, stack: ExitStack) -> list[tuple[str, BinaryIO]]:
    """The files, opened. The current one first: should it be rotated meanwhile, it is seen only once."""
    try:
        current = stack.enter_context((folder / CURRENT).open("rb"))
    except FileNotFoundError:
        current = None
    inode = None if current is None else os.fstat(current.fileno()).st_ino
    older = [path for path in audit_files(folder) if path.name != CURRENT and path.stat().st_ino != inode]
    opened: list[tuple[str, BinaryIO]] = [(path.name, stack.enter_context(path.open("rb"))) for path in older]
    return opened if current is None else [*opened, (CURRENT, current)]


def _checked(name: str, number: int, raw: bytes, prev: str, seq: int) -> Line:
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError:
        return Line(name, number, {}, "is not JSON")
    return Line(name, number, fields, _fault(fields, prev, seq))


def _fault(fields: dict[str, Any], prev: str, seq: int) -> str:
    body = {key: value for key, value in fields.items() if key != "hash"}
    if hashlib.sha256(_encode(body)).hexdigest() != fields.get("hash"):
        return "was changed: its hash does not fit what it says"
    if not isinstance(fields.get("seq"), int):
        return "has no sequence number"
    if not prev:
        first = fields["seq"] == 1
        return "is the first line, but names one before" if first and fields.get("prev") != GENESIS else ""
    if fields["seq"] != seq + 1:
        return f"has sequence number {fields['seq']} where {seq + 1} is due: lines are missing"
    return "" if fields.get("prev") == prev else "does not continue the line before"
