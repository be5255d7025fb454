"""RabbitMQ: a quorum queue, persistent messages, confirms by the batch, prefetch, acks of many at once."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]
from pika.adapters.asyncio_connection import AsyncioConnection  # type: ignore[import-untyped]

from bench.meshes import run_on_loop
from bench.peers.flow import Flow
from bench.peers.server import FailedServer, Server, find, free_port
from bench.peers.tasks import receive_all, send_all, until_go

NAME = "RabbitMQ"
QUEUE = "work"
SENDERS = {1: 200, 100: 8, 1000: 4}
RECEIVERS = {1: 4, 100: 2, 1000: 2}
PREFETCH_BATCHES = 2
PREFETCH_MIN = 100
PREFETCH_MAX = 2000
PERSISTENT = pika.BasicProperties(delivery_mode=2)

CLIENT = "pika on uvloop"
SYNCED = True
BATCHING = (
    "basic_publish of a batch, then its confirms; prefetch of two batches; one ack with multiple=True a batch"
)
PROMISE = (
    "quorum queue with one member: the confirm comes after the message is written to the Raft log and "
    "fdatasynced, once for all that waits. Acks are entries of the same log and are not answered."
)


def program() -> str:
    """The script below lib: the one on the path changes to the user rabbitmq and its directories."""
    return find("rabbitmq-server", "rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")


def version() -> str:
    found = sorted(path.name for path in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    return found[-1].partition("-")[2] if found else "unknown"


class RabbitServer(Server):
    """RabbitMQ and the name server of Erlang nodes, epmd, which is ours as well and ends with it."""

    def __init__(self, place: Path) -> None:
        home = place.resolve()
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16), encoding="ascii")
        cookie.chmod(0o400)
        (home / "rabbitmq.conf").write_text("log.console = false\nvm_memory_high_watermark.relative = 0.4\n")
        (home / "enabled_plugins").write_text("[].\n")
        port, names = free_port(), free_port()
        environment = {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the server, instead of its parent
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(home / "no-such-file"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        names_place = home / "epmd"
        names_place.mkdir()
        epmd = find("epmd", "erlang-base")
        self._names = Server("epmd", [epmd], names_place, names, environment)
        try:
            self._names.until_it_listens(10)
            super().__init__(NAME, [program()], home, port, environment)
        except BaseException:
            self._names.stop()
            raise

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._names.stop()


def start(place: Path) -> Server:
    server = RabbitServer(place)
    try:
        server.until_it_listens()
    except BaseException:
        server.stop()
        raise
    return server


def set_up(port: int) -> None:
    connection = pika.BlockingConnection(_parameters(port))
    channel = connection.channel()
    channel.queue_delete(QUEUE)
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    connection.close()


def _parameters(port: int) -> Any:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, blocked_connection_timeout=30)


def drive(port: int, roles: list[str], flow: Flow) -> None:
    run_on_loop(_drive(port, roles, flow))


async def _drive(port: int, roles: list[str], flow: Flow) -> None:
    connections = [await _connect(port) for _ in roles]
    work = []
    for role, connection in zip(roles, connections, strict=True):
        if role == "produce":
            sender = Sender(await _channel(connection))
            await sender.open()
            work += [send_all(flow, index, sender.send) for index in range(flow.shape.senders)]
        else:
            for index in range(flow.shape.receivers):
                receiver = Consumer(await _channel(connection))
                await receiver.open(flow.shape.batch)
                work.append(receive_all(flow, index, receiver))
    await until_go(flow)
    await asyncio.gather(*work)
    for connection in connections:
        connection.close()
    await asyncio.sleep(0.05)


async def _connect(port: int) -> Any:
    opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    AsyncioConnection(
        _parameters(port),
        on_open_callback=opened.set_result,
        on_open_error_callback=lambda _, error: opened.set_exception(FailedServer(str(error))),
        custom_ioloop=asyncio.get_running_loop(),
    )
    return await opened


async def _channel(connection: Any) -> Any:
    opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    connection.channel(on_open_callback=opened.set_result)
    return await opened


class Sender:
    """Publishes a batch without waiting in between, then waits until each of it is confirmed."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._last_tag = 0
        self._waiting: dict[int, Batch] = {}

    async def open(self) -> None:
        confirming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._channel.confirm_delivery(self._on_confirm, callback=confirming.set_result)
        await confirming

    async def send(self, bodies: list[bytes]) -> None:
        batch = Batch(len(bodies))
        for body in bodies:
            self._channel.basic_publish("", QUEUE, body, PERSISTENT)
            self._last_tag += 1
            self._waiting[self._last_tag] = batch
        await batch.confirmed

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            raise FailedServer("RabbitMQ refused a message")
        if not method.multiple:
            self._waiting.pop(method.delivery_tag).confirm()
            return
        for tag in list(self._waiting):
            if tag > method.delivery_tag:
                return
            self._waiting.pop(tag).confirm()


class Batch:
    """Messages that wait for their confirms together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirm(self) -> None:
        self._left -= 1
        if not self._left:
            self.confirmed.set_result(None)


class Consumer:
    """A channel with its own prefetch; what has arrived is handed out by the batch."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._some = asyncio.Event()
        self._last_tag = 0

    async def open(self, batch: int) -> None:
        prefetch = min(PREFETCH_MAX, max(PREFETCH_MIN, PREFETCH_BATCHES * batch))
        limited: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._channel.basic_qos(prefetch_count=prefetch, callback=limited.set_result)
        await limited
        consuming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._channel.basic_consume(QUEUE, self._on_message, callback=consuming.set_result)
        await consuming

    def _on_message(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._arrived.append((method.delivery_tag, body))
        self._some.set()

    async def receive(self, count: int, timeout_s: float) -> list[bytes]:
        if not self._arrived:
            self._some.clear()
            try:
                await asyncio.wait_for(self._some.wait(), timeout_s)
            except TimeoutError:
                return []
        taken = [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]
        self._last_tag = taken[-1][0]
        return [body for _, body in taken]

    async def ack(self) -> None:
        self._channel.basic_ack(self._last_tag, multiple=True)

    async def settle(self) -> None:
        """Acks are not answered: a question on the same channel is answered after them."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._channel.queue_declare(QUEUE, passive=True, callback=answered.set_result)
        left = (await answered).method.message_count
        if left:
            raise FailedServer(f"RabbitMQ still has {left} messages")
