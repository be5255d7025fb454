"""Counting: the state of a kernel as `MeshStats`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from relaymesh.kernel.breaker import Breaker
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.state import State
from relaymesh.wire.envelope import iso
from relaymesh.wire.stats import MailboxStats, MeshStats

if TYPE_CHECKING:
    from relaymesh.node.node import Node


KEPT_MAX = 20
"""Payers that are shown: those for whom most is kept."""


def stats_of(node: Node, kernel: Kernel, addresses: Iterable[str] | None = None) -> MeshStats:
    """Counters of these mailboxes, or of all, and of the node."""
    state = kernel.state
    now = node.time.now()
    boxes = state.mailboxes
    if addresses is not None:
        boxes = {address: boxes[address] for address in addresses if address in boxes}
    return MeshStats(
        mailboxes={address: _mailbox(state, box, now) for address, box in boxes.items()},
        sequence=state.sequence,
        synced=node.core.synced,
        epoch=state.epoch,
        unrouted=state.unrouted,
        duplicates=state.duplicates,
        refused=node.refusals.counts(),
        dead_letters=state.letters.count,
        kept={} if boxes and addresses is not None else state.charges.greatest(KEPT_MAX),
        remembered_ids=len(state.admitted),
        journal_bytes=node.core.journal.bytes_written,
        store_lag=node.projector.lag if node.projector is not None else 0,
    )


def _mailbox(state: State, box: Mailbox, now: int) -> MailboxStats:
    counters, letters = box.counters, state.letters.of(box.address)
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
        dead_letters=letters.pending,
        dead_letter_bytes=letters.pending_bytes + letters.redriven_bytes,
        skipped=counters.skipped,
        suspended=state.subscriptions.suspended(box.address) or "",
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
