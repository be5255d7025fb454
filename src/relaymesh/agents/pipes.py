"""Pipes to and from a child, on the event loop: neither a full nor a broken one blocks anything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import IO

__all__ = ["Feed", "Reader"]

READ_BYTES = 65_536
PIPE_BYTES_MAX = 1_048_576
"""The most that a pipe of an ordinary user can hold."""


class Feed:
    """Writes to a child in the background, as fast as the child reads. After the pipe is closed, the rest
    is lost."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._file = pipe.fileno()
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._writing = False
        self._closing = False
        os.set_blocking(self._file, False)

    @property
    def broken(self) -> bool:
        return self._pipe.closed

    @property
    def waiting(self) -> int:
        """Bytes that the child has not taken yet."""
        return len(self._waiting)

    def write(self, data: bytes) -> None:
        if self._pipe.closed or self._closing:
            return
        self._waiting += data
        self._flush()

    def finish(self) -> None:
        """Close the pipe once all is written."""
        self._closing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the pipe now."""
        if self._writing:
            self._loop.remove_writer(self._file)
            self._writing = False
        self._waiting.clear()
        self._pipe.close()

    def _flush(self) -> None:
        try:
            while self._waiting:
                with memoryview(self._waiting) as view:
                    written = os.write(self._file, view[:READ_BYTES])
                del self._waiting[:written]
        except BlockingIOError:
            if not self._writing:
                self._loop.add_writer(self._file, self._flush)
                self._writing = True
            return
        except OSError:  # the child has closed it, or ended
            self.close()
            return
        if self._writing:
            self._loop.remove_writer(self._file)
            self._writing = False
        if self._closing:
            self.close()


class Reader:
    """Passes on the output of a child, one piece in each turn of the event loop."""

    def __init__(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        self._pipe = pipe
        self._file = pipe.fileno()
        self._take = take
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._file, False)
        self._loop.add_reader(self._file, self._read)

    def catch_up(self) -> None:
        """Pass on what is in the pipe now, without waiting for more."""
        room = PIPE_BYTES_MAX
        while room > 0 and not self._pipe.closed and (taken := self._read()):
            room -= taken

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._file)
            self._pipe.close()

    def _read(self) -> int:
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()
        return len(data)
