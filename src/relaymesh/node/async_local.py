"""The local session for an event loop: it decides on the loop and commits in one thread.

The loop never waits for the disk. Grants and acks need no sync: the loop writes them itself while the disk
is idle. The commit thread writes and syncs the rest. Commands that arrive while a sync runs share the next
frame and the next sync. One call into the loop then hands over every result of that sync.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from relaymesh.errors import MailboxFull, MeshError, Refused
from relaymesh.journal.bell import Bell
from relaymesh.kernel.commands import Command, Release, Request, Result
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.query import Query
from relaymesh.kernel.step import Receipt, Step
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.core import Core, Receiver, Ticket
from relaymesh.node.local import ROOM_POLL_S, InProcess
from relaymesh.node.node import Node
from relaymesh.node.originals import SENDING, Sending
from relaymesh.node.release import Marks, all_needs, result_needs
from relaymesh.wire.housekeeping import Stats


class CommitThread:
    """Writes and syncs when asked. Requests that arrive during one round are done in the next round."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wanted = Bell()
        self._sync_to = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relaymesh-commit", daemon=True)
        self._thread.start()

    def want(self, synced: int) -> None:
        """Move the marks: write what waits, and sync at least through `synced`."""
        self._sync_to = max(self._sync_to, synced)
        self._wanted.ring()

    def _run(self) -> None:
        core = self._core
        try:
            while True:
                self._wanted.wait()
                if self._closing:
                    return
                core.write()
                if self._sync_to > core.synced:
                    core.sync_written()
                elif core.written > core.synced:
                    core.ask_idle_sync()
        except MeshError:
            return  # the core has already failed every waiting call

    def close(self) -> None:
        self._closing = True
        self._wanted.ring()
        self._thread.join(timeout=30)


