"""Answers that never arrive: the node has done what was asked, and the connection breaks."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.server.ws.connection import Connection
from relaymesh.wire.frames import decode_node
from tests.client.serving import ServerThread


class Loss:
    """The next frame of a kind is not sent; every connection is cut in its place."""

    def __init__(self, server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        self._kind: type[Any] | None = None
        self.lost = 0
        whole = Connection.put

        def put(connection: Connection, data: bytes) -> None:
            if self._kind is not None and isinstance(decode_node(data), self._kind):
                self._kind = None
                self.lost += 1
                self._server._abort()
            else:
                whole(connection, data)

        monkeypatch.setattr(Connection, "put", put)

    def of(self, kind: type[Any]) -> None:
        self._kind = kind
