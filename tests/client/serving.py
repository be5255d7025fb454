"""A whole server in this process, on loopback, in a thread of its own: real sockets and guard, any clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.clock import Clock
from relaymesh.node.node import Node
from relaymesh.node.opening import STORE_FILE
from relaymesh.node.settings import MeshSettings
from relaymesh.server.address import server_folder
from relaymesh.server.app import build_app
from relaymesh.server.listening import listen, url_of
from relaymesh.server.security.audit import AuditLog
from relaymesh.server.security.connections import Connections
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.tokens import TokenFile, Tokens
from relaymesh.server.served import Served
from relaymesh.server.settings import ServerSettings
from relaymesh.store.views import Views

PATIENCE_S = 60.0
ANY_PORT = ServerSettings(port=0, security=SecuritySettings(write_rate=0))


class ServerThread:
    """A node that is served until `stop`. Opening the same path again is a restart."""

    def __init__(
        self,
        path: Path,
        mesh: MeshSettings | None = None,
        *,
        clock: Clock | None = None,
        settings: ServerSettings = ANY_PORT,
    ) -> None:
        self._path = path
        self._settings = settings
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        in_memory = mesh is not None and mesh.durability == "memory"
        self.node = Node(None if in_memory else path, mesh or MeshSettings(), clock=clock)
        self.tokens = TokenFile(server_folder(path))
        self.url = ""
        self.served: Served
        self.connections: Connections
        self.loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def token(self, scopes: Iterable[str] = ("admin",), namespace: str = "default") -> str:
        secret = self.tokens.create(scopes, namespace=namespace)[1]
        self.served.tokens._look_again = 0.0  # let the server see it at once
        return secret

    def stop(self, *, force: bool = False) -> None:
        """The way a server ends; `force` cuts connections and flushes nothing, as a kill would."""
        if self._thread.is_alive():
            self._force = force
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def again(self, *, force: bool = False) -> ServerThread:
        """Stop, and start anew on the same directory and port."""
        self.stop(force=force)
        settings = replace(self._settings, port=self.port)
        return ServerThread(self._path, self.node.settings, clock=self.node.clock, settings=settings)

    def cut(self) -> None:
        """Every connection breaks; the node goes on."""
        self.loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for connection in list(self._state.connections):
            connection.transport.abort()

    def __enter__(self) -> ServerThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._force = False
        folder = server_folder(self._path)
        node = self.node
        self.served = served = Served(
            node=node,
            session=AsyncLocalSession(node),
            settings=self._settings,
            tokens=Tokens(folder),
            audit=AuditLog(folder),
            views=None if node.store is None else Views(self._path / STORE_FILE),
        )
        self._state = state = ServerState()
        self.connections = Connections(self._settings.security)
        config = _config(served, self._settings, self.connections)
        bound = listen(self._settings)
        self.url = url_of(self._settings, bound)
        server = await self.loop.create_server(
            lambda: config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=state, app_state={}
            ),
            sock=bound,
        )
        self._ready.set()
        await self._stopping.wait()
        server.close()
        await self._end(state)

    async def _end(self, state: ServerState) -> None:
        served = self.served
        if self._force:
            self._abort()
        else:
            served.stopping.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            for connection in list(state.connections):
                connection.shutdown()
        tasks: set[Any] = set(state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await served.session.close(force=self._force)
        await served.audit.close()
        if served.views is not None:
            served.views.close()


def _config(served: Served, settings: ServerSettings, connections: Connections) -> uvicorn.Config:
    config = uvicorn.Config(
        build_app(served),
        http=connections.http,  # type: ignore[arg-type]
        ws=connections.websocket,  # type: ignore[arg-type]
        ws_max_size=settings.body_bytes_max,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    config.load()
    return config
