"""Awaited calls on a node without threads. A call that must wait lets virtual time pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from relaymesh.errors import MailboxFull
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.query import TaskRevision
from relaymesh.kernel.request import Request, Result
from relaymesh.kernel.step import Receipt, Step
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.async_local import AsyncLocalSession, AsyncReceiver, CommitThread, Done, Given
from relaymesh.node.clock import Latch
from relaymesh.node.core import Core
from relaymesh.node.filling import fill, fill_deliveries, has_files
from relaymesh.node.local import ROOM_POLL_S, InProcess
from relaymesh.node.node import Node
from relaymesh.node.originals import Sending
from relaymesh.node.release import Marks, all_needs
from relaymesh.node.watchers import is_news
from relaymesh.wire.tasks import WatchTask

Wait = Callable[[float | None, Callable[[], bool]], Awaitable[None]]
"""Let time pass until so many seconds are over (None: very many), or until something holds."""


class VirtualSession(AsyncLocalSession):
    """`AsyncLocalSession` for one task after the other: commits at once, waits by `wait`."""

    def __init__(self, node: Node, wait: Wait) -> None:
        InProcess.__init__(self, node)  # no loop yet, and no commit thread
        self._wait = wait
        self._commits = _Commits(node.core)

    def _commit(self, step: Step, durable: bool = False) -> None:
        core = self._core
        core.reach(all_needs(step, waits_for_sync=core.waits_for_sync, durable=durable))

    def _passed(self, needs: Marks, sync_to: int) -> asyncio.Future[None]:
        self._core.reach((needs[0], max(needs[1], sync_to)))
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        passed.set_result(None)
        return passed

    async def _filed(self, command: Any) -> list[str]:
        return self._payloads.file(command)

    async def whole(self, answer: Result) -> Result:
        if self._payloads.used and has_files(answer):
            whole: Result = fill(answer, self._payloads)
            return whole
        return answer

    def _filled_now(self, given: Deliveries) -> Deliveries:
        if self._payloads.used and has_files(given):
            return self._left(given, fill_deliveries(given, self._payloads))
        return given

    async def _ask_node(self, request: Request[Result]) -> Result:
        return self.node.answer(request)

    async def _off_loop(self, work: Callable[[Given], Done], given: Given) -> Done:
        return work(given)

    async def _watch(self, request: WatchTask) -> TaskShown | None:
        def is_told() -> bool:
            revision = self._core.read(lambda kernel: kernel.look(TaskRevision(request.task)))
            return is_news(revision, request.seen)

        if request.wait_s and not is_told():
            await self._wait(request.wait_s, is_told)
        return await self.whole(self.node.tasks.show(request.task))

    async def _wait_for_room(self, command: Sending, timeout: float) -> list[Receipt]:
        deadline = self.now() + timeout * 1000
        latch: Latch | None = None
        while True:
            try:
                receipts = await self._admit(command)
            except MailboxFull:
                left = (deadline - self.now()) / 1000
                if left <= 0:
                    raise
                if latch is not None:
                    await self._wait(min(left, ROOM_POLL_S), partial(getattr, latch, "opened"))
                latch = Latch()  # asked for before the next try, so that no room is missed
                self._core.when_room(latch.open)
            else:
                return receipts

    async def receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        holder: str | None = None,
        remote: bool = False,
    ) -> Deliveries:
        future: asyncio.Future[Deliveries] = asyncio.get_running_loop().create_future()
        waiter = Waiter(holder or self.holder, max, correlation_id, remote)
        receiver = AsyncReceiver(waiter, future=future, session=self)
        waits = timeout is None or timeout > 0
        try:
            served = self._core.commit(self._core.receive(mailbox, receiver, wait=waits))
            if not served and not waits:
                return nothing_from(mailbox)
            await self._wait(timeout, future.done)
            if not future.done():
                self._give_up(mailbox, receiver)
            return self._filled_now(await future)
        except BaseException:
            self._abandon(mailbox, receiver)
            raise

    def take(self, mailbox: str, max: int) -> Deliveries:
        """What is ready now."""
        future: asyncio.Future[Deliveries] = asyncio.get_running_loop().create_future()
        receiver = AsyncReceiver(Waiter(self.holder, max), future=future, session=self)
        served = self._core.commit(self._core.receive(mailbox, receiver, wait=False))
        return self._filled_now(future.result()) if served else nothing_from(mailbox)

    async def close(self, *, force: bool = False) -> None:
        self.node.close(force=force)


class _Commits(CommitThread):
    """Commits in the caller's thread: there is no other."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def want(self, synced: int) -> None:
        self._core.reach((self._core.through, synced))

    def close(self) -> None:
        """There is no thread to end."""
