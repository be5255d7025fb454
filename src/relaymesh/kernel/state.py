"""The durable state and the one function that changes it: `State.apply(record)`.

The same code runs live and in recovery. The difference is what a restart rebuilds anyway: while `live` is
false, ready queues, lanes, timers and waiters are not updated, and `go_live` builds them from the entries.
Nothing in this file decides anything: every time, every retry and every verdict is read from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from relaymesh.kernel.charges import Charges, payer_of
from relaymesh.kernel.dead_letters import DeadLetter, DeadLetters, letter_of
from relaymesh.kernel.dedup import Admitted, Seen, content_digest, topic_target
from relaymesh.kernel.entries import entries_of, runs_of
from relaymesh.kernel.entry import Entry, Grant, Lease, Leases, new_entries
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Parcel, Part, alike
from relaymesh.kernel.pending import DELAYED, READY, SETTLED
from relaymesh.kernel.records import (
    BURNING,
    Accepted,
    Acked,
    AgentRegistered,
    AnyRecord,
    Completed,
    DeadLettered,
    DeadLettersPurged,
    DelayedForced,
    Dropped,
    EpochStarted,
    Granted,
    MailboxOpened,
    Published,
    Redriven,
    Reprioritised,
    Resumed,
    Returned,
    Subscribed,
    Suspended,
    Unsubscribed,
)
from relaymesh.kernel.registration import Registration, registration_of
from relaymesh.kernel.schedules.schedules import Schedules
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.effects import task_effects
from relaymesh.kernel.tasks.stored import StoredWorkflows
from relaymesh.kernel.timers import DueTimes, Expiry, LeaseClock, Wakes
from relaymesh.kernel.token import TOKEN_COUNTER_BITS
from relaymesh.kernel.topics import Subscriptions

ASKED = frozenset({"nack", "deferred"})
"""Returns whose `due` was set by a nack: the TTL does not count the wait until then."""


class State:
    """Everything that one partition knows. No globals: a process may hold many."""

    def __init__(self) -> None:
        self.sequence = 0
        self.now = 0
        self.epoch = self.partition = 0
        self.next_token = 1
        self.unrouted = 0
        self.duplicates = 0
        """Volatile. Messages that were sent before and not queued again."""
        self.mailboxes: dict[str, Mailbox] = {}
        self.subscriptions = Subscriptions()
        self.agents: dict[str, Registration] = {}
        """Registered agents by address, in the order of registration."""
        self.leases: Leases = {}
        """By token. Volatile, like every index: while replaying, only the entry knows its lease."""
        self.admitted = Admitted()
        self.letters = DeadLetters()
        self.charges = Charges()
        """Volatile. The bytes kept here, by payer."""
        self.board = Board(self.charges)
        """Live tasks."""
        self.workflows = StoredWorkflows(self.charges)
        self.schedules = Schedules(self.charges)

        self.live = self.stopped = False
        self.reclaim_at = 0
        """No lease expires before this time."""
        self.due = DueTimes()
        self.expiry = Expiry()
        self.lease_clock = LeaseClock(self.leases)
        self.wakes = Wakes()
        self.wanted: dict[Mailbox, None] = {}
        """Mailboxes with waiters that can perhaps be served now."""
        self.keep: Callable[[Mailbox, Part], None] | None = None
        """While a snapshot is taken: called with an entry, or a parcel, before it changes."""
        self._apply: dict[type, Callable[[Any], Any]] = {
            EpochStarted: self._epoch_started,
            MailboxOpened: self._mailbox_opened,
            Subscribed: self._subscribed,
            Unsubscribed: self._unsubscribed,
            Accepted: self._accepted,
            Published: self._published,
            Granted: self._granted,
            Acked: self._acked,
            Dropped: self._dropped,
            Returned: self._returned,
            DeadLettered: self._dead_lettered,
            Redriven: self._redriven,
            DeadLettersPurged: self._dead_letters_purged,
            Reprioritised: self._reprioritised,
            DelayedForced: self._delayed_forced,
            Completed: self._completed,
            Suspended: lambda record: self.subscriptions.suspend(record.mailbox, record.reason),
            Resumed: lambda record: self.subscriptions.resume(record.mailbox),
            AgentRegistered: self._agent_registered,
            **task_effects(self),
            **self.workflows.effects(self),
            **self.schedules.effects(self),
        }

    def apply(self, record: AnyRecord) -> Any:
        """Change the state by one record. Returns what the record itself does not hold (for projections)."""
        self.now = record.at if record.at > self.now else self.now  # noqa: FURB136 - hot: no call
        detail = self._apply[record.__class__](record)
        self.sequence += record.count
        return detail

    def skip(self, events: int) -> None:
        """A record from a newer version that may be ignored still used up its sequences."""
        self.sequence += events

    def go_live(self) -> None:
        """After a replay: build the volatile parts."""
        self.live, self.stopped = True, False
        self.leases = {}
        self.due, self.expiry, self.lease_clock = DueTimes(), Expiry(), LeaseClock(self.leases)
        self.wakes = Wakes()
        for mailbox in self.mailboxes.values():
            parts = mailbox.unpack()
            for part in parts:
                if isinstance(part, Parcel):
                    continue
                if part.lease is not None:
                    self._index(part.lease)
                elif part.state == DELAYED:
                    if part.ready_at <= self.now:
                        self._fall_due(mailbox, part)
                    else:
                        self.due.add(mailbox, part)
            mailbox.rebuild()
            mailbox.limit_anew()
            for run in runs_of(parts):
                if isinstance(run, Parcel):
                    self.expiry.add_parcel(mailbox, run)
                else:
                    self.expiry.add(mailbox, run)
        self.charges.count(self.letters, self.mailboxes.values())
        self.board.go_live()
        self.workflows.go_live()
        self.schedules.go_live()

    def _index(self, lease: Lease) -> None:
        self.leases[lease.token] = lease
        lease.grant.held += 1
        self.lease_clock.extend(lease)

    def _fall_due(self, mailbox: Mailbox, entry: Entry) -> None:
        if entry.ready_at == entry.due_at:
            mailbox.delayed -= 1
        entry.state = READY

    # -- mailboxes ----------------------------------------------------------------------------

    def _epoch_started(self, record: EpochStarted) -> None:
        self.epoch = record.epoch
        self.partition = record.partition
        self.next_token = record.epoch << TOKEN_COUNTER_BITS | 1

    def _mailbox_opened(self, record: MailboxOpened) -> None:
        mailbox = self.mailboxes.get(record.mailbox)
        if mailbox is None:
            mailbox = self.mailboxes[record.mailbox] = Mailbox(record.mailbox, record.settings)
            self.charges.mailbox(mailbox, 1)
            return
        before = mailbox.settings
        mailbox.configure(record.settings)
        if self.live:
            mailbox.ready.configure(record.settings)
            self.want(mailbox)
            if (before.ordered, before.schedule) != (record.settings.ordered, record.settings.schedule):
                mailbox.rebuild()

    def _subscribed(self, record: Subscribed) -> None:
        self._mailbox_opened(MailboxOpened(1, record.at, record.mailbox, record.settings))
        self.subscriptions.add(record.mailbox, record.pattern)
        mailbox = self.mailboxes[record.mailbox]
        self.charges.mailbox(mailbox, -1)
        mailbox.owned_by(record.owner, record.owner_budget)
        self.charges.mailbox(mailbox, 1)

    def _unsubscribed(self, record: Unsubscribed) -> None:
        self.subscriptions.remove(record.mailbox)
        self.charges.mailbox(self.mailboxes.pop(record.mailbox), -1)

    def _agent_registered(self, record: AgentRegistered) -> None:
        self.agents[record.mailbox] = registration_of(record, self.agents.get(record.mailbox))

    # -- messages come in ---------------------------------------------------------------------

    def _accepted(self, record: Accepted) -> None:
        mailbox, envelopes = self.mailboxes[record.mailbox], record.envelopes
        first = self.sequence
        ids = [envelope.id for envelope in envelopes]
        self.admitted.of(record.mailbox).update(zip(ids, range(first, first + len(ids)), strict=True))
        self._come_in(mailbox, envelopes, record.at, None)

    def _published(self, record: Published) -> tuple[str, ...]:
        at = record.at
        target = topic_target(record.topic)
        route = self.subscriptions.route(record.topic)
        if not route:
            self.unrouted += record.count
        for i, envelope in enumerate(record.envelopes):
            due = at + max(0, envelope.delay_ms)
            sender = self.admitted.senders.shared(envelope.sender)
            seen = Seen(self.sequence + i, at, content_digest(envelope), len(route), due, sender)
            self.admitted.remember(target, envelope.id, seen)
        for address in route:
            self._come_in(self.mailboxes[address], record.envelopes, at, record.topic)
        for address in self.subscriptions.skipped(record.topic):
            self.mailboxes[address].counters.skipped += record.count
        return route

    def _redriven(self, record: Redriven) -> int:
        letter = self.letters.find(record.source, record.dead_sequence)
        assert letter is not None, "a redrive names a dead letter that is there"
        self.letters.mark_redriven(letter, record.envelope.id)
        at = record.at
        entry = Entry(record.envelope, self.sequence, at, at, at, self.sequence, record.envelope.priority)
        entry.redrives = letter.redrives + 1
        if record.mailbox == record.source:
            entry.topic = letter.topic
        self._resume(letter)
        if self.board.letters:
            self.board.redriven(record, self.sequence)
        mailbox = self.mailboxes[record.mailbox]
        mailbox.counters.redriven += 1
        self._enter(mailbox, [entry])
        return entry.redrives

    def _come_in(self, mailbox: Mailbox, envelopes: list[Envelope], at: int, topic: str | None) -> None:
        """New messages, with sequences from here on, into one mailbox: as a parcel if possible."""
        sequence = self.sequence
        if mailbox.takes_parcels and alike(envelopes):
            self._enter_parcel(mailbox, Parcel(mailbox.entries, sequence, at, list(envelopes), topic))
            return
        self._enter(mailbox, new_entries(envelopes, sequence, at, topic))

    def _enter_parcel(self, mailbox: Mailbox, parcel: Parcel) -> None:
        mailbox.counters.accepted += parcel.count
        mailbox.entries.enter(parcel)
        mailbox.bytes += parcel.bytes
        mailbox.by_priority[parcel.priority] += parcel.count
        if self.live:
            self.charges.parcel(mailbox, parcel, 1)
            mailbox.ready.push_parcel(parcel)
            self.want(mailbox)
            self.expiry.add_parcel(mailbox, parcel)

    def _enter(self, mailbox: Mailbox, entries: list[Entry]) -> None:
        """New entries, in order, into one mailbox."""
        mailbox.counters.accepted += len(entries)
        home = mailbox.entries
        by_priority = mailbox.by_priority
        delayed: list[Entry] = []
        size = 0
        for entry in entries:
            home[entry.sequence] = entry
            envelope = entry.envelope
            size += envelope.size if envelope.extra or envelope.encoding > 1 else len(envelope.content)
            by_priority[entry.priority] += 1
            if entry.state == DELAYED:
                delayed.append(entry)
        mailbox.bytes += size
        mailbox.delayed += len(delayed)
        if self.live:
            self.charges.entries(mailbox, entries, size, 1)
            for entry in delayed:
                self.due.add(mailbox, entry)
            mailbox.make_all_ready([e for e in entries if e.state == READY] if delayed else entries)
            self.want(mailbox)
            self.expiry.add(mailbox, entries)

    def arrive(self, mailbox: Mailbox, entry: Entry) -> None:
        """A delayed entry is due. Live only: no record says so, the clock does."""
        self._fall_due(mailbox, entry)
        self.offer(mailbox, entry)

    def offer(self, mailbox: Mailbox, entry: Entry) -> None:
        """A ready entry may be delivered, and a receiver may wait for it. Live only."""
        mailbox.make_ready(entry)
        self.want(mailbox)

    def want(self, mailbox: Mailbox) -> None:
        """Serve the receivers that wait there, at the end of this step. Live only."""
        if mailbox.waiters or mailbox.askers:
            self.wanted[mailbox] = None

    # -- deliveries ---------------------------------------------------------------------------

    def lease(self, token: int) -> Lease | None:
        """The lease of one message: its parcel is unpacked. Live only."""
        lease = self.leases.get(token)
        return lease.lease_of(token) if isinstance(lease, Parcel) else lease

    def _granted(self, record: Granted) -> None:
        mailbox = self.mailboxes[record.mailbox]
        keep, live = self.keep, self.live
        leases = self.leases if live else None
        grants: dict[int, Grant] = {}
        token = record.token
        board = self.board if self.board.links else None
        for part in mailbox.entries.ready_parts(record.sequences):
            if keep is not None:
                keep(mailbox, part)
            length = record.lease_ms or mailbox.settings.lease_for(part.priority)
            if board is not None:
                length = board.lease_ms(part.sequences[0], record.lease_ms) or length
            grant = grants.get(length)
            if grant is None:
                grant = grants[length] = Grant(
                    record.mailbox, record.holder, record.at + length, length, record.remote
                )
            if part.state == DELAYED:
                assert isinstance(part, Entry)  # a delayed entry is in no parcel
                self._fall_due(mailbox, part)
            part.lend(token, grant, leases)
            token += part.count
        self.next_token = token
        if board is not None:
            board.granted(record)
        mailbox.leased += record.count
        mailbox.counters.delivered += record.count
        if live:
            tokens = (record.token,) if record.count == 1 else range(record.token, token)
            for grant in grants.values():
                grant.tokens = tokens
                if len(grants) > 1:
                    grant.tokens = [each for each in tokens if self.leases[each].grant is grant]
                grant.held = len(grant.tokens)
                self.lease_clock.add(grant)

    def _let_go(self, mailbox: Mailbox, entry: Entry) -> None:
        """End the entry's lease, if it has one, and cut the links between them."""
        lease = entry.lease
        if lease is not None:
            if self.live:
                del self.leases[lease.token]
                lease.grant.held -= 1
            entry.lease = None
            mailbox.leased -= 1

    def _returned(self, record: Returned) -> None:
        mailbox = self.mailboxes[record.mailbox]
        burned = record.cause in BURNING
        by_lane: dict[Lane, list[Entry]] = {}
        for i, sequence in enumerate(record.sequences):
            entry = mailbox.entries.take_out(sequence)
            if self.keep is not None:
                self.keep(mailbox, entry)
            if entry.lane is not None and entry.lease is not None:
                del entry.lane.out[entry.lease.token]
                by_lane.setdefault(entry.lane, []).append(entry)
            self._let_go(mailbox, entry)
            failure = record.failures[i] if record.failures else None
            if failure is not None:
                more = entry.fail(failure)
                mailbox.bytes += more
                self.charges.failure(mailbox, entry, more)
            if not burned:
                entry.attempts -= 1
            if record.cause == "deferred":
                entry.deferrals += 1
            if record.cause in ASKED:
                entry.wait_for(record.due[i] - record.at)
            entry.ready_at = max(record.due[i], entry.due_at)
            entry.ready_sequence = self.sequence + i
            entry.state = DELAYED if entry.ready_at > record.at else READY
        if self.board.links:
            self.board.returned(record)
        if burned:
            mailbox.counters.retried += record.count
        elif record.cause == "deferred":
            mailbox.counters.deferred += record.count
        if self.live:
            self._wait_again(mailbox, record, by_lane)

    def _wait_again(self, mailbox: Mailbox, record: Returned, by_lane: dict[Lane, list[Entry]]) -> None:
        for lane, entries in by_lane.items():
            lane.put_back(entries)
        for sequence in record.sequences:
            entry = mailbox.entries.take_out(sequence)
            if entry.state == DELAYED:
                self.due.add(mailbox, entry)
            else:
                mailbox.make_ready(entry)
            self.expiry.returned(mailbox, entry, record.at)
        for lane in by_lane:
            mailbox.reopen(lane)
        self.want(mailbox)

    # -- entries are settled ------------------------------------------------------------------

    def _settle(self, mailbox: Mailbox, entries: list[Entry]) -> None:
        """Remove them from the mailbox, its lanes, queues and leases; remember their ids."""
        keep, live, leases, home = self.keep, self.live, self.leases, mailbox.entries
        lanes: dict[Lane, None] = {}
        settled: list[Entry] = []
        known = self.admitted.of(mailbox.address)
        by_priority = mailbox.by_priority
        size = leased = 0
        for entry in entries:
            if keep is not None:
                keep(mailbox, entry)
            if entry.lane is not None:
                entry.lane.discard(entry)
                lanes[entry.lane] = None
            lease = entry.lease
            if lease is not None:
                if live:
                    del leases[lease.token]
                    lease.grant.held -= 1
                entry.lease = None
                leased += 1
            elif live:
                self._leave_queue(mailbox, entry)
            del home[entry.sequence]
            envelope = entry.envelope
            plain = envelope.extra is None and envelope.encoding < 2 and not entry.failures
            size += len(envelope.content) if plain else entry.size
            by_priority[entry.priority] -= 1
            if entry.state == DELAYED and entry.ready_at == entry.due_at:
                mailbox.delayed -= 1
            entry.lane, entry.state = None, SETTLED
            if known.get(envelope.id) == entry.sequence:
                settled.append(entry)
        mailbox.bytes -= size
        mailbox.leased -= leased
        self.admitted.settle(mailbox.address, settled)
        for lane in lanes:
            mailbox.reopen(lane)
        if lanes:
            self.want(mailbox)
        if live:
            self.charges.entries(mailbox, entries, size, -1)
            self.expiry.settled(len(entries))

    def _settle_parcel(self, mailbox: Mailbox, parcel: Parcel) -> None:
        """`_settle` for a parcel that is leased."""
        if self.keep is not None:
            self.keep(mailbox, parcel)
        if parcel.admitted and not self.admitted.settle_parcel(mailbox.address, parcel):
            self._settle(mailbox, entries_of([parcel], mailbox.entries))
            return
        mailbox.entries.leave(parcel)
        mailbox.bytes -= parcel.bytes
        mailbox.leased -= parcel.count
        mailbox.by_priority[parcel.priority] -= parcel.count
        if self.live:
            self.charges.parcel(mailbox, parcel, -1)
            self.expiry.settled(parcel.count)
        parcel.end()

    def _leave_queue(self, mailbox: Mailbox, entry: Entry) -> None:
        """Mark the queue slot of a still-waiting entry as stale. Live only."""
        if entry.state == DELAYED:
            self.due.gone(1)
        if entry.queued and entry.lane is None:
            entry.queued = 0
            mailbox.ready.gone(1)

    def _acked(self, record: Acked) -> None:
        mailbox = self.mailboxes[record.mailbox]
        entries: list[Entry] = []
        for part in mailbox.entries.leased_parts(record.sequences):
            if isinstance(part, Parcel):
                if entries:
                    self._settle(mailbox, entries)
                    entries = []
                self._settle_parcel(mailbox, part)
            else:
                entries.append(part)
        if entries:
            self._settle(mailbox, entries)
        if self.board.links or self.board.questions:
            self.board.acked(record.sequences, record.at)
        mailbox.counters.acked += record.count

    def _dropped(self, record: Dropped) -> None:
        mailbox = self.mailboxes[record.mailbox]
        home = mailbox.entries
        self._settle(mailbox, [home.take_out(sequence) for sequence in record.sequences])
        if self.board.links or self.board.questions:
            self.board.dropped(record)
        mailbox.counters.dropped += record.count

    def _dead_lettered(self, record: DeadLettered) -> list[DeadLetter]:
        mailbox = self.mailboxes[record.mailbox]
        letters: list[DeadLetter] = []
        entries = [mailbox.entries.take_out(sequence) for sequence in record.sequences]
        for i, entry in enumerate(entries):
            failure = record.failures[i] if record.failures else None
            payer = payer_of(entry.envelope, mailbox.address, mailbox.payer)
            died = self.sequence + i
            letter = letter_of(mailbox.address, entry, failure, record.reason, died, record.at, payer)
            if mailbox.settings.halt_on_dead_letter:
                key = mailbox.lane_key(entry.envelope)
                if key is not None:
                    mailbox.halt(key, letter.dead_sequence, live=self.live)
            self.letters.add(letter)
            letters.append(letter)
            self.charges.letter(letter, 1)
        self._settle(mailbox, entries)
        if self.board.links or self.board.questions:
            self.board.died(record, self.sequence)
        mailbox.counters.dead += record.count
        if record.reason == "ttl_expired":
            mailbox.counters.expired += record.count
        return letters

    def _dead_letters_purged(self, record: DeadLettersPurged) -> None:
        for dead_sequence in record.dead_sequences:
            letter = self.letters.remove(record.mailbox, dead_sequence)
            if letter is not None:
                self.charges.letter(letter, -1)
                self._resume(letter)
                if self.board.letters:
                    self.board.purged(record.mailbox, dead_sequence, record.at)

    def _resume(self, letter: DeadLetter) -> None:
        mailbox = self.mailboxes.get(letter.mailbox)
        if mailbox is not None:
            mailbox.resume(letter.dead_sequence, live=self.live)
            if self.live:
                self.want(mailbox)

    # -- pending entries change ---------------------------------------------------------------

    def _changing(self, mailbox: Mailbox, sequences: Iterable[int]) -> Iterable[Entry]:
        for sequence in sequences:
            entry = mailbox.entries.take_out(sequence)
            if self.keep is not None:
                self.keep(mailbox, entry)
            yield entry

    def _reprioritised(self, record: Reprioritised) -> None:
        mailbox = self.mailboxes[record.mailbox]
        lanes: dict[Lane, None] = {}
        moved: list[Entry] = []
        for entry in self._changing(mailbox, record.sequences):
            mailbox.by_priority[entry.priority] -= 1
            mailbox.by_priority[record.priority] += 1
            if entry.lane is not None and entry.queued:
                entry.lane.change_priority(entry, record.priority)
                lanes[entry.lane] = None
            elif entry.queued:
                entry.queued = 0
                moved.append(entry)
            entry.priority = record.priority
        if moved:
            mailbox.ready.sweep()
            for entry in moved:
                mailbox.ready.push(entry)
        for lane in lanes:
            mailbox.reopen(lane)

    def _delayed_forced(self, record: DelayedForced) -> None:
        mailbox = self.mailboxes[record.mailbox]
        for i, entry in enumerate(self._changing(mailbox, record.sequences)):
            self._fall_due(mailbox, entry)
            entry.due_at = entry.ready_at = record.at
            entry.ready_sequence = self.sequence + i
            if self.live:
                mailbox.make_ready(entry)
                self.expiry.add(mailbox, [entry])
        if self.live:
            self.due.gone(record.count)
            self.want(mailbox)

    def _completed(self, record: Completed) -> None:
        for entry in self._changing(self.mailboxes[record.mailbox], record.sequences):
            entry.completed = True
