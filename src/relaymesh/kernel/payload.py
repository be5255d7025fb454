"""References: what stands in a record for content that is kept in a payload file.

A reference begins and ends with the byte 0x01. No JSON text holds that byte: JSON writes control characters
as escapes. So a reference can stand in place of a JSON value, also inside a larger JSON text: results that
are joined stay correct. Content that is no JSON has an encoding of its own while it is in a file: see
`kernel/envelope.py`. References are made where content enters a node and are replaced by the content before
it leaves: no client ever sees one.

    0x01 "payload " sha256 in hex " " xxh3-128 in hex " " size in decimal 0x01
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256

import msgspec
import xxhash

__all__ = [
    "INLINE_BYTES_MAX",
    "PAYLOADS",
    "REFERENCE_BYTES_MAX",
    "REFERENCE_MARK",
    "Reference",
    "full_size",
    "payload_path",
    "reference_to",
    "references_in",
    "resolved",
    "the_reference",
]

INLINE_BYTES_MAX = 65_536
"""Content, inputs and results of more bytes are kept in files."""
REFERENCE_MARK = b"\x01payload "
"""How a reference begins."""
PAYLOADS = "payloads"
"""The folder of the files."""
REFERENCE_BYTES_MAX = 160
"""No reference is longer."""

_REFERENCE = re.compile(rb"\x01payload ([0-9a-f]{64}) ([0-9a-f]{32}) ([0-9]{1,15})\x01")


class Reference(msgspec.Struct, frozen=True, gc=False):
    """Names a payload file. `sha256`: its name, in hex; `digest`: what dedup compares; `size`: its bytes."""

    sha256: str
    digest: bytes
    size: int

    @property
    def path(self) -> str:
        """Where the file lies in the data directory."""
        return payload_path(self.sha256)

    def encode(self) -> bytes:
        return REFERENCE_MARK + f"{self.sha256} {self.digest.hex()} {self.size}".encode() + REFERENCE_MARK[:1]


def payload_path(sha256: str) -> str:
    """Where the file of this name lies in a data directory."""
    return f"{PAYLOADS}/{sha256[:2]}/{sha256}"


def reference_to(content: bytes) -> Reference:
    """The reference that stands for this content."""
    return Reference(sha256(content).hexdigest(), xxhash.xxh3_128_digest(content), len(content))


def the_reference(data: bytes) -> Reference | None:
    """The reference that these bytes are; None: they are something else."""
    found = _REFERENCE.fullmatch(data)
    return None if found is None else _read(found)


def references_in(data: bytes) -> list[Reference]:
    """All references in a text, in order."""
    return [_read(found) for found in _REFERENCE.finditer(data)] if REFERENCE_MARK in data else []


def full_size(data: bytes) -> int:
    """The size of a text with its references replaced."""
    size = len(data)
    if REFERENCE_MARK in data:
        for found in _REFERENCE.finditer(data):
            size += int(found[3]) - len(found[0])
    return size


def resolved(data: bytes, get: Callable[[Reference], bytes]) -> bytes:
    """The text with each reference replaced by its content."""
    if REFERENCE_MARK not in data:
        return data
    return _REFERENCE.sub(lambda found: get(_read(found)), data)


def _read(found: re.Match[bytes]) -> Reference:
    return Reference(found[1].decode(), bytes.fromhex(found[2].decode()), int(found[3]))
