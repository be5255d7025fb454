"""The loops of senders and receivers for clients that run on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from bench.peers.flow import Flow

RECEIVE_S = 0.1
RECEIVE_MAX_PACED = 1000


class Receiver(Protocol):
    """One that receives from a queue, with a lease on what it received."""

    async def receive(self, count: int, timeout_s: float) -> list[bytes]:
        """Up to `count` messages, empty after `timeout_s`."""

    async def ack(self) -> None:
        """Ack all that the last `receive` gave."""

    async def settle(self) -> None:
        """Return when the server has taken the acks; raise if messages are left."""


async def send_all(flow: Flow, index: int, send: Callable[[list[bytes]], Awaitable[None]]) -> None:
    for step in flow.sends(index):
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            await send(step)


async def receive_all(flow: Flow, index: int, receiver: Receiver) -> None:
    count = flow.shape.batch if flow.shape.rate is None else RECEIVE_MAX_PACED
    while not flow.finished:
        bodies = await receiver.receive(count, RECEIVE_S)
        if bodies:
            flow.look_at(index, bodies)
            await receiver.ack()
            flow.count_acked(index, len(bodies))
    await receiver.settle()


async def until_go(flow: Flow) -> None:
    """In a thread, so that connections are served while they wait."""
    await asyncio.to_thread(flow.until_go)
