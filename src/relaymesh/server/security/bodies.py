"""Bodies, read by the guard before any endpoint sees them: bounded in size while they arrive.

`connections` limits how long they may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from relaymesh.server.security.accounts import Account
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.refusals import (
    BODIES_TOO_MANY,
    BODY_TOO_LARGE,
    MALFORMED,
    TOO_MUCH_UNDER_WAY,
    Refused,
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

DRAIN_BYTES = 1_048_576
DRAIN_SECONDS = 1.0


class Gone(Exception):
    """The client went away before its body was whole."""


class Bodies:
    """The bodies of all requests under way, and how much memory they take together."""

    def __init__(self, settings: SecuritySettings, body_bytes_max: int) -> None:
        self._settings = settings
        self._body_bytes_max = body_bytes_max
        self.taken = 0

    async def read(self, receive: Receive, account: Account) -> bytes:
        """The whole body. The caller gives its length back to `release` in the end."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                part, more = await _next(receive)
                size += len(part)
                self.take(len(part), account)
                self._check_room(size, account)
                if not more:
                    return b"".join((*parts, part)) if parts else part
                parts.append(part)
        except BaseException:
            self.release(size, account)
            raise

    def take(self, size: int, account: Account) -> None:
        self.taken += size
        account.incoming += size

    def release(self, size: int, account: Account) -> None:
        self.taken -= size
        account.incoming -= size

    def length(self, content_length: str | None) -> int:
        """The length that the head names; 0 for none. Raises for one that is too large or no number."""
        if content_length is None:
            return 0
        if not (content_length.isascii() and content_length.isdecimal()):
            raise Refused(MALFORMED, "the length of the body is no number")
        if len(content_length) > 15 or int(content_length) > self._body_bytes_max:
            raise Refused(BODY_TOO_LARGE, f"the body is larger than {self._body_bytes_max} bytes")
        return int(content_length)

    def _check_room(self, size: int, account: Account) -> None:
        if size > self._body_bytes_max:
            raise Refused(BODY_TOO_LARGE, f"the body is larger than {self._body_bytes_max} bytes")
        if account.is_over_incoming():
            raise Refused(TOO_MUCH_UNDER_WAY, retry_after=1.0)
        if self.taken > self._settings.bodies_bytes_max:
            raise Refused(BODIES_TOO_MANY)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message.get("body", b""), message.get("more_body", False)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, and then what the connection has to say."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again


async def drain(receive: Receive) -> bool:
    """Let a refused client finish its request, within limits, so that it can read the answer.

    Returns whether it finished: the connection can then be used again.
    """
    size = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while size <= DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect":
                    return False
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False
