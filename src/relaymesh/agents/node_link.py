"""How the supervisor reaches the node of its data directory, across the restarts of that node.

The ids of its sessions are on disk. A delivery may be granted to a session and the supervisor killed before
the attempt is on record. The successor goes on with each session of the dead one, holds nothing there, and
says goodbye: what was granted goes back unburned, without waiting for the end of its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec

from relaymesh.client.discovery import Found, running_node
from relaymesh.client.settings import RemoteSettings
from relaymesh.client.websocket import WebSocketSession
from relaymesh.errors import MeshError, Unreachable
from relaymesh.modes import replace_file

__all__ = ["NodeLink"]

UNREACHABLE_S = 86_400.0
"""Calls wait without limit for a node that restarts."""
START_WAIT_S = 30.0
RETRY_S = 0.1


class NodeLink:
    """Sessions with the node. Each agent has its own: a failure of one does not affect other agents.

    `noted`: the file with the ids of the sessions. Use it under the supervisor's lock alone.
    """

    def __init__(self, directory: Path, noted: Path) -> None:
        self._directory = directory
        self._noted = noted
        self._open: list[WebSocketSession] = []
        self._left: list[str] = []
        """Sessions of a dead supervisor that still have to be ended."""
        self.url = ""
        """Where the node was found last."""

    async def connect(self, resume: str | None = None) -> WebSocketSession:
        """A new session, or one to go on with. Waits for a node that is just being started."""
        until = time.monotonic() + START_WAIT_S
        while True:
            try:
                session = await self._try(resume)
            except MeshError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(RETRY_S)
                continue
            self._open.append(session)
            self.note()
            return session

    def read_left(self) -> None:
        """Find out which sessions a dead supervisor had. Call it before any `connect`."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            self._left = msgspec.json.decode(self._noted.read_bytes(), type=list[str])

    async def end_left(self) -> None:
        """End them: what they hold goes back unburned."""
        while self._left:
            session = await self.connect(self._left[0])
            await session.close()
            self._left.pop(0)
        self.note()

    def note(self) -> None:
        """Write down which sessions are open. On a full disk a successor may wait for leases to end."""
        self._open = [session for session in self._open if session.failure is None]
        ids = [*self._left, *[session.id for session in self._open]]
        with contextlib.suppress(OSError):
            replace_file(self._noted, msgspec.json.encode(ids))

    async def _try(self, resume: str | None) -> WebSocketSession:
        found = self._find()
        if found is None:
            raise Unreachable(f"no node serves {self._directory}")
        settings = RemoteSettings(unreachable_s=UNREACHABLE_S)
        session = await WebSocketSession(
            found.url, found.token, settings, find=self._find, resume=resume
        ).open()
        self.url = found.url
        return session

    def _find(self) -> Found | None:
        return running_node(self._directory)
