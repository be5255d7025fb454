"""How the supervisor reaches the node of its data directory, across the restarts of that node."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from relaymesh.client.connecting import connect
from relaymesh.client.discovery import Found, running_node
from relaymesh.client.settings import RemoteSettings
from relaymesh.client.websocket import WebSocketSession
from relaymesh.errors import MeshError, Unreachable

__all__ = ["NodeLink"]

UNREACHABLE_S = 86_400.0
"""Calls wait for a node that restarts, however long that takes."""
START_WAIT_S = 30.0
RETRY_S = 0.1


class NodeLink:
    """Sessions with the node. Each agent has one of its own, so one that fails takes no other along."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = ""
        """Where the node was found last."""

    async def connect(self) -> WebSocketSession:
        """A new session. Waits for a node that is just being started."""
        until = time.monotonic() + START_WAIT_S
        while True:
            try:
                return await self._try()
            except MeshError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _try(self) -> WebSocketSession:
        found = self._find()
        if found is None:
            raise Unreachable(f"no node serves {self._directory}")
        settings = RemoteSettings(unreachable_s=UNREACHABLE_S)
        session = await connect(found.url, found.token, "websocket", settings, find=self._find)
        assert isinstance(session, WebSocketSession)
        self.url = found.url
        return session

    def _find(self) -> Found | None:
        return running_node(self._directory)