class _Pending:
    """A command whose answer waits for the marks."""

    __slots__ = ("future", "needs")

    def __init__(self, needs: Marks, future: asyncio.Future[None]) -> None:
        self.needs = needs
        self.future = future

    def release(self, error: MeshError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(type(error)(error.message))


class AsyncReceiver(Receiver, eq=False, kw_only=True):
    """A receive on the loop. Deliveries that come after it was cancelled go back unburned."""

    future: Any = None
    session: Any = None

    def release(self, error: MeshError | None) -> None:
        self.error = error
        if self.future.done():
            if error is None and self.deliveries:
                self.session.give_back(self.deliveries.tokens)
        elif error is None:
            self.future.set_result(self.deliveries)
        else:
            self.future.set_exception(type(error)(error.message))


class AsyncLocalSession(InProcess):
    """Requests to a node in this process, awaited. Belongs to the loop it was opened on."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._core.on_release = self._release_on_loop
        self._commits = CommitThread(node.core)

    def _release_on_loop(self, released: list[tuple[Ticket, MeshError | None]]) -> None:
        if threading.get_ident() == self._thread:
            _release_all(released)
            return
        try:
            self._loop.call_soon_threadsafe(_release_all, released)
        except RuntimeError:
            return  # the loop is closed: no call waits any more

    async def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        """Do what a command, a query or a request to the node asks for; see `LocalSession.execute`."""
        result: Result
        if isinstance(request, SENDING):
            result = await self._send(request, timeout)  # type: ignore[assignment]  # what these result in
        elif isinstance(request, Command):
            step = self._core.submit(request)
            await self._commit(step, durable)
            if step.error is not None:
                raise step.error
            result = step.result
        elif isinstance(request, Query):
            result = await self._look(request)
        else:
            result = await self._ask_node(request)
        return result

    async def _ask_node(self, request: Request[Result]) -> Result:
        """Read counters on the loop; take a checkpoint, which is slow, in another thread."""
        if isinstance(request, Stats):
            return self.node.answer(request)  # type: ignore[return-value]
        return await asyncio.to_thread(self.node.answer, request)

    async def _look(self, query: Query[Result]) -> Result:
        if not query.durable:
            return self._core.read(lambda kernel: kernel.look(query))
        answer, needs = self._core.observe(lambda kernel: kernel.look(query))
        if not self._core.passed(needs):
            await self._passed(needs, needs[1])
        return answer

    async def _commit(self, step: Step, durable: bool = False) -> None:
        """Wait until the result may leave. Deliveries to other waiters leave by themselves."""
        core = self._core
        waits = core.waits_for_sync
        everything = all_needs(step, waits_for_sync=waits, durable=durable)
        if core.passed(everything) or self._written_at_once(everything[1]):
            return
        needs = result_needs(step, waits_for_sync=waits, durable=durable)
        if core.passed(needs):
            self._commits.want(everything[1])
        else:
            await self._passed(needs, everything[1])

    def _written_at_once(self, synced: int) -> bool:
        """For steps that need no sync: write on the loop if the commit thread is idle."""
        core = self._core
        if synced > core.synced or not core.write_light():
            return False
        if core.written > core.synced:
            core.ask_idle_sync()
        return True

    async def _passed(self, needs: Marks, sync_to: int) -> None:
        """Wait for the marks; have the commit thread sync through `sync_to`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._core.wait_for(_Pending(needs, future))
        self._commits.want(sync_to)
        await future

    # -- sending

    async def _send(self, command: Sending, timeout: float | None) -> list[Receipt]:
        try:
            return await (self._wait_for_room(command, timeout) if timeout else self._admit(command))
        except Refused as error:
            self.node.refusals.note(error)
            raise

    async def _wait_for_room(self, command: Sending, timeout: float) -> list[Receipt]:
        deadline = self._loop.time() + timeout
        room: asyncio.Event | None = None
        while True:
            try:
                receipts = await self._admit(command)
            except MailboxFull:
                left = deadline - self._loop.time()
                if left <= 0:
                    raise
                if room is not None:
                    try:
                        await asyncio.wait_for(room.wait(), min(left, ROOM_POLL_S))
                    except TimeoutError:
                        pass
                room = asyncio.Event()  # ask before the next try, so that no free slot is missed
                self._core.when_room(partial(self._set_on_loop, room))
            else:
                return receipts

    async def _admit(self, command: Sending) -> list[Receipt]:
        """Execute. If bytes differ from an earlier send of the same id, execute again with those that mean
        the same.
        """
        self.node.prepare(command)
        step = self._core.submit(command)
        if step.differing is not None:
            await self._commit(step)
            equal = await asyncio.to_thread(self.node.originals.equal, command, step.differing)
            if equal:
                command.equal = equal
                step = self._core.submit(command)
        await self._commit(step)
        if step.error is not None:
            raise step.error
        receipts: list[Receipt] = step.result
        return receipts

    def _set_on_loop(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return  # the loop is closed: no call waits any more

    # -- receiving

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
        """Return up to `max` deliveries; none if none came in time. A cancelled receive gives them back.

        `holder`: the name that holds the leases, if not this process; `remote`: the leases survive a restart.
        """
        future: asyncio.Future[Deliveries] = self._loop.create_future()
        waiter = Waiter(holder or self.holder, max, correlation_id, remote)
        receiver = AsyncReceiver(waiter, future=future, session=self)
        waits = timeout is None or timeout > 0
        step = self._core.receive(mailbox, receiver, wait=waits)
        timer = None
        try:
            await self._commit(step)
            if step.error is not None:
                raise step.error
            if not step.result:
                if not waits:
                    return nothing_from(mailbox)
                if timeout is not None:
                    timer = self._loop.call_later(timeout, self._give_up, mailbox, receiver)
            return await future
        except asyncio.CancelledError:
            self._abandon(mailbox, receiver)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def pull(self, mailbox: str, max: int) -> Deliveries:
        """A receive without a time limit."""
        return await self.receive(mailbox, max, None)

    def _give_up(self, mailbox: str, receiver: AsyncReceiver) -> None:
        """The time limit passed: return nothing, unless deliveries are already on their way."""
        try:
            waited = self._core.forgo(mailbox, receiver).result
        except MeshError:
            return
        if waited and not receiver.future.done():
            receiver.future.set_result(nothing_from(mailbox))

    def _abandon(self, mailbox: str, receiver: AsyncReceiver) -> None:
        delivered = receiver.future.done() and not receiver.future.cancelled() and receiver.deliveries
        receiver.future.cancel()
        try:
            self._core.forgo(mailbox, receiver)
        except MeshError:
            return
        if delivered:
            self.give_back(delivered.tokens)

    def give_back(self, tokens: Sequence[int]) -> None:
        """Give back deliveries that no receive took: no attempt is counted. Does not wait."""
        try:
            step = self._core.submit(Release(tokens))
        except MeshError:
            return
        self._commits.want(all_needs(step, waits_for_sync=self._core.waits_for_sync)[1])

    async def close(self, *, force: bool = False) -> None:
        try:
            await asyncio.to_thread(self.node.close, force=force)
        finally:
            self._commits.close()


def _release_all(released: list[tuple[Ticket, MeshError | None]]) -> None:
    for ticket, error in released:
        ticket.release(error)
