"""What is sent: contents of an exact size, so that every system carries the same number of bytes."""

from __future__ import annotations

import struct
import time
from typing import Any, Literal

Kind = Literal["json", "bytes"]

_STAMP = struct.Struct("<d")


def content(kind: Kind, size: int) -> Any:
    """A JSON object, or bytes, of `size` bytes on the wire."""
    if kind == "bytes":
        return b"x" * size
    frame = '{"do":"bump version","n":12345678,"pad":""}'
    return {"do": "bump version", "n": 12345678, "pad": "x" * (size - len(frame))}


def text(size: int) -> str:
    """The same number of bytes for a queue that carries strings."""
    return "x" * size


def stamped(size: int, at: float) -> bytes:
    """Bytes that say when they were to be sent."""
    return _STAMP.pack(at) + b"x" * (size - _STAMP.size)


def age(data: bytes, now: float) -> float:
    """Seconds since the moment in a stamped content."""
    moment: float = _STAMP.unpack_from(data)[0]
    return now - moment


def clock() -> float:
    """The clock of stamps: one process, so the monotonic one."""
    return time.perf_counter()
