"""Looks into the state: each returns values, which a caller may keep; they hold no kernel objects.

The thing to look into is the last argument, so that `core.read(partial(query, ...))` asks a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from relaymesh.errors import UnknownRecipient
from relaymesh.kernel.breaker import Breaker
from relaymesh.kernel.counts import MailboxStats
from relaymesh.kernel.dedup import Differing, topic_of
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.moment import NEVER, iso
from relaymesh.kernel.pending import Pending, PublishedPending
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.state import State


class Looked(Protocol):
    """What can be looked into: a kernel, or a replayed journal."""

    @property
    def state(self) -> State: ...


# -- pending messages ---------------------------------------------------------------------------


def first_pending(mailbox: str, limit: int, of: Looked) -> list[Pending]:
    """The first messages of a mailbox, in the order of acceptance."""
    return [
        _published(entry) if entry.topic is not None else _pending(entry)
        for entry in islice(_box(mailbox, of).entries.values(), limit)
    ]


def pending_rows(mailbox: str, most: int, after: int, of: Looked) -> Iterator[Pending]:
    """Those behind the sequence `after` among the first `most`, in the form of the wire.

    A generator: read it to its end before the mailbox changes.
    """
    for entry in islice(_box(mailbox, of).entries.values(), most):
        if entry.sequence > after:
            yield _pending(entry)


def pending_at(mailbox: str | None, sequence: int, of: Looked) -> Pending | None:
    """The pending message that was accepted under this sequence, in this mailbox or in any."""
    mailboxes = of.state.mailboxes
    for address in mailboxes if mailbox is None else (mailbox,):
        box = mailboxes.get(address)
        entry = None if box is None else box.entries.look(sequence)
        if entry is not None:
            return _pending(entry)
    return None


def unsettled_originals(differing: Sequence[Differing], of: Looked) -> dict[tuple[str, int], Envelope]:
    """What is still in a mailbox: in that of the target, or in one that got a copy from the topic."""
    state = of.state
    found: dict[tuple[str, int], Envelope] = {}
    for each in differing:
        topic = topic_of(each.target)
        for address in [each.target] if topic is None else state.subscriptions.route(topic):
            mailbox = state.mailboxes.get(address)
            entry = None if mailbox is None else mailbox.entries.look(each.sequence)
            if entry is not None:
                found[each.target, each.sequence] = entry.envelope
    return found


def _box(mailbox: str, of: Looked) -> Mailbox:
    box = of.state.mailboxes.get(mailbox)
    if box is None:
        raise UnknownRecipient(f"there is no mailbox {mailbox} in this mesh")
    return box


def _fields(entry: Entry) -> tuple[object, ...]:
    return (
        entry.envelope,
        entry.sequence,
        entry.accepted_at,
        entry.due_at,
        entry.ready_at,
        entry.ready_sequence,
        entry.priority,
        entry.state,
        entry.attempts,
        entry.deferrals,
        entry.redrives,
        entry.completed,
        None if entry.failures is None else list(entry.failures),
        entry.waited_ms,
    )


def _pending(entry: Entry) -> Pending:
    return Pending(*_fields(entry))  # type: ignore[arg-type]


def _published(entry: Entry) -> Pending:
    return PublishedPending(*_fields(entry), came_from=entry.topic)  # type: ignore[arg-type, misc]


# -- stays --------------------------------------------------------------------------------------


class Stay(msgspec.Struct, frozen=True):
    """A pending message and its holder; `holder` is None while it is not leased."""

    mailbox: str
    pending: Pending
    holder: str | None = None
    token: int = 0
    deadline: int = 0


def stay_of(mailbox: str, sequence: int, of: Looked) -> Stay | None:
    """The message under this sequence of the mailbox, if it is pending."""
    box = of.state.mailboxes.get(mailbox)
    entry = None if box is None else box.entries.look(sequence)
    return None if entry is None else _stay(mailbox, entry)


def stays_of(message_id: str, of: Looked) -> list[Stay]:
    """Every pending message with this id, of all mailboxes."""
    return [
        _stay(mailbox.address, entry)
        for mailbox in of.state.mailboxes.values()
        for entry in mailbox.entries.values()
        if entry.envelope.id == message_id
    ]


def redriven_as(mailbox: str, dead_sequence: int, of: Looked) -> str:
    """The id of the edited message that went back in a dead letter's place; empty if none did."""
    kept = of.state.letters.find(mailbox, dead_sequence)
    return "" if kept is None else kept.redriven_as


def _stay(mailbox: str, entry: Entry) -> Stay:
    lease = entry.lease
    if lease is None:
        return Stay(mailbox, _pending(entry))
    return Stay(mailbox, _pending(entry), lease.grant.holder, lease.token, lease.deadline)


# -- leases -------------------------------------------------------------------------------------


def mailboxes_of(tokens: Sequence[int], of: Looked) -> dict[int, str]:
    """The mailbox of each token that is still held."""
    leases = of.state.leases
    return {token: leases[token].grant.mailbox for token in tokens if token in leases}


def remote_leases(of: Looked) -> dict[str, list[int]]:
    """The tokens of each remote holder."""
    by_holder: dict[str, list[int]] = {}
    for token, lease in of.state.leases.items():
        if lease.grant.remote:
            by_holder.setdefault(lease.grant.holder, []).append(token)
    return by_holder


# -- counts -------------------------------------------------------------------------------------


def counts_of(addresses: Iterable[str] | None, now: int, of: Looked) -> dict[str, MailboxStats]:
    """Counts of these mailboxes, if they exist, or of all."""
    state = of.state
    boxes = state.mailboxes
    if addresses is not None:
        boxes = {address: boxes[address] for address in addresses if address in boxes}
    return {address: _counts(state, box, now) for address, box in boxes.items()}


def _counts(state: State, box: Mailbox, now: int) -> MailboxStats:
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


def delayed_count(of: Looked) -> int:
    """How many messages wait for their time, in all mailboxes."""
    return sum([box.delayed for box in of.state.mailboxes.values()])


# -- agents -------------------------------------------------------------------------------------


def registrations(of: Looked) -> dict[str, Registration]:
    """Registered agents by address, in the order of registration."""
    return dict(of.state.agents)
