"""What waits to be written to a client: frames that wait at the same moment leave as one message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from relaymesh.server.exchange import Send
from relaymesh.server.security.accounts import Account
from relaymesh.server.ws.binary import Binary
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.text import Text
from relaymesh.wire.bundles import BUNDLE_BYTES_MAX, bundle, take

OUTBOX_BYTES_MAX = 67_108_864
PUSH_BYTES_MAX = 8_388_608
"""While more than this waits, no further deliveries are taken from a mailbox."""
DRAIN_BYTES = 65_536
"""A message of this length counts as waiting until the socket has taken it."""

Drained = Callable[[], Awaitable[None]]


class Outbox:
    """The frames of one connection on their way out. They count for their credential until they are gone."""

    def __init__(
        self,
        codec: Binary | Text,
        send: Send,
        end: Callable[[Ended], None],
        account: Account,
        drained: Drained | None = None,
    ) -> None:
        self._codec = codec
        self._send = send
        self._end = end
        self._account = account
        self._drained = drained
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self.bundles = False
        """Whether the client reads messages of several frames."""

    def put(self, data: bytes) -> None:
        """Leave a frame to be written. One too many for a client that does not read ends the connection."""
        size = len(data)
        has_room = self._account.has_room_for(size)
        self._waiting.append(data)
        self._bytes += size
        self._account.outgoing += size
        if self._bytes > PUSH_BYTES_MAX:
            self._room.clear()
        if self._bytes > OUTBOX_BYTES_MAX or not has_room:
            self._end(Ended(Close.TRY_LATER, "too much waits to be read"))
        elif self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        event = self._codec.event
        try:
            while self._waiting:
                parts = take(self._waiting, BUNDLE_BYTES_MAX if self.bundles else 0)
                size = sum(map(len, parts))
                await self._send(event(bundle(parts)))
                if size > DRAIN_BYTES and self._drained is not None:
                    await self._drained()
                self._gone(size)
        except (OSError, RuntimeError):
            self._end(Ended(Close.DONE, "the client is gone"))
        finally:
            self._writing = None

    def _gone(self, size: int) -> None:
        self._bytes -= size
        self._account.outgoing -= size
        if self._bytes <= PUSH_BYTES_MAX:
            self._room.set()

    @property
    def has_room(self) -> bool:
        """Whether the client has read enough to get more deliveries."""
        return self._room.is_set()

    async def room(self) -> None:
        """Return when it has."""
        await self._room.wait()

    def clear(self) -> None:
        """Discard the waiting frames."""
        self._gone(sum(map(len, self._waiting)))
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
        self._waiting.clear()
        self._gone(self._bytes)
