"""NATS JetStream: a file stream, asynchronous publishes a batch at a time, pull consumers."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.js import api

from bench.meshes import run_on_loop
from bench.peers.flow import Flow
from bench.peers.server import FailedServer, Server, find, free_port, version_of
from bench.peers.tasks import receive_all, send_all, until_go

NAME = "NATS JetStream"
STREAM, SUBJECT, DURABLE = "WORK", "work", "workers"
SENDERS = {1: 200, 100: 8, 1000: 3}
RECEIVERS = {1: 8, 100: 2, 1000: 2}
ACKS_OUTSTANDING = 200_000
SETTLE_S = 20.0

CLIENT = "nats-py on uvloop"
SYNCED = False
BATCHING = "publish_async, acks gathered by the batch; fetch(batch); one ack a message"
PROMISE = (
    "its default, a sync every 2 minutes: written to the file, not synced. It outlives a crash of the "
    "server; a power loss takes up to two minutes of acknowledged messages."
)


def program() -> str:
    return find("nats-server", "nats-server")


def version() -> str:
    return version_of(program(), "--version").rpartition("v")[2]


def start(place: Path) -> Server:
    return start_with(place, "")


def start_with(place: Path, option: str) -> Server:
    port = free_port()
    configuration = write_configuration(place, port, option)
    server = Server(NAME, [program(), "-c", str(configuration)], place, port)
    server.until_it_listens()
    return server


def write_configuration(place: Path, port: int, option: str) -> Path:
    path = place.resolve() / "nats.conf"
    store = place.resolve() / "store"
    store.mkdir(exist_ok=True)
    path.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{store}"\n {option} }}\n', encoding="utf-8"
    )
    return path


def accepts(place: Path, option: str) -> bool:
    """Does this version know the option? Debian 12's 2.9 has no sync_interval."""
    path = write_configuration(place, free_port(), option)
    done = subprocess.run([program(), "-c", str(path), "-t"], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def set_up(port: int) -> None:
    run_on_loop(_set_up(port))


async def _set_up(port: int) -> None:
    connection = await _connect(port)
    stream = connection.jetstream()
    try:
        await stream.delete_stream(STREAM)
    except nats.js.errors.NotFoundError:
        pass
    await stream.add_stream(
        name=STREAM,
        subjects=[SUBJECT],
        storage=api.StorageType.FILE,
        retention=api.RetentionPolicy.WORK_QUEUE,
    )
    await stream.add_consumer(
        STREAM,
        api.ConsumerConfig(
            durable_name=DURABLE,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=120,
            max_ack_pending=ACKS_OUTSTANDING,
        ),
    )
    await connection.close()


async def _connect(port: int) -> Any:
    return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=10)


def drive(port: int, roles: list[str], flow: Flow) -> None:
    run_on_loop(_drive(port, roles, flow))


async def _drive(port: int, roles: list[str], flow: Flow) -> None:
    connections = [await _connect(port) for _ in roles]
    work = []
    for role, connection in zip(roles, connections, strict=True):
        if role == "produce":
            sender = Sender(connection)
            work += [send_all(flow, index, sender.send) for index in range(flow.shape.senders)]
        else:
            for index in range(flow.shape.receivers):
                receiver = Puller(connection)
                await receiver.open()
                work.append(receive_all(flow, index, receiver))
    await until_go(flow)
    await asyncio.gather(*work)
    for connection in connections:
        await connection.close()


class Sender:
    """Publishes a batch without waiting in between, then waits for all its acks."""

    def __init__(self, connection: Any) -> None:
        self._stream = connection.jetstream(publish_async_max_pending=ACKS_OUTSTANDING)

    async def send(self, bodies: list[bytes]) -> None:
        publish = self._stream.publish_async
        if len(bodies) == 1:
            await (await publish(SUBJECT, bodies[0]))
            return
        await asyncio.gather(*[await publish(SUBJECT, body) for body in bodies])


class Puller:
    """One pull subscription of the durable consumer, with a fetch of its own outstanding."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stream = connection.jetstream()
        self._pull: Any = None
        self._got: list[Any] = []

    async def open(self) -> None:
        self._pull = await self._stream.pull_subscribe_bind(durable=DURABLE, stream=STREAM)

    async def receive(self, count: int, timeout_s: float) -> list[bytes]:
        try:
            self._got = await self._pull.fetch(count, timeout=timeout_s)
        except (TimeoutError, nats.errors.TimeoutError):
            self._got = []
        return [message.data for message in self._got]

    async def ack(self) -> None:
        for message in self._got:
            await message.ack()

    async def settle(self) -> None:
        """Acks are not answered: flush them, then ask until the server has counted them all."""
        await self._connection.flush()
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while True:
            left = await self._stream.consumer_info(STREAM, DURABLE)
            if not left.num_pending and not left.num_ack_pending:
                return
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.01)
        raise FailedServer(
            f"JetStream still has {left.num_pending} messages and {left.num_ack_pending} without an ack"
        )
