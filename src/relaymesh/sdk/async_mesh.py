"""`AsyncMesh`: the mesh for programs on an event loop. The twin of `Mesh`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from relaymesh.client.settings import Transport
from relaymesh.errors import Closed
from relaymesh.kernel.bounds import flag, patience
from relaymesh.kernel.commands import (
    Ack,
    ForceDelayed,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Redrive,
    Reprioritise,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.kernel.query import DeadLetters
from relaymesh.node.clock import Clock
from relaymesh.node.settings import Durability
from relaymesh.sdk.agent import checked_topic, handler_name
from relaymesh.sdk.async_agent import AsyncAgent, AsyncHandler, AsyncSubscription
from relaymesh.sdk.async_pool import AsyncWorkerPool
from relaymesh.sdk.compose import chosen_ids, compose_all
from relaymesh.sdk.delivery import AsyncDelivery, checked_deliveries, mark_settled
from relaymesh.sdk.letters import DeadLetter, Redriven, Which, choose, edited_messages, redriven, select
from relaymesh.sdk.mesh import (
    HANDLERS_STOP_S,
    MESH_SENDER,
    NO_TABLE,
    WATCH_S,
    deadline_of,
    log_stop,
    raise_failure,
)
from relaymesh.sdk.names import Names
from relaymesh.sdk.opening import checked_clock, open_async_session
from relaymesh.sdk.options import MailboxOptions, mailbox_settings
from relaymesh.sdk.outcome import FailureTable
from relaymesh.sdk.place import LocalPlace, Settings, place_of
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, worker_counts
from relaymesh.sdk.receipt import Receipt, receipts_of
from relaymesh.sdk.renewal import AsyncRenewer
from relaymesh.sdk.session import AsyncSession
from relaymesh.sdk.stop_signals import exit_of, told_to_stop
from relaymesh.wire.envelope import parse_priority
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.stats import MeshStats


class AsyncMesh:
    """A mesh on an event loop: a directory, memory alone, or a node elsewhere; see `Mesh`.

    It belongs to the loop it is opened on. Calls from another loop raise `Closed` and do nothing.

    async with AsyncMesh("data") as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", {"do": "bump version"})
        async with await coder.receive(timeout=5) as delivery:
            print(delivery.content)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        durability: Durability | None = None,
        *,
        settings: Settings | None = None,
        workers: tuple[int, int] = (CORE_DEFAULT, MAX_DEFAULT),
        clock: Clock | None = None,
        token: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Opened by `async with`, or `await mesh.open()`. `workers[1]` handlers run at most at once."""
        self._place = place_of(
            path, durability=durability, settings=settings, token=token, transport=transport
        )
        self._clock = checked_clock(clock)
        self._workers = worker_counts(workers)
        self._begin()

    def _begin(self) -> None:
        self._names = Names()
        self._tables: dict[str, FailureTable] = {}
        self._opened: AsyncSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one it was opened on, or was first used on."""
        self._starting: list[asyncio.Task[None]] = []
        self._closed = False
        self._ended = asyncio.Event()

    async def open(self) -> AsyncMesh:
        """Take the directory and recover, without blocking the loop."""
        if self._closed:
            raise Closed("this mesh is closed")
        if self._opened is None:
            session = self._opened = await open_async_session(self._place, self._clock)
            self._loop = asyncio.get_running_loop()
            self._limit = session.payload_bytes_max
            self._names = Names(session.namespace)
            self._renewer = AsyncRenewer(session)
            self._pool = AsyncWorkerPool(self._workers[1])
        return self

    @property
    def _session(self) -> AsyncSession:
        if self._opened is None:
            raise Closed("this mesh is not open", hint="use it in an async with block, or await mesh.open()")
        if asyncio._get_running_loop() is not self._loop:
            self._check_loop()
        return self._opened

    def _check_loop(self) -> None:
        """Raise on a loop that is not the mesh's own. Outside a loop nothing is awaited, and all is well."""
        running = asyncio._get_running_loop()
        if self._loop is None:
            self._loop = running
        elif running not in (None, self._loop):
            raise Closed(
                "this AsyncMesh belongs to the event loop it was opened on, and this is another one",
                hint="open an AsyncMesh on each loop, or use Mesh: any thread may call it",
            )

    @property
    def path(self) -> os.PathLike[str] | None:
        """The data directory; None for a mesh in memory, or elsewhere."""
        if self._opened is not None:
            return self._opened.path
        return self._place.path if isinstance(self._place, LocalPlace) else None

    # -- mailboxes

    async def agent(self, name: str, **options: Unpack[MailboxOptions]) -> AsyncAgent:
        """The agent of this name; its mailbox is opened if need be. Options change its settings."""
        address = self._names.agent(name)
        settings = None
        if options:
            settings, self._tables[address] = mailbox_settings(options)
        await self._session.execute(OpenMailbox(address, settings))
        return AsyncAgent(self, address)

    async def subscribe(self, topic: str, name: str, **options: Unpack[MailboxOptions]) -> AsyncSubscription:
        """A durable subscription to a topic or a pattern; see `Mesh.subscribe`."""
        address = self._names.subscription(topic, name)
        settings, self._tables[address] = mailbox_settings(options, schedule="fifo")
        await self._session.execute(Subscribe(self._names.pattern(topic), address, settings))
        return AsyncSubscription(self, address)

    async def unsubscribe(self, topic: str, name: str) -> int:
        """End a subscription; what it still held is dropped. Answers how many messages that were."""
        return await self._session.execute(Unsubscribe(self._names.subscription(topic, name)))

    def on(
        self, topic: str, name: str | None = None, **options: Unpack[MailboxOptions]
    ) -> Callable[[AsyncHandler], AsyncHandler]:
        """Decorator: subscribe, and run the function for every message, once the loop gets to it."""
        checked_topic(topic)

        def register(handler: AsyncHandler) -> AsyncHandler:
            self._names.subscription(
                topic, handler_name(handler) if name is None else name
            )  # a bad name, or setting, is said at once
            mailbox_settings(options)
            _ = self._session  # and so is a mesh that is not open, or of another loop

            async def start() -> None:
                subscription = await self.subscribe(
                    topic, handler_name(handler) if name is None else name, **options
                )
                subscription.handle(handler)

            self._starting.append(asyncio.get_running_loop().create_task(start()))
            return handler

        return register

    async def _started(self) -> None:
        """What `on` began is done: a publish that follows it reaches it."""
        while self._starting:
            await self._starting.pop()

    def _table_of(self, address: str) -> FailureTable:
        return self._tables.get(address, NO_TABLE)

    # -- publishing and settling

    async def publish(
        self,
        topic: str,
        content: Any,
        *,
        id: str | None = None,
        key: str | None = None,
        sender: str | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Receipt:
        """Send to everybody who subscribes to the topic; `receipt.targets` says how many that are."""
        item = {"content": content, "id": id, "key": key, **fields}
        return (await self.publish_many(topic, [item], sender=sender, timeout=timeout))[0]

    async def publish_many(
        self,
        topic: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        sender: str | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish a batch on one topic, all or none: each a dict of `content` and any field of `send`."""
        session = self._session
        address = self._names.topic(topic)
        if self._starting:
            await self._started()
        origin = MESH_SENDER if sender is None else self._names.agent(sender, "sender")
        envelopes, notes, minted = compose_all(origin, messages, session.new_ids, self._limit, self._names)
        command = Publish(address, envelopes, minted)
        return receipts_of(await session.execute(command, timeout=patience(timeout)), notes)

    async def ack_many(self, deliveries: Sequence[AsyncDelivery], *, durable: bool = False) -> None:
        """Ack a batch in one step. Raises `LeaseLost`, naming them, if some were lost; the rest are acked."""
        flag(durable, "durable")
        deliveries = checked_deliveries(deliveries, AsyncDelivery)
        tokens = [each._token for each in deliveries if not each._settled]
        mark_settled(deliveries, await self._session.execute(Ack(tokens), durable=durable))

    # -- looking after it

    async def dead_letters(self, **filters: Any) -> list[DeadLetter]:
        """Dead letters that fit: `receiver, sender, reason, code, ids, since, until, status, limit`."""
        return select(await self._session.execute(DeadLetters()), **filters)

    async def redrive(
        self,
        which: Which = None,
        *,
        to: str | None = None,
        edit: Any = None,
        dry_run: bool = False,
        **filters: Any,
    ) -> list[Redriven]:
        """Send dead letters back to where they died, or to agent `to`; see `Mesh.redrive`."""
        flag(dry_run, "dry_run")
        letters = choose(await self._session.execute(DeadLetters()), which, filters)
        target = None if to is None else self._names.agent(to, "recipient")
        sequences: list[int | None] = [None] * len(letters)
        edited = None
        if not dry_run and letters:
            edited = edited_messages(letters, edit, self._session.new_ids, self._limit)
            sequences = await self._session.execute(
                Redrive([letter.key for letter in letters], target, edited)
            )
        return redriven(letters, target, sequences, edited)

    async def purge_dead_letters(self, which: Which = None, **filters: Any) -> int:
        """Remove dead letters for good. Answers how many."""
        letters = choose(await self._session.execute(DeadLetters()), which, filters)
        return (
            await self._session.execute(PurgeDeadLetters([letter.key for letter in letters]))
            if letters
            else 0
        )

    async def reprioritise(self, name: str, priority: int | str, ids: Sequence[str] | None = None) -> int:
        """Give pending messages of an agent another priority; all of them, or those with these ids."""
        chosen = None if ids is None else chosen_ids(ids)
        return await self._session.execute(
            Reprioritise(self._names.agent(name), chosen, parse_priority(priority))
        )

    async def deliver_due(self) -> int:
        """Let delayed messages that are due arrive now. It happens by itself; this answers how many did."""
        return await self._session.execute(Tick())

    async def force_deliver_delayed(self, name: str | None = None) -> int:
        """Deliver delayed messages at once: of one agent, or all. Answers how many."""
        return await self._session.execute(ForceDelayed(None if name is None else self._names.agent(name)))

    async def delayed_count(self, name: str | None = None) -> int:
        """How many messages wait for their time: of one agent, or all."""
        return (await self.stats()).delayed(None if name is None else self._names.agent(name))

    async def stats(self) -> MeshStats:
        return await self._session.execute(Stats())

    async def checkpoint(self) -> int | None:
        """Write the whole state now, so that the next start need not replay. Happens by itself."""
        return await self._session.execute(Checkpoint())

    # -- the end

    async def run(self, seconds: float | None = None, *, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Keep handlers running until the mesh is closed, the time is over, or a signal; see `Mesh.run`."""
        loop = asyncio.get_running_loop()
        deadline = deadline_of(seconds, loop.time())
        most = patience(timeout)
        told: asyncio.Queue[signal.Signals] = asyncio.Queue()
        with told_to_stop(lambda number: loop.call_soon_threadsafe(told.put_nowait, number)):
            first = await self._until_told(told, deadline)
            if first is None:
                return
            log_stop(first, most)
            second = asyncio.create_task(told.get())
            stopping = asyncio.create_task(self._pool.close(most))
            try:
                await asyncio.wait({stopping, second}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hurried = second.result() if second.done() else None
                second.cancel()
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        if hurried is not None:
            raise exit_of(hurried)

    async def _until_told(
        self, told: asyncio.Queue[signal.Signals], deadline: float
    ) -> signal.Signals | None:
        """The signal that came; None when the mesh was closed, or the time is over."""
        session, now = self._session, asyncio.get_running_loop().time
        waits = {asyncio.create_task(told.get()), asyncio.create_task(self._ended.wait())}
        try:
            while not self._ended.is_set():
                raise_failure(session)
                left = deadline - now()
                done, _ = await asyncio.wait(
                    waits, timeout=min(WATCH_S, max(0.0, left)), return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    if isinstance(number := each.result(), signal.Signals):
                        return number
                if left <= 0:
                    return None
        finally:
            for each in waits:
                each.cancel()
        return None

    async def close(self, *, force: bool = False, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Let handlers finish, give back what was not settled, and free the directory; see `Mesh.close`."""
        flag(force, "force")
        most = patience(timeout)
        if self._closed:
            return
        if self._opened is None or self._opened.forked:
            self._closed = True
            return
        if self._loop is not None and self._loop.is_closed():
            await self._close_without_loop(self._opened, force)
            return
        self._check_loop()
        self._closed = True
        self._ended.set()
        try:
            await asyncio.gather(*self._starting, return_exceptions=True)
            await self._pool.close(0.0 if force else most)
        finally:
            await self._renewer.close()
            await self._opened.close(force=force)

    async def _close_without_loop(self, session: AsyncSession, force: bool) -> None:
        """The loop has ended, and with it tasks and connections: only a directory is left to free."""
        self._closed = True
        with contextlib.suppress(RuntimeError):
            await session.close(force=force)

    async def __aenter__(self) -> AsyncMesh:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
