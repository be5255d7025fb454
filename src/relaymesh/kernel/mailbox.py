"""The mailbox: the only kind of queue. An agent has one, a subscription is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from relaymesh.kernel.address import is_subscription
from relaymesh.kernel.breaker import Breaker
from relaymesh.kernel.charges import subscriptions_of
from relaymesh.kernel.entries import Entries, entries_of, runs_of
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.parcel import Parcel, Part
from relaymesh.kernel.pending import DELAYED, READY
from relaymesh.kernel.rate import rate_of
from relaymesh.kernel.schedule import Ready
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.waiter import Waiter

_limits = attrgetter(
    *[name for name in MailboxSettings.__struct_fields__ if name.startswith(("breaker", "rate_"))]
)


class Counters(msgspec.Struct, array_like=True, gc=False):
    """Totals of one mailbox. accepted = acked + dropped + dead + pending, always."""

    accepted: int = 0
    delivered: int = 0
    acked: int = 0
    retried: int = 0
    deferred: int = 0
    dropped: int = 0
    dead: int = 0
    expired: int = 0
    redriven: int = 0
    skipped: int = 0
    """Messages published while its subscription was suspended. They never entered this mailbox."""


class Mailbox:
    """Entries, their lanes, and the receivers that wait for them."""

    __slots__ = (
        "address",
        "answered",
        "askers",
        "breaker",
        "by_priority",
        "bytes",
        "counters",
        "delayed",
        "entries",
        "expected",
        "gated",
        "halted",
        "is_subscription",
        "lanes",
        "leased",
        "owner",
        "owner_budget",
        "payer",
        "rate",
        "ready",
        "settings",
        "waiters",
        "while_asked",
    )

    def __init__(self, address: str, settings: MailboxSettings) -> None:
        self.address = address
        self.is_subscription = is_subscription(address)
        self.settings = settings
        self.owned_by("", 0)
        self.entries = Entries()
        self.bytes = 0
        """The size of its entries: see `Entry.size`."""
        self.by_priority = [0] * 6
        self.leased = 0
        self.delayed = 0
        self.lanes: dict[str, Lane] = {}
        self.ready = Ready(settings, self.entries)
        self.counters = Counters()
        self.halted: dict[int, str] = {}
        """Dead letters that halt a lane until they are redriven or purged: dead sequence to lane key."""
        self.waiters: deque[Waiter] = deque()
        self.askers: dict[str, list[Waiter]] = {}
        """Receivers that wait for a correlation id, the first come first."""
        self.expected: dict[str, list[Entry]] = {}
        """Correlation ids that a receiver expects: their messages are kept apart for it."""
        self.while_asked: set[str] = set()
        """Those of `expected` that end with the last receive that waits for them."""
        self.answered: list[str] = []
        """Correlation ids of expected messages that have arrived."""
        self.limit_anew()

    def limit_anew(self) -> None:
        """The initial breaker (closed) and rate (a full bucket)."""
        self.breaker = Breaker(self.settings)
        self.rate = rate_of(self.settings)
        self.gated = self.rate is not None
        """Whether deliveries are, or may be, held back: see `gate.py`."""

    def configure(self, settings: MailboxSettings) -> None:
        """Change the settings. Breaker and rate restart if theirs changed; one opened by hand stays open."""
        before, self.settings = self.settings, settings
        if _limits(before) != _limits(settings):
            opened_by_hand = self.breaker.until == NEVER
            self.limit_anew()
            if opened_by_hand:
                self.breaker.hold()
                self.gated = True

    # -- entries come and go ------------------------------------------------------------------

    def room_for(self, messages: int, size: int) -> bool:
        settings = self.settings
        return (
            len(self.entries) + messages <= settings.capacity and self.bytes + size <= settings.capacity_bytes
        )

    def fit(self, new: Sequence[Envelope]) -> int:
        """How many of these, from the first, find room."""
        size = 0
        for i, envelope in enumerate(new):
            size += envelope.size
            if not self.room_for(i + 1, size):
                return i
        return len(new)

    def owned_by(self, owner: str, budget: int) -> None:
        """The subscription belongs to this agent; an empty name: it has no owner, and senders pay."""
        self.owner, self.owner_budget = owner, budget
        self.payer = subscriptions_of(owner) if owner else ""

    @property
    def takes_parcels(self) -> bool:
        """Whether messages that arrive together may form a parcel: no receiver may take one out of line."""
        return not self.settings.ordered and not self.expected

    def unpack(self) -> list[Part]:
        """Unpack what must not be a parcel when the mailbox is rebuilt. Returns all that is here."""
        return self.entries.unpack(waiting=not self.takes_parcels)

    # -- lanes --------------------------------------------------------------------------------

    def lane_key(self, envelope: Envelope) -> str | None:
        """The ordering key, else the task, else none. An ordered mailbox is one lane."""
        if self.settings.ordered:
            return ""
        if envelope.key is not None:
            return "k" + envelope.key
        return None if envelope.task is None else "t" + envelope.task

    def lane_of(self, entry: Entry) -> Lane | None:
        """The lane of the entry, made on first use. None for an expected message: its receiver takes it out
        of line.
        """
        envelope = entry.envelope
        key = self.lane_key(envelope)
        if key is None or envelope.correlation_id in self.expected:
            return None
        return self._lane(key)

    def _lane(self, key: str) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        return lane

    def halt(self, key: str, dead_sequence: int, *, live: bool) -> None:
        """Halt the lane until this dead letter, and every other that halted it, is redriven or purged."""
        self.halted[dead_sequence] = key
        if live:
            self._lane(key).halted += 1

    def resume(self, dead_sequence: int, *, live: bool) -> None:
        key = self.halted.pop(dead_sequence, None)
        if key is not None and live:
            lane = self._lane(key)
            lane.halted -= 1
            self.reopen(lane)

    def reopen(self, lane: Lane) -> None:
        """An entry left the lane or came back: its head may go now, or it is empty."""
        if lane.runnable:
            self.ready.push_lane(lane)
        elif lane.idle:
            self.lanes.pop(lane.key, None)
            if lane.place is not None:
                lane.place = None
                self.ready.gone(1)

    # -- readiness (volatile) -----------------------------------------------------------------

    def make_ready(self, entry: Entry) -> None:
        """The entry may be delivered from now on: in its lane, to the receiver that expects it, or to any
        receiver.
        """
        lane = entry.lane
        if lane is None:
            lane = self.lane_of(entry)
            if lane is None:
                self._offer(entry)
                return
            entry.lane = lane
            lane.join(entry)
            if lane.place is not None and entry.priority >= lane.place[0] and lane.waiting[0] is not entry:
                return  # it is already in the right position
        if lane.runnable:
            self.ready.push_lane(lane)

    def make_all_ready(self, entries: list[Entry]) -> None:
        """`make_ready` for new entries, in order. Most have no lane."""
        plain = [e for e in entries if e.envelope.key is None and e.envelope.task is None]
        if self.settings.ordered or len(plain) < len(entries):
            for entry in entries:
                self.make_ready(entry)
        else:
            self._offer_all(entries)

    def _offer_all(self, entries: list[Entry]) -> None:
        if not self.expected:
            self.ready.push_all(entries)
            return
        for entry in entries:
            self._offer(entry)

    def _offer(self, entry: Entry) -> None:
        correlation = entry.envelope.correlation_id
        if correlation is not None and correlation in self.expected:
            self.expected[correlation].append(entry)
            if correlation in self.askers:
                self.answered.append(correlation)
        else:
            self.ready.push(entry)

    def set_apart(self, entries: list[Entry]) -> list[Entry]:
        """Take waiting entries out of their lanes and the ready queues. Returns those that are ready."""
        swept = False
        for entry in entries:
            lane, entry.lane = entry.lane, None
            if lane is not None:
                lane.withdraw(entry)
                self.reopen(lane)
            elif entry.queued:
                entry.queued, swept = 0, True
        if swept:
            self.ready.sweep()
        return [entry for entry in entries if entry.state == READY]

    def rebuild(self) -> None:
        """Rebuild lanes and ready queues from the entries: after a replay, or for another schedule."""
        starved = self.ready.low_starvation_count
        parts = self.unpack()
        self.ready = Ready(self.settings, self.entries)
        self.ready.low_starvation_count = starved
        self.lanes = {}
        for key in self.halted.values():
            self._lane(key).halted += 1
        for answers in self.expected.values():
            answers.clear()
        waiting = self._sort_into_lanes(parts)
        waiting.sort(key=attrgetter("ready_at", "sequence"))
        for run in runs_of(waiting):
            if isinstance(run, Parcel):
                self.ready.push_parcel(run)
            else:
                self._offer_all(run)
        for lane in self.lanes.values():
            if lane.runnable:
                self.ready.push_lane(lane)

    def _sort_into_lanes(self, parts: list[Part]) -> list[Part]:
        """Put entries into their lanes. Returns what waits in no lane."""
        waiting: list[Part] = []
        ordered = self.settings.ordered
        for entry in sorted(parts, key=attrgetter("due_at")):
            if isinstance(entry, Parcel):
                waiting.append(entry)
                continue
            entry.queued = 0
            entry.lane = None
            if entry.state == DELAYED and entry.ready_at == entry.due_at:
                continue
            envelope = entry.envelope
            alone = not ordered and envelope.key is None and envelope.task is None
            lane = entry.lane = None if alone else self.lane_of(entry)
            if entry.lease is not None:
                if lane is not None:
                    lane.out[entry.lease.token] = entry.lease
            elif lane is not None:
                lane.join(entry)
            elif entry.state == READY:
                waiting.append(entry)
        return waiting

    # -- deliveries ---------------------------------------------------------------------------

    def pick(self, now: int, limit: int) -> tuple[list[Part], list[Entry]]:
        """Up to `limit` messages to deliver, in order, and the expired ones found on the way.

        A lane gives one entry and competes again for its next, so it may have `limit` out. Where a dead
        letter halts its lane, nothing is picked beyond an expired entry of a lane.
        """
        ready = self.ready
        expired: list[Entry] = []
        picked: list[Part] = []
        count = 0
        for part in ready.pop_parts(limit):
            expires = part.expires_at
            if expires and expires <= now:
                expired += entries_of([part], self.entries)
            else:
                picked.append(part)
                count += part.count
        halting = self.settings.halt_on_dead_letter
        while count < limit:
            item = ready.pop()
            if item is None:
                break
            if isinstance(item, Lane):
                entry = item.take()
                if item.runnable:
                    ready.push_lane(item)
            else:
                entry = item
            ttl = entry.envelope.ttl_ms
            if not ttl or entry.due_at + ttl > now or entry.expires_at > now:
                picked.append(entry)
                count += 1
            else:
                expired.append(entry)
                if halting and entry.lane is not None:
                    break
        return picked, expired

    def first_expected(self, correlation_id: str) -> Entry | None:
        """The expected message with this correlation id, if it has arrived."""
        waiting = [entry for entry in self.expected.get(correlation_id, ()) if entry.state == READY]
        if not waiting:
            return None
        first = min(waiting, key=attrgetter("ready_at", "sequence"))
        waiting.remove(first)
        self.expected[correlation_id] = waiting
        return first

    def leases_after(self, lease: Lease) -> list[Lease]:
        """The later deliveries of the same lane, which must be returned together with this one."""
        lane = lease.entry.lane
        return [] if lane is None else lane.leases_after(lease)
