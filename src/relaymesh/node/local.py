"""The local session: a node's commands as plain calls, in the caller's thread.

The same calls exist for a remote node; the SDK is written against them alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from relaymesh.errors import MailboxFull, MeshError
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
    Settle,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.node.clock import Latch
from relaymesh.node.core import Receiver
from relaymesh.node.node import Node
from relaymesh.node.stats import MeshStats, stats_of

Groups = Sequence[tuple[str, Sequence[Envelope]]]
ROOM_POLL_S = 1.0


class LocalSession:
    """Calls on a node in this process. Thread-safe."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holder = f"process-{os.getpid()}"
        self._core = node.core
        self._execute = node.core.execute

    # -- mailboxes

    def open_mailbox(self, address: str, settings: MailboxSettings | None) -> None:
        self._execute(OpenMailbox(address, settings))

    def subscribe(self, pattern: str, mailbox: str, settings: MailboxSettings) -> None:
        self._execute(Subscribe(pattern, mailbox, settings))

    def unsubscribe(self, mailbox: str) -> int:
        dropped: int = self._execute(Unsubscribe(mailbox))
        return dropped

    # -- sending

    def new_ids(self, count: int) -> list[str]:
        return self.node.new_ids(count)

    def send(self, groups: Groups, minted: bool, timeout: float | None) -> list[Receipt]:
        return self._when_room(lambda: self.node.prepare_send(groups, minted), timeout)

    def publish(
        self, topic: str, envelopes: Sequence[Envelope], minted: bool, timeout: float | None
    ) -> list[Receipt]:
        return self._when_room(lambda: self.node.prepare_publish(topic, envelopes, minted), timeout)

    def _when_room(self, prepare: Callable[[], Command], timeout: float | None) -> list[Receipt]:
        """Execute; a full mailbox is tried again whenever one gets room, until the time is over."""
        if not timeout:
            receipts: list[Receipt] = self._execute(prepare())
            return receipts
        deadline = self.node.time.now() + timeout * 1000
        latch: Latch | None = None
        while True:
            try:
                receipts = self._execute(prepare())
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

    # -- receiving

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> list[Lease]:
        """Up to `max` deliveries; an empty list when none came in time. None waits for ever."""
        core = self._core
        receiver = Receiver(self.holder, max, correlation_id, latch=Latch())
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
            raise type(receiver.error)(receiver.error.message)
        return receiver.leases

    def _abandon(self, mailbox: str, receiver: Receiver) -> None:
        """The caller was interrupted: what it was granted meanwhile goes back unburned."""
        try:
            self._execute(Forgo(mailbox, receiver))
            if receiver.leases:
                self._execute(Release([lease.token for lease in receiver.leases]))
        except MeshError:
            return

    def expect(self, mailbox: str, correlation_id: str) -> None:
        self._execute(Expect(mailbox, correlation_id))

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

    def settle(self, token: int, groups: Groups) -> list[Receipt]:
        sends = self.node.prepare_send(groups, minted=False)
        receipts: list[Receipt] = self._execute(Settle(token, groups, known=sends.known))
        return receipts

    def extend(self, token: int, ms: int) -> int:
        deadline: int = self._execute(Extend(token, ms))
        return deadline

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
        edit: Callable[[Envelope], Envelope] | None,
    ) -> list[int | None]:
        sequences: list[int | None] = self._execute(Redrive(letters, to, edit))
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

    def peek(self, mailbox: str, limit: int) -> list[Any]:
        """Pending entries of a mailbox, in the order of acceptance, without taking them."""
        entries: list[Any] = self._core.read(
            lambda kernel: list(kernel.state.mailboxes[mailbox].entries.values())[:limit]
        )
        return entries

    def close(self, *, force: bool = False) -> None:
        self.node.close(force=force)
