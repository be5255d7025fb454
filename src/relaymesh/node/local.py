"""The local session: a node's commands as plain calls, in the caller's thread.

The same calls exist for a remote node; the SDK is written against them alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.errors import LeaseLost, MailboxFull, MeshError, Refused, UnknownRecipient
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.commands import (
    Ack,
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
from relaymesh.kernel.step import Receipt
from relaymesh.node.clock import Latch
from relaymesh.node.core import Receiver, marks_of
from relaymesh.node.node import Node
from relaymesh.node.originals import Sending
from relaymesh.node.stats import stats_of
from relaymesh.wire.joining import joining
from relaymesh.wire.stats import MeshStats

Groups = Sequence[tuple[str, Sequence[Envelope]]]
Arrival = Callable[[list[Lease], MeshError | None], None]
ROOM_POLL_S = 1.0


class Pull(Receiver, eq=False, kw_only=True):
    """A receive that nobody stands and waits for: its deliveries are handed to whoever asked."""

    mailbox: str = ""
    arrived: Any = None
    core: Any = None

    def release(self, error: MeshError | None) -> None:
        self.arrived(self.leases, error)

    def forgo(self) -> None:
        """Wait no longer. What is on its way already is handed over all the same."""
        self.core.submit(Forgo(self.mailbox, self))


class InProcess:
    """What a session on a node in this process says of it, whether its calls are awaited or not."""

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
        """The journal failed, or the mesh is closed: no call succeeds any more."""
        return self._core.failure

    @property
    def forked(self) -> bool:
        """This is a forked child's copy: everything here is the parent's."""
        return self._core.forked

    def new_ids(self, count: int) -> list[str]:
        return self.node.new_ids(count)


class LocalSession(InProcess):
    """Calls on a node in this process. Thread-safe."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._execute = node.core.execute

    # -- mailboxes

    def open_mailbox(
        self, address: str, settings: MailboxSettings | None, *, budget: int = 0, may_reject: bool = True
    ) -> None:
        self._execute(OpenMailbox(address, settings, budget, may_reject))

    def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None:
        self._execute(joining(agent, role=role, capabilities=capabilities, metadata=metadata))

    def subscribe(
        self,
        pattern: str,
        mailbox: str,
        settings: MailboxSettings,
        *,
        owner: str = "",
        budget: int = 0,
        may_reject: bool = True,
    ) -> None:
        self._execute(Subscribe(pattern, mailbox, settings, owner, budget, may_reject))

    def unsubscribe(self, mailbox: str) -> int:
        dropped: int = self._execute(Unsubscribe(mailbox))
        return dropped

    # -- sending

    def send(self, groups: Groups, minted: bool, timeout: float | None, *, budget: int = 0) -> list[Receipt]:
        """`budget`: bytes that may be kept for the sender, these included; 0 is no limit."""
        return self._when_room(lambda: self.node.prepare_send(groups, minted, budget), timeout)

    def publish(
        self,
        topic: str,
        envelopes: Sequence[Envelope],
        minted: bool,
        timeout: float | None,
        *,
        budget: int = 0,
    ) -> list[Receipt]:
        return self._when_room(lambda: self.node.prepare_publish(topic, envelopes, minted, budget), timeout)

    def _when_room(self, prepare: Callable[[], Sending], timeout: float | None) -> list[Receipt]:
        """Execute; a full mailbox is tried again whenever one gets room, until the time is over."""
        try:
            return self._admit(prepare()) if not timeout else self._wait_for_room(prepare, timeout)
        except Refused as error:
            self.node.refusals.note(error)
            raise

    def _wait_for_room(self, prepare: Callable[[], Sending], timeout: float) -> list[Receipt]:
        deadline = self.node.time.now() + timeout * 1000
        latch: Latch | None = None
        while True:
            try:
                receipts = self._admit(prepare())
            except MailboxFull:
                left = (deadline - self.node.time.now()) / 1000
                if left <= 0:
                    raise
                if latch is not None:
                    self.node.clock.wait(latch, min(left, ROOM_POLL_S))
                latch = Latch()  # asked for before the next try, so that no room is missed
                self._core.when_room(latch.open)
            else:
                return receipts

    def _admit(self, command: Sending) -> list[Receipt]:
        """Execute; where bytes differ from what was sent before, once more with those that mean the same."""
        step = self._core.submit(command)
        if step.differing is not None:
            self._core.reach(*marks_of(step))
            equal = self.node.originals.equal(command, step.differing)
            if equal:
                command.equal = equal
                step = self._core.submit(command)
        receipts: list[Receipt] = self._core.commit(step)
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
    ) -> list[Lease]:
        """Up to `max` deliveries; an empty list when none came in time. None waits for ever.

        `holder`: in whose name, if not this process's; `remote`: it keeps its leases over a restart.
        """
        core = self._core
        receiver = Receiver(holder or self.holder, max, correlation_id, remote=remote, latch=Latch())
        assert receiver.latch is not None
        try:
            step = core.submit(Receive(mailbox, receiver, wait=timeout is None or timeout > 0))
            served: bool = core.commit(step)
            if served:
                receiver.latch.wait(None)
            elif timeout is not None and timeout <= 0:
                return []
            elif not self.node.clock.wait(receiver.latch, timeout):
                if self._execute(Forgo(mailbox, receiver)):
                    return []
                receiver.latch.wait(None)
        except BaseException:
            self._abandon(mailbox, receiver)
            raise
        if receiver.error is not None:
            raise type(receiver.error)(receiver.error.message, hint=receiver.error.hint)
        return receiver.leases

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """A receive without waiting: whoever commits the grant calls `arrived`."""
        core = self._core
        pull = Pull(self.holder, max, mailbox=mailbox, arrived=arrived, core=core)
        core.commit(core.submit(Receive(mailbox, pull)))
        return pull

    def _abandon(self, mailbox: str, receiver: Receiver) -> None:
        """The caller was interrupted: what it was granted meanwhile goes back unburned."""
        try:
            self._execute(Forgo(mailbox, receiver))
            if receiver.leases:
                self._execute(Release([lease.token for lease in receiver.leases]))
        except MeshError:
            return

    def release(self, tokens: Sequence[int]) -> None:
        """Deliveries nobody received: back as if never granted. A stale token needs no release."""
        self._execute(Release(tokens))

    def mailbox_of(self, tokens: Sequence[int]) -> dict[int, str]:
        """The mailbox of each token that is still good."""
        mailboxes: dict[int, str] = self._core.read(partial(mailboxes_of, tokens))
        return mailboxes

    def expect(self, mailbox: str, correlation_id: str, minted: bool = False, *, budget: int = 0) -> None:
        self._execute(Expect(mailbox, correlation_id, budget, minted))

    def unexpect(self, mailbox: str, correlation_id: str) -> None:
        self._execute(Unexpect(mailbox, correlation_id))

    # -- settling

    def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]:
        """Answers the tokens that were stale."""
        stale: list[int] = self._execute(Ack(tokens, drop), durable=durable)
        return stale

    def nack(self, nack: Nack) -> str:
        state: str = self._execute(nack)
        return state

    def settle(self, token: int, groups: Groups, *, budget: int = 0) -> list[Receipt]:
        return self._when_room(lambda: self.node.prepare_settle(token, groups, budget), None)

    def extend(self, token: int, ms: int) -> int:
        deadline: int = self._execute(Extend(token, ms))
        return deadline

    def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        """Deadlines of (token, ms); None for a lease that is lost."""
        return [self._extended(token, ms) for token, ms in extends]

    def _extended(self, token: int, ms: int) -> int | None:
        try:
            return self.extend(token, ms)
        except LeaseLost:
            return None

    def complete(self, mailbox: str, sequence: int) -> bool:
        waits: bool = self._execute(Complete(mailbox, sequence))
        return waits

    # -- looking after it

    def dead_letters(self) -> list[DeadLetter]:
        letters: list[DeadLetter] = self._observe(lambda kernel: list(kernel.state.letters))
        return letters

    def _observe(self, look: Callable[[Kernel], Any]) -> Any:
        """An answer that a power loss cannot take back: it waits for what it saw."""
        answer, through = self._core.observe(look)
        self._core.reach(through, through)
        return answer

    def redrive(
        self,
        letters: Sequence[tuple[str, int]],
        to: str | None,
        edited: Sequence[Envelope | None] | None,
    ) -> list[int | None]:
        sequences: list[int | None] = self._execute(Redrive(letters, to, edited))
        return sequences

    def purge(self, letters: Sequence[tuple[str, int]]) -> int:
        purged: int = self._execute(PurgeDeadLetters(letters))
        return purged

    def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int:
        changed: int = self._execute(Reprioritise(mailbox, ids, priority))
        return changed

    def set_breaker(self, mailbox: str, *, open: bool) -> None:
        self._execute(SetBreaker(mailbox, open))

    def deliver_due(self) -> int:
        arrived: int = self._execute(Tick())
        return arrived

    def force_delayed(self, mailbox: str | None) -> int:
        forced: int = self._execute(ForceDelayed(mailbox))
        return forced

    def stats(self) -> MeshStats:
        """Does not wait for the disk: it must answer when the disk does not."""
        stats: MeshStats = self._core.read(lambda kernel: stats_of(self.node, kernel))
        return stats

    def peek(self, mailbox: str, limit: int) -> list[Entry]:
        """Pending entries of a mailbox, in the order of acceptance, without taking them."""
        entries: list[Entry] = self._core.read(partial(first_entries, mailbox, limit))
        return entries

    def checkpoint(self) -> int | None:
        return self.node.checkpoint()

    def close(self, *, force: bool = False) -> None:
        self.node.close(force=force)


def mailboxes_of(tokens: Sequence[int], kernel: Kernel) -> dict[int, str]:
    leases = kernel.state.leases
    return {token: leases[token].grant.mailbox for token in tokens if token in leases}


def first_entries(mailbox: str, limit: int, kernel: Kernel) -> list[Entry]:
    box = kernel.state.mailboxes.get(mailbox)
    if box is None:
        raise UnknownRecipient(f"there is no mailbox {mailbox} in this mesh")
    return [seen_from_outside(entry) for entry in islice(box.entries.values(), limit)]


def seen_from_outside(entry: Entry) -> Entry:
    """A copy: what a caller does to it changes nothing here."""
    failures = None if entry.failures is None else list(entry.failures)
    return msgspec.structs.replace(entry, failures=failures, lane=None, lease=None)
