"""The victim: a client that does nothing wrong, at a modest rate, and notes how long everything takes.

A message a time from `victim` to `peer` over the SDK's WebSocket, from the send to its ack; beside it a send
on a fresh HTTP connection. Each begins when it is due, whether or not the ones before it are done, so that a
node that stands still is seen by all that fell into that time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from relaymesh import AsyncMesh
from relaymesh.errors import MeshError
from tests.attacks.children import say

ANSWER_S = 30.0
"""How long the victim waits for what it has begun."""
LATE_S = 1.0
"""How much of its own delay the victim makes up for; more would be a burst."""
RECEIVE_MAX = 100
RECEIVE_S = 0.5
ERROR_PAUSE_S = 0.1


@dataclass
class Notes:
    """`trips` and `requests`: (when it was due, seconds it took). `begun` without an end: lost."""

    trips: list[tuple[float, float]] = field(default_factory=list)
    requests: list[tuple[float, float]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    begun: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "trips": self.trips,
            "requests": self.requests,
            "errors": dict(self.errors),
        }


class Victim:
    """Both agents. A line on stdin asks for a report; the end of stdin ends them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._url: str = given["url"]
        self._notes = Notes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._going = asyncio.Event()
        self._going.set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    async def run(self) -> None:
        tokens = self._given["tokens"]
        async with (
            AsyncMesh(self._url, token=tokens["victim"]) as here,
            AsyncMesh(self._url, token=tokens["peer"]) as there,
        ):
            self._victim, self._peer = await here.agent("victim"), await there.agent("peer")
            say({"ready": True})
            receiving = asyncio.create_task(self._receive())
            lanes = [
                asyncio.create_task(self._at_rate(self._given["rate"], self._trip)),
                asyncio.create_task(self._at_rate(self._given["http_rate"], self._request)),
            ]
            while await asyncio.to_thread(sys.stdin.readline):
                self._going.clear()
                await self._finish()
                say(self._notes.as_json())
                self._notes = Notes()
                self._going.set()
            for task in (receiving, *lanes):
                task.cancel()

    async def _at_rate(self, rate: float, begin: Callable[[float], Coroutine[Any, Any, None]]) -> None:
        """Begin one whenever it is due; none is due while a report is made."""
        due = time.monotonic()
        while True:
            if not self._going.is_set():
                await self._going.wait()
                due = time.monotonic()
            due = max(due, time.monotonic() - LATE_S) + 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(begin(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _trip(self, due: float) -> None:
        number = f"{due:.6f}"
        self._notes.begun[number] = due
        self._all_ended.clear()
        try:
            await self._victim.send("peer", {"number": number})
        except (MeshError, OSError) as error:
            self._notes.errors[f"send: {type(error).__name__}"] += 1
            self._end(number)

    async def _receive(self) -> None:
        while True:
            try:
                deliveries = await self._peer.receive_many(RECEIVE_MAX, RECEIVE_S)
            except (MeshError, OSError) as error:
                self._notes.errors[f"receive: {type(error).__name__}"] += 1
                await asyncio.sleep(ERROR_PAUSE_S)
                continue
            await asyncio.gather(*[self._ack(delivery) for delivery in deliveries])

    async def _ack(self, delivery: Any) -> None:
        try:
            await delivery.ack()
        except (MeshError, OSError) as error:
            self._notes.errors[f"ack: {type(error).__name__}"] += 1
            return
        due = self._end(delivery.content["number"])
        if due is not None:
            self._notes.trips.append((due, time.monotonic() - due))

    def _end(self, number: str) -> float | None:
        """When the trip was due; None for what is no trip, or is known to have ended."""
        due = self._notes.begun.pop(number, None)
        if not self._notes.begun:
            self._all_ended.set()
        return due

    async def _request(self, due: float) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await self._post({"to": "peer", "content": {"number": "http"}})
        except (OSError, EOFError) as error:  # TimeoutError is an OSError
            self._notes.errors[f"http: {type(error).__name__}"] += 1
            return
        if status >= 300:
            self._notes.errors[f"http: {status}"] += 1
        else:
            self._notes.requests.append((due, time.monotonic() - due))

    async def _post(self, message: dict[str, Any]) -> int:
        """One request on a connection of its own; its status."""
        body = json.dumps(message).encode()
        authority = self._url.removeprefix("http://")
        host, _, port = authority.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(
                f"POST /v1/messages HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n"
                f"Authorization: Bearer {self._given['tokens']['victim']}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            line = await reader.readuntil(b"\r\n")
            await reader.read()
            return int(line.split()[1])
        finally:
            writer.close()

    async def _finish(self) -> None:
        """Wait for what was begun. A send that was answered and never delivered is lost."""
        tasks = set(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=ANSWER_S)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._all_ended.wait()
        except TimeoutError:
            self._notes.errors["no end in time"] += len(self._notes.begun)


if __name__ == "__main__":
    asyncio.run(Victim(json.loads(sys.stdin.readline())).run())
