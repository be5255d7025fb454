"""Pushed deliveries, on credit: never more of a mailbox unsettled with a client than it allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from relaymesh.errors import MeshError
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.query import MailboxesOf
from relaymesh.server.ws.operations import Operations

BATCH_MAX = 1_000
LOOK_S = 1.0
"""How often a feed without credit looks whether leases that the client let run out gave some back."""

Push = Callable[[str, Deliveries], None]
Refuse = Callable[[MeshError], None]
Room = Callable[[], Awaitable[None]]
"""Returns when the client has read enough."""


class Feed:
    """One mailbox pushed to one client."""

    def __init__(self, on: Operations, mailbox: str, push: Push, refuse: Refuse, room: Room) -> None:
        self._on = on
        self._mailbox = mailbox
        self._push = push
        self._refuse = refuse
        self._room = room
        self._credit = 0
        self._out: set[int] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def allow(self, credit: int) -> None:
        """Set how many deliveries may be unsettled; 0 stops the feed; deliveries that are out stay out."""
        if self._task is not None:
            self._task.cancel()
        self._credit = credit
        if credit > 0:
            self._task = asyncio.create_task(self._run(), name="relaymesh-feed")

    def settled(self, tokens: list[int]) -> None:
        before = len(self._out)
        self._out.difference_update(tokens)
        if len(self._out) < before:
            self._changed.set()

    async def stop(self) -> None:
        """Deliveries on their way go back; no attempt is counted."""
        self._credit = 0
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                room = self._credit - len(self._out)
                if room <= 0:
                    await self._some_credit()
                    continue
                await self._room()
                given = await self._on.receive(self._mailbox, min(room, BATCH_MAX), None)
                if not given:
                    return  # the mailbox is gone
                if not given.settled:
                    self._out.update(given.tokens)
                self._push(self._mailbox, given)
        except MeshError as error:
            self._refuse(error)

    async def _some_credit(self) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), LOOK_S)
        except TimeoutError:
            alive = await self._on.served.session.execute(MailboxesOf(list(self._out)))
            self._out.intersection_update(alive)
