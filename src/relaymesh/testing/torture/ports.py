"""`Mesh` and `AsyncMesh` under one face, so that the work is written once and both are tortured by it.

Everything is awaited. Over a `Mesh` nothing ever waits for the loop, because there is none: `drive` runs such
a coroutine to its end in the calling thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol

from relaymesh.sdk.async_mesh import AsyncMesh
from relaymesh.sdk.mesh import Mesh

Messages = list[dict[str, Any]]


class Port(Protocol):
    """What the work needs of a mesh. Mailboxes by name: an agent, or `topic:subscription`."""

    async def open_agent(self, name: str, **options: Any) -> None: ...
    async def subscribe(self, topic: str, name: str, **options: Any) -> None: ...
    async def send(self, messages: Messages, timeout: float) -> list[Any]: ...
    async def publish(self, topic: str, messages: Messages, timeout: float) -> list[Any]: ...
    async def receive(self, mailbox: str, max: int, timeout: float) -> list[Any]: ...
    async def ack(self, deliveries: list[Any], durable: bool) -> None: ...
    async def nack(self, delivery: Any, error: str, retryable: bool) -> str: ...
    async def answer(self, delivery: Any, content: Any, id: str) -> Any: ...
    async def checkpoint(self) -> None: ...
    async def pause(self, seconds: float) -> None: ...
    def handle(self, mailbox: str, handler: Any) -> None: ...


def drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits for a loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("this work waits for an event loop, and there is none")


class PlainPort:
    """Over a `Mesh`: every call blocks its thread."""

    def __init__(self, path: str, **place: Any) -> None:
        self.mesh = Mesh(path, **place)
        self.stopping = threading.Event()
        self._sender = self.mesh.agent(SENDER)
        self._inboxes: dict[str, Any] = {}

    async def open_agent(self, name: str, **options: Any) -> None:
        self._inboxes[name] = self.mesh.agent(name, **options)

    async def subscribe(self, topic: str, name: str, **options: Any) -> None:
        self._inboxes[f"{topic}:{name}"] = self.mesh.subscribe(topic, name, **options)

    async def send(self, messages: Messages, timeout: float) -> list[Any]:
        return self._sender.send_many(messages, timeout=timeout)

    async def publish(self, topic: str, messages: Messages, timeout: float) -> list[Any]:
        return self.mesh.publish_many(topic, messages, sender=SENDER, timeout=timeout)

    async def receive(self, mailbox: str, max: int, timeout: float) -> list[Any]:
        found: list[Any] = self._inboxes[mailbox].receive_many(max, timeout)
        return found

    async def ack(self, deliveries: list[Any], durable: bool) -> None:
        self.mesh.ack_many(deliveries, durable=durable)

    async def nack(self, delivery: Any, error: str, retryable: bool) -> str:
        return str(delivery.nack(error, retryable=retryable))

    async def answer(self, delivery: Any, content: Any, id: str) -> Any:
        return self._sender.answer(delivery, content, id=id, ttl=0)

    async def checkpoint(self) -> None:
        self.mesh.checkpoint()

    async def pause(self, seconds: float) -> None:
        self.stopping.wait(seconds)

    def handle(self, mailbox: str, handler: Any) -> None:
        self._inboxes[mailbox].handle(handler)


class LoopPort:
    """Over an `AsyncMesh`."""

    def __init__(self, path: str, **place: Any) -> None:
        self.mesh = AsyncMesh(path, **place)
        self._sender: Any = None
        self._inboxes: dict[str, Any] = {}

    async def open(self) -> None:
        await self.mesh.open()
        self._sender = await self.mesh.agent(SENDER)

    async def open_agent(self, name: str, **options: Any) -> None:
        self._inboxes[name] = await self.mesh.agent(name, **options)

    async def subscribe(self, topic: str, name: str, **options: Any) -> None:
        self._inboxes[f"{topic}:{name}"] = await self.mesh.subscribe(topic, name, **options)

    async def send(self, messages: Messages, timeout: float) -> list[Any]:
        sent: list[Any] = await self._sender.send_many(messages, timeout=timeout)
        return sent

    async def publish(self, topic: str, messages: Messages, timeout: float) -> list[Any]:
        return await self.mesh.publish_many(topic, messages, sender=SENDER, timeout=timeout)

    async def receive(self, mailbox: str, max: int, timeout: float) -> list[Any]:
        found: list[Any] = await self._inboxes[mailbox].receive_many(max, timeout)
        return found

    async def ack(self, deliveries: list[Any], durable: bool) -> None:
        await self.mesh.ack_many(deliveries, durable=durable)

    async def nack(self, delivery: Any, error: str, retryable: bool) -> str:
        return str(await delivery.nack(error, retryable=retryable))

    async def answer(self, delivery: Any, content: Any, id: str) -> Any:
        return await self._sender.answer(delivery, content, id=id, ttl=0)

    async def checkpoint(self) -> None:
        await self.mesh.checkpoint()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def handle(self, mailbox: str, handler: Any) -> None:
        async def handle_awaited(delivery: Any) -> None:
            handler(delivery)

        self._inboxes[mailbox].handle(handle_awaited)


SENDER = "torture-sender"
