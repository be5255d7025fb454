"""The output of a connection: the bytes that wait for the client, and whether the client reads."""

from __future__ import annotations

import asyncio

from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.refusals import PROBLEM_JSON, Refusal, problem_body

PROGRESS_BYTES = 65_536


class Outgoing:
    """Looks at a transport's buffer now and then. A reader that takes nothing for too long is stuck."""

    def __init__(self, transport: asyncio.Transport, settings: SecuritySettings) -> None:
        self._transport = transport
        self._settings = settings
        self._since: float | None = None
        self._waiting = 0

    def moved(self) -> None:
        """The reader took enough for more to be written."""
        self._since = None

    def is_too_much(self) -> bool:
        return self._transport.get_write_buffer_size() > self._settings.write_buffer_bytes_max

    def is_stuck(self, now: float) -> bool:
        size = self._transport.get_write_buffer_size()
        if size == 0:
            self._since = None
        elif self._since is None or size <= self._waiting - PROGRESS_BYTES:
            self._since, self._waiting = now, size
        return self._since is not None and now - self._since > self._settings.write_seconds


def answer_now(refusal: Refusal, status_line: bytes) -> bytes:
    """A whole HTTP answer, for where no application is asked."""
    body = problem_body(refusal)
    return b"".join(
        (
            status_line,
            b"content-type: ",
            PROBLEM_JSON,
            b"\r\ncontent-length: ",
            str(len(body)).encode(),
            b"\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
            body,
        )
    )
