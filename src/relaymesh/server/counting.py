"""Counters of many mailboxes: counted in several turns of the loop, and at most once a second for all
clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from relaymesh.kernel.kernel import Kernel
from relaymesh.node.node import Node
from relaymesh.node.stats import stats_of
from relaymesh.wire.housekeeping import Stats
from relaymesh.wire.stats import MailboxStats, MeshStats

if TYPE_CHECKING:
    from relaymesh.server.served import Served

FEW = 100
"""Up to this many mailboxes are counted at once, for each request."""
TURN = 25
"""Mailboxes in each turn of a longer count, less than a millisecond: a message of others takes many turns."""
FRESH_S = 1.0
SHARE = 3
"""Counters are reused for a second, or for three times the time that counting took if that is longer."""

T = TypeVar("T")


class Counting:
    """What was counted lately, by what it is. For the event loop's thread alone."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._made: dict[str, asyncio.Task[Any]] = {}

    async def stats(self) -> MeshStats:
        """Counters of every mailbox, and of the node."""
        if self.are_few:
            return await self._served.session.execute(Stats())
        return await self._lately("stats", self._count)

    @property
    def are_few(self) -> bool:
        """Whether counting all mailboxes takes no more than one turn."""
        count: int = self._served.node.core.read(lambda kernel: len(kernel.state.mailboxes))
        return count <= FEW

    async def shown(self, key: str, show: Callable[[MeshStats], Awaitable[T]]) -> T:
        """What `show` makes of the counters; made anew each time while there are few."""
        if self.are_few:
            return await show(await self.stats())

        async def make() -> T:
            return await show(await self.stats())

        return await self._lately(key, make)

    async def _count(self) -> MeshStats:
        served, core = self._served, self._served.node.core
        addresses: list[str] = core.read(lambda kernel: list(kernel.state.mailboxes))
        mailboxes: dict[str, MailboxStats] = {}
        for some in in_turns(addresses):
            mailboxes |= core.read(partial(_counted, served.node, some))
            await asyncio.sleep(0)
        rest: MeshStats = core.read(lambda kernel: stats_of(served.node, kernel, ()))
        return msgspec.structs.replace(rest, mailboxes=mailboxes)

    async def _lately(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """What was made under this key lately, or is being made now for another request."""
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = asyncio.create_task(self._timed(key, make))
        made: T = await asyncio.shield(making)
        return made

    async def _timed(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        fresh = 0.0
        try:
            made = await make()
            fresh = max(FRESH_S, SHARE * (loop.time() - began))
            return made
        finally:
            loop.call_later(fresh, self._made.pop, key, None)


def _counted(node: Node, addresses: Sequence[str], kernel: Kernel) -> dict[str, MailboxStats]:
    return stats_of(node, kernel, addresses).mailboxes


def stats_of_one(served: Served, mailbox: str) -> MailboxStats | None:
    """Counters of one mailbox; None if there is none."""

    def look(kernel: Kernel) -> MailboxStats | None:
        return stats_of(served.node, kernel, (mailbox,)).mailboxes.get(mailbox)

    found: MailboxStats | None = served.node.core.read(look)
    return found


def in_turns(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts of a long list, each small enough for one turn."""
    for start in range(0, len(rows), TURN):
        yield rows[start : start + TURN]
