"""What waits to be written to a client: frames that wait at the same moment leave as one message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from relaymesh.server.exchange import Send
from relaymesh.server.ws.binary import Binary
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.text import Text
from relaymesh.wire.bundles import BUNDLE_BYTES_MAX, bundle, take

OUTBOX_BYTES_MAX = 67_108_864


class Outbox:
    """The frames of one connection on their way out."""

    def __init__(self, codec: Binary | Text, send: Send, end: Callable[[Ended], None]) -> None:
        self._codec = codec
        self._send = send
        self._end = end
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self.bundles = False
        """Whether the client reads messages of several frames."""

    def put(self, data: bytes) -> None:
        """Leave a frame to be written. One too many for a client that does not read ends the connection."""
        self._waiting.append(data)
        self._bytes += len(data)
        if self._bytes > OUTBOX_BYTES_MAX:
            self._end(Ended(Close.TRY_LATER, "too much waits to be read"))
        elif self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        event = self._codec.event
        try:
            while self._waiting:
                parts = take(self._waiting, BUNDLE_BYTES_MAX if self.bundles else 0)
                await self._send(event(bundle(parts)))
                self._bytes -= sum(map(len, parts))
        except (OSError, RuntimeError):
            self._end(Ended(Close.DONE, "the client is gone"))
        finally:
            self._writing = None

    def clear(self) -> None:
        """What waits is not to be written any more."""
        self._waiting.clear()

    async def flushed(self, timeout_s: float) -> None:
        """Wait until all is written, but not for ever."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=timeout_s)

    async def stop(self) -> None:
        """Write no more."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
