"""Where WebSocket frames end in the bytes of a client, without reading them (RFC 6455, section 5.2).

Reading a frame costs several microseconds, and 256 KiB that arrive at once may hold 43,000 of them. So they
are cut into pieces of a few frames, and others have their turn in between.
"""

from __future__ import annotations

_DATA = frozenset({0x1, 0x2})
"""Opcodes that begin a message. Each message is charged when the application takes it, so not here."""


class FrameScan:
    """Follows the frames of one connection. Sans I/O."""

    __slots__ = ("_head", "_left", "control")

    def __init__(self) -> None:
        self._left = 0
        self._head = b""
        self.control = 0
        """Frames since the last `charged` that begin no message: pings, pongs, continuations."""

    def cut(self, data: bytes, most: int) -> int:
        """The length of the part of `data` in which at most `most` frames begin."""
        size = len(data)
        at = self._left
        while at < size:
            if most == 0:
                self._left = 0
                return at
            head = self._head + data[at : at + 14 - len(self._head)]
            length = _frame_length(head)
            if length is None:
                self._head, self._left = head, 0
                return size
            at += length - len(self._head)
            self._head = b""
            self.control += (head[0] & 0x0F) not in _DATA
            most -= 1
        self._left = at - size
        return size

    def charged(self) -> int:
        """How many frames that begin no message came since the last call."""
        control, self.control = self.control, 0
        return control


def _frame_length(head: bytes) -> int | None:
    """The length of the frame that begins so; None if more of its head is needed."""
    if len(head) < 2:
        return None
    mask = 4 if head[1] & 0x80 else 0
    short = head[1] & 0x7F
    if short < 126:
        return 2 + mask + short
    extended = 2 if short == 126 else 8
    if len(head) < 2 + extended:
        return None
    return 2 + extended + mask + int.from_bytes(head[2 : 2 + extended])
