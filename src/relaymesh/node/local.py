"""The local session: requests to a node in this process, in the caller's thread.

The same few calls exist for a remote node; the SDK is written against them alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaymesh.errors import MailboxFull, MeshError, Refused
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.commands import Command, Release, Request, Result
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.query import Query
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.clock import Latch
from relaymesh.node.core import Receiver
from relaymesh.node.node import Node
from relaymesh.node.originals import SENDING, Sending
from relaymesh.node.release import all_needs

Arrival = Callable[[Deliveries, MeshError | None], None]
ROOM_POLL_S = 1.0


class Pull(Receiver, eq=False, kw_only=True):
    """A receive that no thread waits in: its deliveries are handed to `arrived`."""

    mailbox: str = ""
    arrived: Any = None
    core: Any = None

    def release(self, error: MeshError | None) -> None:
        self.arrived(self.deliveries or nothing_from(self.mailbox), error)

    def forgo(self) -> None:
        """Stop waiting. Deliveries that are already on their way are still handed over."""
        self.core.forgo(self.mailbox, self)


class InProcess:
    """What a session on a node in this process says of that node, for both the sync and the async session."""

    namespace = DEFAULT_NAMESPACE

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holder = f"process-{os.getpid()}"
        self._core = node.core
        self.payload_bytes_max = node.settings.payload_bytes_max
        self.now = node.time.now
        """Mesh time, in milliseconds."""

    @property
    def path(self) -> Path | None:
        """The data directory; None in memory."""
        return self.node.path

    @property
    def failure(self) -> MeshError | None:
        """Whether the journal failed or the mesh is closed: no call succeeds any more."""
        return self._core.failure

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy: everything here belongs to the parent."""
        return self._core.forked

    def new_ids(self, count: int) -> list[str]:
        return self.node.new_ids(count)

    def holds(self, token: int) -> bool:
        """Whether the lease is still held."""
        return self._core.kernel.holds(token)


class LocalSession(InProcess):
    """Requests to a node in this process. Thread-safe."""

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        """Execute a command, a query or a request to the node; return once its promise holds.

        timeout: how long a send waits for room in a full mailbox. None: do not wait.
        durable: wait for the sync even where the durability setting does not.
        """
        result: Result
        if isinstance(request, SENDING):
            result = self._send(request, timeout)  # type: ignore[assignment]  # what these result in
        elif isinstance(request, Command):
            result = self._core.execute(request, durable=durable)
        elif isinstance(request, Query):
            result = self._look(request)
        else:
            result = self.node.answer(request)
        return result

    def _look(self, query: Query[Result]) -> Result:
        if not query.durable:
            return self._core.read(lambda kernel: kernel.look(query))
        answer, needs = self._core.observe(lambda kernel: kernel.look(query))
        self._core.reach(needs)
        return answer

    def _send(self, command: Sending, timeout: float | None) -> list[Receipt]:
        """Try a full mailbox again whenever a mailbox gets room, until the time is over."""
        try:
            return self._admit(command) if not timeout else self._wait_for_room(command, timeout)
        except Refused as error:
            self.node.refusals.note(error)
            raise

    def _wait_for_room(self, command: Sending, timeout: float) -> list[Receipt]:
        deadline = self.node.time.now() + timeout * 1000
        latch: Latch | None = None
        while True:
            try:
                receipts = self._admit(command)
            except MailboxFull:
                left = (deadline - self.node.time.now()) / 1000
                if left <= 0:
                    raise
                if latch is not None:
                    self.node.clock.wait(latch, min(left, ROOM_POLL_S))
                latch = Latch()  # ask before the next try, so that no free slot is missed
                self._core.when_room(latch.open)
            else:
                return receipts

    def _admit(self, command: Sending) -> list[Receipt]:
        """Execute. If bytes differ from an earlier send of the same id, execute again with those that mean
        the same.
        """
        core = self._core
        self.node.prepare(command)
        step = core.submit(command)
        if step.differing is not None:
            core.reach(all_needs(step, waits_for_sync=core.waits_for_sync))
            equal = self.node.originals.equal(command, step.differing)
            if equal:
                command.equal = equal
                step = core.submit(command)
        receipts: list[Receipt] = core.commit(step)
        return receipts

    # -- receiving

    def receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        holder: str | None = None,
        remote: bool = False,
    ) -> Deliveries:
        """Return up to `max` deliveries; none if none came in time. `timeout` None waits forever.

        `holder`: the name that holds the leases, if not this process; `remote`: the leases survive a restart.
        """
        core = self._core
        latch = Latch()
        receiver = Receiver(Waiter(holder or self.holder, max, correlation_id, remote), latch=latch)
        try:
            if core.commit(core.receive(mailbox, receiver, wait=timeout is None or timeout > 0)):
                latch.wait(None)
            elif timeout is not None and timeout <= 0:
                return nothing_from(mailbox)
            elif not self.node.clock.wait(latch, timeout):
                if core.commit(core.forgo(mailbox, receiver)):
                    return nothing_from(mailbox)
                latch.wait(None)
        except BaseException:
            self._abandon(mailbox, receiver)
            raise
        if receiver.error is not None:
            raise type(receiver.error)(receiver.error.message, hint=receiver.error.hint)
        assert receiver.deliveries is not None
        return receiver.deliveries

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """Receive without waiting: the thread that commits the grant calls `arrived`."""
        core = self._core
        pull = Pull(Waiter(self.holder, max), mailbox=mailbox, arrived=arrived, core=core)
        core.commit(core.receive(mailbox, pull))
        return pull

    def _abandon(self, mailbox: str, receiver: Receiver) -> None:
        """The caller was interrupted: give back what it was granted meanwhile. No attempt is counted."""
        core = self._core
        try:
            core.commit(core.forgo(mailbox, receiver))
            if receiver.deliveries:
                core.execute(Release(receiver.deliveries.tokens))
        except MeshError:
            return

    def close(self, *, force: bool = False) -> None:
        self.node.close(force=force)
