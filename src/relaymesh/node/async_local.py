"""The local session for an event loop: decides on the loop, commits in one thread, wakes once a commit.

The loop never waits for the disk. What needs no sync, grants and acks, it writes by itself while the disk
is idle; the rest is the thread's. Commands that arrive while a sync runs share the next frame and
the next sync; all that became due with it is handed over by a single call into the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from relaymesh.errors import LeaseLost, MailboxFull, MeshError, Refused
from relaymesh.journal.bell import Bell
from relaymesh.kernel.commands import (
    Ack,
    Command,
    Complete,
    Expect,
    Extend,
    ForceDelayed,
    Forgo,
    Nack,
    OpenMailbox,
    PurgeDeadLetters,
    Receive,
    Redrive,
    Release,
    Reprioritise,
    SetBreaker,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt, Step
from relaymesh.node.core import Core, Receiver, Ticket, marks_of
from relaymesh.node.local import ROOM_POLL_S, Groups, InProcess, first_entries, mailboxes_of
from relaymesh.node.node import Node
from relaymesh.node.originals import Sending
from relaymesh.node.stats import stats_of
from relaymesh.wire.joining import joining
from relaymesh.wire.stats import MeshStats


class CommitThread:
    """Writes and syncs whenever asked; everything asked for meanwhile is done in the next round."""

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
            return  # the core has told everybody who waited

    def close(self) -> None:
        self._closing = True
        self._wanted.ring()
        self._thread.join(timeout=30)


class _Pending:
    """A command whose answer waits for the marks."""

    __slots__ = ("future", "synced", "written")

    def __init__(self, written: int, synced: int, future: asyncio.Future[None]) -> None:
        self.written = written
        self.synced = synced
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
            if error is None and self.leases:
                self.session.give_back(self.leases)
        elif error is None:
            self.future.set_result(self.leases)
        else:
            self.future.set_exception(type(error)(error.message))


class AsyncLocalSession(InProcess):
    """Calls on a node in this process, awaited. Belongs to the loop it was opened on."""

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
            return  # the loop is closed: nobody waits any more

    async def _execute(self, command: Command, *, durable: bool = False) -> Any:
        step = self._core.submit(command)
        await self._commit(step, durable)
        if step.error is not None:
            raise step.error
        return step.result

    async def _commit(self, step: Step, durable: bool = False) -> None:
        core = self._core
        written, synced = marks_of(step)
        if durable:
            await self._durable(written)
        elif core.passed(written, synced) or self._written_at_once(synced):
            return
        elif core.passed(step.written, step.synced):
            self._commits.want(synced if core.waits_for_sync else 0)  # only deliveries to others wait
        else:
            await self._passed(step.written, step.synced, synced if core.waits_for_sync else 0)

    def _written_at_once(self, synced: int) -> bool:
        """Nothing here waits for the disk: it is written without the other thread, if that is free."""
        core = self._core
        if (core.waits_for_sync and synced > core.synced) or not core.write_light():
            return False
        if core.written > core.synced:
            core.ask_idle_sync()
        return True

    async def _passed(self, written: int, synced: int, sync_to: int) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._core.wait_for(_Pending(written, synced, future))
        self._commits.want(sync_to)
        await future

    async def _durable(self, written: int) -> None:
        """Wait for the sync even where receipts do not."""
        while self._core.synced < written:
            await self._passed(written, written, written)
            if self._core.synced < written:
                await asyncio.to_thread(self._core.sync)

    # -- mailboxes

    async def open_mailbox(
        self, address: str, settings: MailboxSettings | None, *, budget: int = 0, may_reject: bool = True
    ) -> None:
        await self._execute(OpenMailbox(address, settings, budget, may_reject))

    async def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None:
        await self._execute(joining(agent, role=role, capabilities=capabilities, metadata=metadata))

    async def subscribe(
        self,
        pattern: str,
        mailbox: str,
        settings: MailboxSettings,
        *,
        owner: str = "",
        budget: int = 0,
        may_reject: bool = True,
    ) -> None:
        await self._execute(Subscribe(pattern, mailbox, settings, owner, budget, may_reject))

    async def unsubscribe(self, mailbox: str) -> int:
        dropped: int = await self._execute(Unsubscribe(mailbox))
        return dropped

    # -- sending

    async def send(
        self, groups: Groups, minted: bool, timeout: float | None, *, budget: int = 0
    ) -> list[Receipt]:
        """`budget`: bytes that may be kept for the sender, these included; 0 is no limit."""
        return await self._when_room(lambda: self.node.prepare_send(groups, minted, budget), timeout)

    async def publish(
        self,
        topic: str,
        envelopes: Sequence[Envelope],
        minted: bool,
        timeout: float | None,
        *,
        budget: int = 0,
    ) -> list[Receipt]:
        return await self._when_room(
            lambda: self.node.prepare_publish(topic, envelopes, minted, budget), timeout
        )

    async def _when_room(self, prepare: Callable[[], Sending], timeout: float | None) -> list[Receipt]:
        try:
            if not timeout:
                return await self._admit(prepare())
            return await self._wait_for_room(prepare, timeout)
        except Refused as error:
            self.node.refusals.note(error)
            raise

    async def _wait_for_room(self, prepare: Callable[[], Sending], timeout: float) -> list[Receipt]:
        deadline = self._loop.time() + timeout
        room: asyncio.Event | None = None
        while True:
            try:
                receipts = await self._admit(prepare())
            except MailboxFull:
                left = deadline - self._loop.time()
                if left <= 0:
                    raise
                if room is not None:
                    try:
                        await asyncio.wait_for(room.wait(), min(left, ROOM_POLL_S))
                    except TimeoutError:
                        pass
                room = asyncio.Event()  # asked for before the next try, so that no room is missed
                self._core.when_room(partial(self._set_on_loop, room))
            else:
                return receipts

    async def _admit(self, command: Sending) -> list[Receipt]:
        """Execute; where bytes differ from what was sent before, once more with those that mean the same."""
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
            return  # the loop is closed: nobody waits any more

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
    ) -> list[Lease]:
        """Up to `max` deliveries; an empty list when none came in time. Cancelled, it gives them back.

        `holder`: in whose name, if not this process's; `remote`: it keeps its leases over a restart.
        """
        future: asyncio.Future[list[Lease]] = self._loop.create_future()
        receiver = AsyncReceiver(
            holder or self.holder, max, correlation_id, remote=remote, future=future, session=self
        )
        waits = timeout is None or timeout > 0
        step = self._core.submit(Receive(mailbox, receiver, wait=waits))
        timer = None
        try:
            await self._commit(step)
            if step.error is not None:
                raise step.error
            if not step.result:
                if not waits:
                    return []
                if timeout is not None:
                    timer = self._loop.call_later(timeout, self._give_up, mailbox, receiver)
            return await future
        except asyncio.CancelledError:
            self._abandon(mailbox, receiver)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def pull(self, mailbox: str, max: int) -> list[Lease]:
        """A receive without end."""
        return await self.receive(mailbox, max, None)

    def _give_up(self, mailbox: str, receiver: AsyncReceiver) -> None:
        """The time is over: an empty answer, unless deliveries are on their way already."""
        try:
            waited = self._core.submit(Forgo(mailbox, receiver)).result
        except MeshError:
            return
        if waited and not receiver.future.done():
            receiver.future.set_result([])

    def _abandon(self, mailbox: str, receiver: AsyncReceiver) -> None:
        delivered = receiver.future.done() and not receiver.future.cancelled() and receiver.leases
        receiver.future.cancel()
        try:
            self._core.submit(Forgo(mailbox, receiver))
        except MeshError:
            return
        if delivered:
            self.give_back(receiver.leases)

    def give_back(self, leases: list[Lease]) -> None:
        """Deliveries nobody received: unburned, and without waiting."""
        try:
            step = self._core.submit(Release([lease.token for lease in leases]))
        except MeshError:
            return
        self._commits.want(marks_of(step)[1])

    async def release(self, tokens: Sequence[int]) -> None:
        """Deliveries nobody received: back as if never granted. A stale token needs no release."""
        await self._execute(Release(tokens))

    async def mailbox_of(self, tokens: Sequence[int]) -> dict[int, str]:
        """The mailbox of each token that is still good."""
        mailboxes: dict[int, str] = self._core.read(partial(mailboxes_of, tokens))
        return mailboxes

    async def expect(
        self, mailbox: str, correlation_id: str, minted: bool = False, *, budget: int = 0
    ) -> None:
        await self._execute(Expect(mailbox, correlation_id, budget, minted))

    async def unexpect(self, mailbox: str, correlation_id: str) -> None:
        await self._execute(Unexpect(mailbox, correlation_id))

    # -- settling

    async def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]:
        stale: list[int] = await self._execute(Ack(tokens, drop), durable=durable)
        return stale

    async def nack(self, nack: Nack) -> str:
        state: str = await self._execute(nack)
        return state

    async def settle(self, token: int, groups: Groups, *, budget: int = 0) -> list[Receipt]:
        return await self._when_room(lambda: self.node.prepare_settle(token, groups, budget), None)

    async def extend(self, token: int, ms: int) -> int:
        deadline: int = await self._execute(Extend(token, ms))
        return deadline

    async def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        """Deadlines of (token, ms); None for a lease that is lost."""
        return [await self._extended(token, ms) for token, ms in extends]

    async def _extended(self, token: int, ms: int) -> int | None:
        try:
            return await self.extend(token, ms)
        except LeaseLost:
            return None

    async def complete(self, mailbox: str, sequence: int) -> bool:
        waits: bool = await self._execute(Complete(mailbox, sequence))
        return waits

    # -- looking after it

    async def dead_letters(self) -> list[DeadLetter]:
        letters: list[DeadLetter] = await self._observe(lambda kernel: list(kernel.state.letters))
        return letters

    async def letters(self, names: Sequence[tuple[str, int]]) -> list[DeadLetter | None]:
        """The dead letters of these names; None where there is none."""
        letters: list[DeadLetter | None] = await self._observe(
            lambda kernel: [kernel.state.letters.find(*name) for name in names]
        )
        return letters

    async def _observe(self, look: Callable[[Kernel], Any]) -> Any:
        """An answer that a power loss cannot take back: it waits for what it saw."""
        answer, through = self._core.observe(look)
        if not self._core.passed(through, through):
            await self._passed(through, through, through if self._core.waits_for_sync else 0)
        return answer

    async def redrive(
        self,
        letters: Sequence[tuple[str, int]],
        to: str | None,
        edited: Sequence[Envelope | None] | None,
    ) -> list[int | None]:
        sequences: list[int | None] = await self._execute(Redrive(letters, to, edited))
        return sequences

    async def purge(self, letters: Sequence[tuple[str, int]]) -> int:
        purged: int = await self._execute(PurgeDeadLetters(letters))
        return purged

    async def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int:
        changed: int = await self._execute(Reprioritise(mailbox, ids, priority))
        return changed

    async def set_breaker(self, mailbox: str, *, open: bool) -> None:
        await self._execute(SetBreaker(mailbox, open))

    async def deliver_due(self) -> int:
        arrived: int = await self._execute(Tick())
        return arrived

    async def force_delayed(self, mailbox: str | None) -> int:
        forced: int = await self._execute(ForceDelayed(mailbox))
        return forced

    async def stats(self) -> MeshStats:
        """Does not wait for the disk: it must answer when the disk does not."""
        stats: MeshStats = self._core.read(lambda kernel: stats_of(self.node, kernel))
        return stats

    async def peek(self, mailbox: str, limit: int) -> list[Entry]:
        """Pending entries of a mailbox, in the order of acceptance, without taking them."""
        entries: list[Entry] = self._core.read(partial(first_entries, mailbox, limit))
        return entries

    async def checkpoint(self) -> int | None:
        return await asyncio.to_thread(self.node.checkpoint)

    async def close(self, *, force: bool = False) -> None:
        try:
            await asyncio.to_thread(self.node.close, force=force)
        finally:
            self._commits.close()


def _release_all(released: list[tuple[Ticket, MeshError | None]]) -> None:
    for ticket, error in released:
        ticket.release(error)
