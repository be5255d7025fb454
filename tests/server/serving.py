"""A server in this process, without a socket: real node, real guard, real tokens, requests through ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.clock import Clock
from relaymesh.node.node import Node
from relaymesh.node.opening import STORE_FILE
from relaymesh.node.settings import MeshSettings
from relaymesh.server.address import server_folder
from relaymesh.server.app import build_app
from relaymesh.server.security.audit import AuditLog
from relaymesh.server.security.tokens import TokenFile, Tokens
from relaymesh.server.served import Served
from relaymesh.server.settings import ServerSettings
from relaymesh.store.views import Views

URL = "http://127.0.0.1:7717"
PATIENCE_S = 60.0


class Api:
    """What a test speaks to. `admin` may do everything; `agent(name)` is one agent alone."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.app: Any = build_app(served)
        self._file = TokenFile(folder)
        self._clients: list[httpx.AsyncClient] = []
        self.admin = self.client(["admin"])

    def token(self, scopes: Iterable[str], namespace: str = "default") -> str:
        return self._file.create(scopes, namespace=namespace)[1]

    def client(self, scopes: Iterable[str], namespace: str = "default") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.token(scopes, namespace)}"}
        self._known()
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=True),
            base_url=URL,
            headers=headers,
            timeout=PATIENCE_S,
        )
        self._clients.append(client)
        return client

    def agent(self, name: str) -> httpx.AsyncClient:
        return self.client([f"agent:{name}"])

    async def open(self, *names: str) -> None:
        for name in names:
            answer = await self.admin.put(f"/v1/mailboxes/{name}")
            assert answer.status_code == 200, answer.text

    async def send(self, to: str, content: Any, *, sender: str = "planner", **fields: Any) -> dict[str, Any]:
        message = {"from": sender, "to": to, "content": content, **fields}
        answer = await self.admin.post("/v1/messages", json=message)
        assert answer.status_code == 202, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    async def receive(self, mailbox: str, **asked: Any) -> list[dict[str, Any]]:
        answer = await self.admin.post(f"/v1/mailboxes/{mailbox}/receive", json=asked)
        assert answer.status_code == 200, answer.text
        deliveries: list[dict[str, Any]] = answer.json()["deliveries"]
        return deliveries

    async def settle(self, **how: Any) -> list[dict[str, Any]]:
        answer = await self.admin.post("/v1/settle", json=how)
        assert answer.status_code in (200, 409), answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results

    async def counters(self, mailbox: str) -> dict[str, Any]:
        answer = await self.admin.get("/v1/stats")
        found: dict[str, Any] = answer.json()["mailboxes"][f"default/{mailbox}"]
        return found

    def _known(self) -> None:
        """Let the server see a token that was made just now."""
        self.served.tokens._look_again = 0.0

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def serving(
    path: Path,
    *,
    mesh: MeshSettings | None = None,
    settings: ServerSettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Api]:
    node = await asyncio.to_thread(Node, path, mesh or MeshSettings(), clock=clock)
    folder = server_folder(path)
    served = Served(
        node=node,
        session=AsyncLocalSession(node),
        settings=settings or ServerSettings(),
        tokens=Tokens(folder),
        audit=AuditLog(folder),
        views=None if node.store is None else Views(path / STORE_FILE),
    )
    api = Api(served, folder)
    try:
        yield api
    finally:
        await api.close()
        await served.session.close()
        await served.audit.close()
        if served.views is not None:
            served.views.close()


class Caller:
    """One request by hand, for clients that go away: `leave` is what the server sees then."""

    def __init__(self, api: Api, method: str, path: str, body: Any, token: str) -> None:
        self._left = asyncio.Event()
        self._body: list[bytes] = [json.dumps(body).encode()]
        self.answered: list[Any] = []
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [
                (b"host", b"127.0.0.1:7717"),
                (b"authorization", f"Bearer {token}".encode()),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(self._body[0])).encode()),
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 7717),
            "state": {},
        }
        self.task: asyncio.Task[None] = asyncio.create_task(api.app(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        self.answered.append(event)

    def leave(self) -> None:
        self._left.set()
