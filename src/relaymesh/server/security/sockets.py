"""Open WebSockets by credential: when a token ends, so do its connections, within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from relaymesh.server.security.tokens import Tokens

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

CLOSE_UNAUTHORIZED = 4401
LOOK_SECONDS = 0.5


class Socket:
    """One open WebSocket. After its token has ended nothing more is sent on it."""

    __slots__ = ("_send", "ended", "token_id")

    def __init__(self, send: Send) -> None:
        self.token_id: str | None = None
        """None: it has shown no credential yet."""
        self._send = send
        self.ended = False

    async def send(self, message: Message) -> None:
        if not self.ended:
            await self._send(message)

    async def end(self) -> None:
        """Say that it is over; the server underneath then ends it."""
        try:
            await self._send(
                {"type": "websocket.close", "code": CLOSE_UNAUTHORIZED, "reason": "the token has ended"}
            )
        except (OSError, RuntimeError):
            return  # it was closing by itself


class Sockets:
    """The open ones of one server."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._open: set[Socket] = set()
        self._watch: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def opened(self, send: Send) -> Iterator[Socket]:
        socket = Socket(send)
        self._open.add(socket)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look(), name="relaymesh-tokens")
        try:
            yield socket
        finally:
            self._open.discard(socket)

    async def _look(self) -> None:
        while self._open:
            await asyncio.sleep(LOOK_SECONDS)
            self._tokens.refresh()
            for socket in self._open:
                id = socket.token_id
                if id is not None and not socket.ended and not self._tokens.is_valid(id):
                    self._end(socket)

    def _end(self, socket: Socket) -> None:
        socket.ended = True
        ending = asyncio.create_task(socket.end())  # not awaited: one that does not read may take its time
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
