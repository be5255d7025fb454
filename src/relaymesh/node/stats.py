"""What `mesh.stats()` answers: counts that can be checked against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from relaymesh.kernel.breaker import Breaker
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.timers import NEVER
from relaymesh.wire.envelope import iso

if TYPE_CHECKING:
    from relaymesh.node.node import Node


class MailboxStats(msgspec.Struct, frozen=True, kw_only=True):
    """One mailbox. accepted = acked + dropped + dead + pending, always; a redrive accepts once more."""

    pending: int
    """Unsettled: waiting, delayed or out with a holder."""
    leased: int
    delayed: int
    bytes: int
    by_priority: dict[int, int]
    capacity: int
    capacity_bytes: int
    accepted: int
    delivered: int
    acked: int
    retried: int
    deferred: int
    dropped: int
    dead: int
    expired: int
    redriven: int
    dead_letters: int
    """Dead letters that nobody has redriven or purged yet."""
    low_starvation_count: int
    delivery_semantics: str
    breaker: str
    """The circuit breaker: `closed`, `half-open`, or `open until <when>: <why>`."""
    breaker_opened: int
    """How often it has opened since the start."""
    recent_retry_rate: float
    """Failures per delivery that ended in the breaker's window (10 min); what it judges by."""
    rate_limited: int
    """How often since the start deliveries that were ready had to wait for the rate limit."""

    @property
    def retry_rate(self) -> float:
        """Retries per delivery, of all time."""
        return self.retried / self.delivered if self.delivered else 0.0


class MeshStats(msgspec.Struct, frozen=True, kw_only=True):
    """The whole mesh."""

    mailboxes: dict[str, MailboxStats]
    sequence: int
    synced: int
    epoch: int
    unrouted: int
    """Messages published to topics nobody subscribes to."""
    dead_letters: int
    remembered_ids: int
    journal_bytes: int
    """Bytes written by this process."""
    store_lag: int

    def delayed(self, mailbox: str | None = None) -> int:
        """Messages that wait for their time: of one mailbox, or all."""
        return sum(box.delayed for address, box in self.mailboxes.items() if mailbox in (None, address))

    @property
    def pending(self) -> int:
        return sum(box.pending for box in self.mailboxes.values())


def stats_of(node: Node, kernel: Kernel) -> MeshStats:
    state = kernel.state
    now = node.time.now()
    letters: dict[str, int] = {}
    for letter in state.letters:
        if letter.status == "pending":
            letters[letter.mailbox] = letters.get(letter.mailbox, 0) + 1
    return MeshStats(
        mailboxes={
            address: _mailbox(box, letters.get(address, 0), now) for address, box in state.mailboxes.items()
        },
        sequence=state.sequence,
        synced=node.core.synced,
        epoch=state.epoch,
        unrouted=state.unrouted,
        dead_letters=state.letters.count,
        remembered_ids=len(state.admitted.remembered()),
        journal_bytes=node.core.journal.bytes_written,
        store_lag=node.projector.lag if node.projector is not None else 0,
    )


def _mailbox(box: Mailbox, dead_letters: int, now: int) -> MailboxStats:
    counters = box.counters
    return MailboxStats(
        pending=len(box.entries),
        leased=box.leased,
        delayed=box.delayed,
        bytes=box.bytes,
        by_priority={priority: box.by_priority[priority] for priority in range(1, 6)},
        capacity=box.settings.capacity,
        capacity_bytes=box.settings.capacity_bytes,
        accepted=counters.accepted,
        delivered=counters.delivered,
        acked=counters.acked,
        retried=counters.retried,
        deferred=counters.deferred,
        dropped=counters.dropped,
        dead=counters.dead,
        expired=counters.expired,
        redriven=counters.redriven,
        dead_letters=dead_letters,
        low_starvation_count=box.ready.low_starvation_count,
        delivery_semantics=box.settings.delivery_semantics,
        breaker=_breaker(box.breaker),
        breaker_opened=box.breaker.opened,
        recent_retry_rate=box.breaker.retry_rate(now),
        rate_limited=0 if box.rate is None else box.rate.limited,
    )


def _breaker(breaker: Breaker) -> str:
    if breaker.state != "open":
        return breaker.state
    return f"open until {'closed' if breaker.until == NEVER else iso(breaker.until)}: {breaker.why}"
