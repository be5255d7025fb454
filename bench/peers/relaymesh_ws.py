"""RelayMesh behind a WebSocket: `relaymesh serve`, and `AsyncMesh` in other processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

import relaymesh
from bench.peers.flow import Flow
from bench.peers.server import FailedServer, Server, free_port
from bench.peers.tasks import receive_all, send_all, until_go
from relaymesh import AsyncMesh

if TYPE_CHECKING:
    from relaymesh.sdk.async_agent import AsyncAgent
    from relaymesh.sdk.async_delivery import AsyncDelivery

NAME = "RelayMesh, WebSocket"
TARGET, SENDER = "worker", "sender"
SENDERS = {1: 32, 100: 8, 1000: 3}
RECEIVERS = {1: 16, 100: 8, 1000: 2}
TOKEN_FILE = Path("data/server/local.token")

CLIENT = "relaymesh, MessagePack frames"
SYNCED = True
BATCHING = "send_many, receive_many, ack_many: one frame each"
PROMISE = "receipted once its record is synced; acks are written at once and synced within 100 ms"


def version() -> str:
    return relaymesh.__version__


def start(place: Path) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "relaymesh.cli.main", "serve", "--dir", "data"]
    server = Server(NAME, [*command, "--port", str(port), "--write-rate", "0"], place, port)
    server.until_it_listens()
    os.environ["RELAYMESH_TOKEN"] = _token(place / TOKEN_FILE)
    return server


def _token(file: Path) -> str:
    for _ in range(500):
        if file.exists():
            return file.read_text(encoding="utf-8").strip()
        time.sleep(0.01)
    raise FailedServer(f"{NAME} left no token in {file}")


def _mesh(port: int) -> AsyncMesh:
    return AsyncMesh(f"http://127.0.0.1:{port}")


def set_up(port: int) -> None:
    asyncio.run(_set_up(port))


async def _set_up(port: int) -> None:
    async with _mesh(port) as mesh:
        await mesh.agent(SENDER)
        worker = await mesh.agent(TARGET, capacity=10_000_000, capacity_bytes=8_000_000_000)
        while left := await worker.receive_many(1000, 0):
            await mesh.ack_many(left)


def drive(port: int, roles: list[str], flow: Flow) -> None:
    uvloop.run(_drive(port, roles, flow))


async def _drive(port: int, roles: list[str], flow: Flow) -> None:
    async with _mesh(port) as mesh:
        sender, worker = await mesh.agent(SENDER), await mesh.agent(TARGET)
        await until_go(flow)
        work = []
        if "produce" in roles:
            send = _Sender(sender, is_json=flow.shape.rate is None).send
            work += [send_all(flow, index, send) for index in range(flow.shape.senders)]
        if "consume" in roles:
            work += [
                receive_all(flow, index, _Receiver(mesh, worker)) for index in range(flow.shape.receivers)
            ]
        await asyncio.gather(*work)
        if "consume" in roles and (left := (await mesh.stats()).mailboxes[worker.address].pending):
            raise RuntimeError(f"the mesh still has {left} messages without an ack")


class _Sender:
    def __init__(self, agent: AsyncAgent, *, is_json: bool) -> None:
        self._agent = agent
        self._content: Callable[[bytes], Any] = msgspec.Raw if is_json else bytes

    async def send(self, bodies: list[bytes]) -> None:
        """JSON that is encoded already, which the node checks all the same; or bytes."""
        content = self._content
        await self._agent.send_many([{"to": TARGET, "content": content(body)} for body in bodies])


class _Receiver:
    def __init__(self, mesh: AsyncMesh, agent: AsyncAgent) -> None:
        self._mesh = mesh
        self._agent = agent
        self._got: list[AsyncDelivery] = []

    async def receive(self, count: int, timeout_s: float) -> list[bytes]:
        self._got = await self._agent.receive_many(count, timeout_s)
        return [delivery.envelope.content for delivery in self._got]

    async def ack(self) -> None:
        await self._mesh.ack_many(self._got)

    async def settle(self) -> None:
        """Every ack was answered."""
