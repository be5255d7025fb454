"""One process: a node, its session, and the server around them, from the start to the last sync.

    open the directory -> listen -> write the address file -> serve -> asked to stop ->
    stop accepting, end long polls, let requests finish -> flush, give leases back -> remove the address

A second signal, or the end of `graceful_timeout`, ends it at once. No receipted message is lost: the journal
survives a kill. A journal that fails ends the process with its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from relaymesh.errors import MeshError
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.node import Node
from relaymesh.node.opening import STORE_FILE
from relaymesh.node.settings import MeshSettings
from relaymesh.node.tuning import Given
from relaymesh.server.address import NodeAddress, remove_address, server_folder, write_address
from relaymesh.server.app import build_app
from relaymesh.server.listening import listen, url_of
from relaymesh.server.security.audit import AuditLog
from relaymesh.server.security.connections import Connections
from relaymesh.server.security.tls import check_exposure, tls_context
from relaymesh.server.security.tokens import Tokens, wall_ms
from relaymesh.server.served import Served
from relaymesh.server.settings import ServerSettings
from relaymesh.server.signals import Seam, asked_to_stop, system_signals
from relaymesh.server.tuning import Following, prepare_mailboxes
from relaymesh.server.version import PROTOCOL_VERSION
from relaymesh.store.views import Views
from relaymesh.wire.envelope import iso
from relaymesh.wire.parameters import Value

log = logging.getLogger("relaymesh.server")

WATCH_S = 0.25
"""How often the node is checked: after a failure of the journal the process ends within this time."""
CONNECTIONS_SHARE = 0.6
"""Of the time for a stop, how much requests may take to finish; the rest is for the flush."""
KEEP_ALIVE_S = 75
WS_QUEUE_MAX = 32


@dataclass(frozen=True, slots=True)
class Running:
    """The line that a started server prints."""

    url: str
    directory: Path
    token_file: Path


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its own signal handlers: see `signals`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class NodeServer:
    """A server's whole life: `run` returns when it has stopped, or raises what ended it."""

    def __init__(
        self,
        directory: Path,
        mesh: MeshSettings,
        settings: ServerSettings,
        *,
        announce: Callable[[Running], None],
        signals: Seam | None = None,
        flags: Mapping[str, Value] | None = None,
        toml: Path | None = None,
        kept: Path | None = None,
    ) -> None:
        """`flags`: settings that were chosen also where they are the default. `toml`: a relaymesh.toml whose
        `[settings]` go before the settings file. `kept`: where sound settings are kept for the next start.
        """
        self._directory = directory
        self._mesh = mesh
        self._settings = settings
        self._announce = announce
        self._signals = signals or system_signals()
        self._given = Given(
            environment=os.environ.copy(),
            flags={**settings.flags, **(flags or {})},
            toml=toml,
            kept=kept,
        )
        self._graceful_timeout: Callable[[], float] = lambda: settings.graceful_timeout
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()

    async def run(self) -> bool:
        """Serve until asked to stop. Returns whether it ended in order; False: it was ended early."""
        check_exposure(self._settings)
        tls = tls_context(self._settings)
        tokens = Tokens(server_folder(self._directory))
        with contextlib.closing(listen(self._settings)) as bound:
            node = await asyncio.to_thread(Node, self._directory, self._mesh, given=self._given)
            try:
                self._graceful_timeout = lambda: node.values().graceful_timeout
                folder = server_folder(self._directory)
                await asyncio.to_thread(prepare_mailboxes, node, folder)
                served = self._served(node, tokens)
                following = Following(served, folder)
                server = _Uvicorn(self._config(served, tls))
            except BaseException:
                await asyncio.to_thread(node.close, force=True)
                raise
            following.begin()
            with asked_to_stop(self._signals, self.stop):
                return await self._serve(served, server, bound, following)

    def stop(self, name: str) -> None:
        """Stop in order; the second time, at once. `name`: why. Belongs to the loop."""
        if self._asked.is_set():
            self._hurried.set()
            log.warning("%s again: stopping at once", name)
        else:
            self._asked.set()
            log.info("%s: stopping within %g s", name, self._graceful_timeout())

    async def _serve(
        self, served: Served, server: uvicorn.Server, bound: socket.socket, following: Following
    ) -> bool:
        node = served.node
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            await self._started(server, serving)
            self._say_where(bound, served.tokens.local_path)
            await self._until_the_end(node, serving)
        finally:
            failure = node.core.failure
            following.end()
            in_order = await self._wind_up(served, server, serving)
        if failure is not None:
            raise failure
        return in_order

    # -- the start

    def _served(self, node: Node, tokens: Tokens) -> Served:
        """Make the local token only after the directory is locked: the token of another node must not
        change."""
        folder = server_folder(self._directory)
        limits = self._settings.security
        tokens.make_local()
        return Served(
            node=node,
            session=AsyncLocalSession(node),
            settings=self._settings,
            tokens=tokens,
            audit=AuditLog(folder, bytes_max=limits.audit_bytes_max, files_max=limits.audit_files_max),
            views=None if node.store is None else Views(self._directory / STORE_FILE),
        )

    def _config(self, served: Served, tls: ssl.SSLContext | None) -> uvicorn.Config:
        settings = self._settings
        connections = Connections(settings.security)
        return uvicorn.Config(
            build_app(served),
            http=connections.http,  # type: ignore[arg-type]  # a protocol factory is all that is asked of it
            ws=connections.websocket,  # type: ignore[arg-type]
            ws_max_size=settings.body_bytes_max,
            ws_max_queue=WS_QUEUE_MAX,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )

    async def _started(self, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        while not server.started:
            if serving.done():
                serving.result()
                raise MeshError("the server ended before it had started", hint="see its log")
            await asyncio.sleep(0.005)

    def _say_where(self, bound: socket.socket, token_file: Path) -> None:
        url = url_of(self._settings, bound)
        started = iso(wall_ms())
        write_address(
            self._directory, NodeAddress(url=url, pid=os.getpid(), started=started, protocol=PROTOCOL_VERSION)
        )
        self._announce(Running(url, self._directory, token_file))

    # -- until the end

    async def _until_the_end(self, node: Node, serving: asyncio.Task[None]) -> None:
        """Return when asked to stop, or when the journal or the server has failed."""
        asked = asyncio.create_task(self._asked.wait())
        try:
            while node.core.failure is None and not serving.done() and not asked.done():
                await asyncio.wait({asked, serving}, timeout=WATCH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if node.core.failure is not None:
            log.error("the node has failed and ends: %s", node.core.failure)

    # -- the end

    async def _wind_up(self, served: Served, server: uvicorn.Server, serving: asyncio.Task[None]) -> bool:
        """Stop accepting, end waiting requests, sync, and release the directory. Returns whether it ended
        in time and in order."""
        served.stopping.set()
        server.should_exit = True
        hurried = asyncio.create_task(self._hurried.wait())
        ending = asyncio.create_task(self._end(served, server, serving))
        try:
            await asyncio.wait(
                {ending, hurried},
                timeout=self._graceful_timeout(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            hurried.cancel()
        if not ending.done():
            log.warning("cut short: what was receipted is in the journal, and the next start recovers it")
            server.force_exit = True
            return False
        ending.result()
        return True

    async def _end(self, served: Served, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        await asyncio.wait({serving}, timeout=self._graceful_timeout() * CONNECTIONS_SHARE)
        if not serving.done():
            _cut_connections(server)
        await serving
        remove_address(self._directory, os.getpid())
        served.tokens.drop_local()
        failed = served.node.core.failure is not None
        await served.session.close(force=failed)
        await served.audit.close()
        served.large.shutdown(wait=False, cancel_futures=True)
        if served.views is not None:
            served.views.close()
        if not failed:
            node = served.node
            log.info("stopped; recovery point: everything before sequence %d is synced", node.core.synced)


def _cut_connections(server: uvicorn.Server) -> None:
    """A client that does not end must not keep the node from its flush."""
    state = server.server_state
    log.warning("%d connections did not end in time and are cut", len(state.connections))
    server.force_exit = True
    for connection in list(state.connections):
        transport = getattr(connection, "transport", None)
        if transport is not None:
            transport.abort()
    for task in list(state.tasks):
        task.cancel()


def event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where there is one."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    uvloop = importlib.import_module("uvloop")
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
