"""Lines out of a stream that comes in pieces, with a bound on the longest one."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Lines"]


class Lines:
    """Takes pieces and returns whole lines. A line over the bound is cut there, and counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self.cut = 0
        """Lines that were over the bound."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete now, without line ends."""
        self._held += data
        start = 0
        while (end := self._held.find(b"\n", start)) >= 0:
            line = bytes(self._held[start:end])
            start = end + 1
            yield from self._bounded(line)
        del self._held[:start]
        while len(self._held) > self._most:
            piece = bytes(self._held[: self._most])
            del self._held[: self._most]
            self.cut += 1
            yield piece

    def skip(self, data: bytes, unless: bytes) -> bytes | None:
        """Skip the lines of this piece without looking at each. Returns the last whole one, or b"".

        Returns None, and skips nothing, if the bytes `unless` are in it.
        """
        data = bytes(self._held) + data
        if unless in data:
            return None
        end = data.rfind(b"\n")
        self._held[:] = data[end + 1 :][: self._most]
        return data[data.rfind(b"\n", 0, end) + 1 : end] if end >= 0 else b""

    def rest(self) -> bytes:
        """The text after the last line end."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _bounded(self, line: bytes) -> Iterator[bytes]:
        line = line.removesuffix(b"\r")
        if len(line) > self._most:
            self.cut += 1
        for at in range(0, max(1, len(line)), self._most):
            yield line[at : at + self._most]
