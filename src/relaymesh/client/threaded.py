"""A remote session for ordinary threads: the awaited one, on a loop in a thread of its own.

Each call is one hand-over to that thread and one back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from relaymesh.client.remote import Edited, Groups
from relaymesh.errors import Closed, MeshError
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.wire.stats import MeshStats

if TYPE_CHECKING:
    from relaymesh.client.http import HttpSession
    from relaymesh.client.websocket import WebSocketSession

    AnySession: TypeAlias = WebSocketSession | HttpSession

Answer = TypeVar("Answer")
Arrival = Callable[[list[Lease], MeshError | None], None]


class _LoopThread:
    """An event loop that runs in a thread until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relaymesh-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        try:
            self._loop.run_until_complete(_cancel_all())
        finally:
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Closed("this mesh is closed") from None

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted: what is on its way goes back
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class RemotePull:
    """A receive that nobody stands and waits for."""

    def __init__(self, future: Future[list[Lease]]) -> None:
        self._future = future

    def forgo(self) -> None:
        """Wait no longer. What comes all the same goes back unburned."""
        self._future.cancel()


class ThreadedSession:
    """Calls on a remote node, in the caller's thread. Thread-safe."""

    path = None

    def __init__(self, open_session: Callable[[], Awaitable[AnySession]]) -> None:
        self._thread = _LoopThread()
        self._closed = False
        try:
            self._session = self._thread.run(_awaited(open_session))
        except BaseException:
            self._thread.stop()
            raise
        self.now = self._session.now
        self.new_ids = self._session.new_ids

    @property
    def url(self) -> str:
        return self._session.url

    @property
    def namespace(self) -> str:
        return self._session.namespace

    @property
    def payload_bytes_max(self) -> int:
        return self._session.payload_bytes_max

    @property
    def failure(self) -> MeshError | None:
        return Closed("this mesh is closed") if self._closed else self._session.failure

    @property
    def forked(self) -> bool:
        return self._session.forked

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        if self._closed or self._session.forked:
            work.close()
            raise Closed(
                "this mesh is closed"
                if self._closed
                else "this mesh belongs to the process that opened it, and this one was forked from it"
            )
        return self._thread.run(work)

    # -- mailboxes

    def open_mailbox(self, address: str, settings: MailboxSettings | None) -> None:
        self._run(self._session.open_mailbox(address, settings))

    def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None:
        self._run(self._session.register(agent, role, capabilities, metadata))

    def subscribe(self, pattern: str, mailbox: str, settings: MailboxSettings) -> None:
        self._run(self._session.subscribe(pattern, mailbox, settings))

    def unsubscribe(self, mailbox: str) -> int:
        return self._run(self._session.unsubscribe(mailbox))

    # -- sending

    def send(self, groups: Groups, minted: bool, timeout: float | None) -> list[Receipt]:
        return self._run(self._session.send(groups, minted, timeout))

    def publish(
        self, topic: str, envelopes: Sequence[Envelope], minted: bool, timeout: float | None
    ) -> list[Receipt]:
        return self._run(self._session.publish(topic, envelopes, minted, timeout))

    # -- receiving

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> list[Lease]:
        return self._run(self._session.receive(mailbox, max, timeout, correlation_id))

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> RemotePull:
        """`arrived` is called in the client's own thread."""

        async def wait() -> list[Lease]:
            try:
                leases = await self._session.pull(mailbox, max)
            except MeshError as error:
                arrived([], error)
                return []
            arrived(leases, None)
            return leases

        return RemotePull(self._thread.start(wait()))

    def release(self, tokens: Sequence[int]) -> None:
        self._run(self._session.release(tokens))

    def expect(self, mailbox: str, correlation_id: str, minted: bool = False) -> None:
        self._run(self._session.expect(mailbox, correlation_id, minted))

    def unexpect(self, mailbox: str, correlation_id: str) -> None:
        self._run(self._session.unexpect(mailbox, correlation_id))

    # -- settling

    def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]:
        return self._run(self._session.ack(tokens, durable=durable, drop=drop))

    def nack(self, nack: Nack) -> str:
        return self._run(self._session.nack(nack))

    def settle(self, token: int, groups: Groups) -> list[Receipt]:
        return self._run(self._session.settle(token, groups))

    def extend(self, token: int, ms: int) -> int:
        return self._run(self._session.extend(token, ms))

    def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        return self._run(self._session.extend_all(extends))

    def complete(self, mailbox: str, sequence: int) -> bool:
        return self._run(self._session.complete(mailbox, sequence))

    # -- looking after it

    def dead_letters(self) -> list[DeadLetter]:
        return self._run(self._session.dead_letters())

    def redrive(self, letters: Sequence[tuple[str, int]], to: str | None, edited: Edited) -> list[int | None]:
        return self._run(self._session.redrive(letters, to, edited))

    def purge(self, letters: Sequence[tuple[str, int]]) -> int:
        return self._run(self._session.purge(letters))

    def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int:
        return self._run(self._session.reprioritise(mailbox, ids, priority))

    def set_breaker(self, mailbox: str, *, open: bool) -> None:
        self._run(self._session.set_breaker(mailbox, open=open))

    def deliver_due(self) -> int:
        return self._run(self._session.deliver_due())

    def force_delayed(self, mailbox: str | None) -> int:
        return self._run(self._session.force_delayed(mailbox))

    def stats(self) -> MeshStats:
        return self._run(self._session.stats())

    def peek(self, mailbox: str, limit: int) -> list[Entry]:
        return self._run(self._session.peek(mailbox, limit))

    def checkpoint(self) -> int | None:
        return self._run(self._session.checkpoint())

    def close(self, *, force: bool = False) -> None:
        if self._closed or self._session.forked:
            return
        try:
            self._run(self._session.close(force=force))
        finally:
            self._closed = True
            self._thread.stop()


async def _awaited(open_session: Callable[[], Awaitable[AnySession]]) -> AnySession:
    return await open_session()
