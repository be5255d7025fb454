"""Messages of several frames, in `relaymesh.v1.msgpack`: an array of them.

A message costs both sides more than a frame does: calls of the system, a turn of an event loop, a task that
is woken. So what waits to leave at the same moment leaves together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated

import msgspec

BUNDLE_BYTES_MAX = 8_192
"""Frames are put together up to so many bytes; a larger one leaves by itself."""
BUNDLE_FRAMES_MAX = 1_024
"""Frames in one message. A reader refuses more."""

_encode = msgspec.msgpack.Encoder().encode
_Frames = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BUNDLE_FRAMES_MAX)]
_decode = msgspec.msgpack.Decoder(_Frames).decode
_ARRAYS = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
"""How an array begins in MessagePack. A frame is a map."""


def take(waiting: deque[bytes], bytes_max: int) -> list[bytes]:
    """The first frame that waits, and those behind it that fit into one message with it."""
    parts = [waiting.popleft()]
    room = bytes_max - len(parts[0])
    while waiting and len(waiting[0]) <= room and len(parts) < BUNDLE_FRAMES_MAX:
        room -= len(waiting[0])
        parts.append(waiting.popleft())
    return parts


def bundle(parts: Sequence[bytes]) -> bytes:
    """Encoded frames as one message."""
    return parts[0] if len(parts) == 1 else _encode([msgspec.Raw(part) for part in parts])


def unbundle(message: bytes) -> Sequence[bytes | msgspec.Raw]:
    """The encoded frames of a message. Raises `msgspec.ValidationError` if there are too many."""
    return _decode(message) if message and message[0] in _ARRAYS else (message,)
