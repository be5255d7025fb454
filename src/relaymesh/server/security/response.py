"""Headers that every answer gets for browsers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

DEFAULTS: Headers = [
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
]
"""Unless the application gave its own: a page that needs scripts of this server says so itself."""

ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]

_NEVER = frozenset({b"server", b"x-powered-by"}) | {name for name, _ in ALWAYS}


def secured(headers: Headers) -> Headers:
    """The headers with what every answer carries, and without what says too much."""
    kept = [pair for pair in headers if pair[0].lower() not in _NEVER]
    given = {name.lower() for name, _ in kept}
    return [*kept, *(pair for pair in DEFAULTS if pair[0] not in given), *ALWAYS]


class Answered:
    """A `send` that secures the headers and remembers the status; 0 while there is none."""

    __slots__ = ("_send", "extra", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.extra: Headers = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": secured([*message.get("headers", ()), *self.extra])}
        await self._send(message)
