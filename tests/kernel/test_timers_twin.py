"""`DueTimes`, `Expiry` and `LeaseClock`, which delete lazily, against lists that are searched."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relaymesh.kernel import timers
from relaymesh.kernel.entry import Entry, Grant, Lease, Leases
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.pending import DELAYED, LEASED, READY
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.timers import SWEEP_MIN, DueTimes, Expiry, LeaseClock
from tests.kernel.driver import letter

BOXES = [Mailbox(f"default/{name}", MailboxSettings()) for name in "ab"]
times = st.integers(0, 5_000)
STRESS = settings(max_examples=60, stateful_step_count=40, deadline=None)


class SmallSweeps(RuleBasedStateMachine):
    """With a low threshold, so that sweeps happen."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(timers, "SWEEP_MIN", 3)
        self.now = 0
        self.sequence = 0

    def teardown(self) -> None:
        self.patch.undo()
        for box in BOXES:
            box.entries.by_sequence.clear()

    def entry(self, box: Mailbox, due: int, ttl_ms: int = 0) -> Entry:
        self.sequence += 1
        entry = Entry(letter(ttl_ms=ttl_ms), self.sequence, 0, due, due, 0, 3, DELAYED)
        box.entries[entry.sequence] = entry
        return entry


class DueTimesAndTwin(SmallSweeps):
    def __init__(self) -> None:
        super().__init__()
        self.due = DueTimes()
        self.twin: list[tuple[Mailbox, Entry]] = []

    @rule(delay=times, box=st.sampled_from(BOXES))
    def add(self, delay: int, box: Mailbox) -> None:
        entry = self.entry(box, self.now + delay)
        self.due.add(box, entry)
        self.twin.append((box, entry))

    @precondition(lambda self: self.twin)
    @rule(data=st.data(), count=st.integers(1, 5))
    def leave(self, data: st.DataObject, count: int) -> None:
        for item in data.draw(st.permutations(self.twin))[:count]:
            self.twin.remove(item)
            del item[0].entries[item[1].sequence]
            self.due.gone(1)

    @rule(step=times)
    def pass_time(self, step: int) -> None:
        self.now += step
        due = [item for item in self.twin if item[1].ready_at <= self.now]
        due.sort(key=lambda item: (item[1].ready_at, item[1].sequence))
        popped = []
        for item in self.due.pop_due(self.now):
            item[1].state = READY
            popped.append(item)
        assert popped == due
        self.twin = [item for item in self.twin if item not in due]

    @invariant()
    def they_agree(self) -> None:
        first = min((entry.ready_at for _, entry in self.twin), default=NEVER)
        assert self.due.next <= first
        assert len(self.due) <= max(2 * len(self.twin), len(self.twin) + 4)


class ExpiryAndTwin(SmallSweeps):
    def __init__(self) -> None:
        super().__init__()
        self.expiry = Expiry()
        self.twin: list[tuple[Mailbox, Entry]] = []

    @rule(ttls=st.lists(st.sampled_from([0, 1, 500, 1_024, 3_000]), max_size=5), box=st.sampled_from(BOXES))
    def add(self, ttls: list[int], box: Mailbox) -> None:
        entries = [self.entry(box, self.now, ttl) for ttl in ttls]
        for entry in entries:
            entry.state = READY
        self.expiry.add(box, entries)
        self.twin += [(box, entry) for entry in entries]

    @precondition(lambda self: self.twin)
    @rule(data=st.data(), count=st.integers(1, 5))
    def settle(self, data: st.DataObject, count: int) -> None:
        gone = data.draw(st.permutations(self.twin))[:count]
        for item in gone:
            self.twin.remove(item)
            del item[0].entries[item[1].sequence]
        self.expiry.settled(len(gone))

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.twin))[1].state = LEASED

    @precondition(lambda self: any(entry.state == LEASED for _, entry in self.twin))
    @rule(data=st.data(), wait=st.sampled_from([0, 0, 1, 700, 5_000]))
    def come_back(self, data: st.DataObject, wait: int) -> None:
        out = [item for item in self.twin if item[1].state == LEASED]
        box, entry = data.draw(st.sampled_from(out))
        entry.state = READY
        entry.wait_for(wait)
        self.expiry.returned(box, entry, self.now)

    @rule(step=times)
    def pass_time(self, step: int) -> None:
        self.now += step
        popped = self.expiry.pop_expired(self.now)
        found = [(box, entry) for box, entries in popped for entry in entries]
        over = [
            (box, entry)
            for box, entry in self.twin
            if entry.expires_at and entry.state == READY and (entry.expires_at // 1024 + 1) * 1024 <= self.now
        ]
        assert sorted(found, key=lambda item: item[1].sequence) == over
        self.twin = [item for item in self.twin if item not in over]
        for box, entry in found:
            del box.entries[entry.sequence]
        self.expiry.settled(len(found))

    @invariant()
    def they_agree(self) -> None:
        waiting = [entry.expires_at for _, entry in self.twin if entry.expires_at and entry.state == READY]
        assert all(self.expiry.next <= expires + 2_048 for expires in waiting)


class LeaseClockAndTwin(SmallSweeps):
    def __init__(self) -> None:
        super().__init__()
        self.leases: Leases = {}
        self.clock = LeaseClock(self.leases)
        self.twin: list[Lease] = []

    @rule(length=times, count=st.integers(1, 4))
    def grant(self, length: int, count: int) -> None:
        grant = Grant("box", "holder", self.now + length, length)
        for _ in range(count):
            entry = self.entry(BOXES[0], self.now)
            lease = Lease(self.sequence, entry, 1, grant.deadline, grant)
            self.leases[lease.token] = lease
            grant.tokens = [*grant.tokens, lease.token]
            grant.held += 1
            self.twin.append(lease)
        self.clock.add(grant)

    def end(self, lease: Lease) -> None:
        self.twin.remove(lease)
        lease.grant.held -= 1
        del self.leases[lease.token]

    @precondition(lambda self: self.twin)
    @rule(data=st.data(), count=st.integers(1, 5))
    def settle(self, data: st.DataObject, count: int) -> None:
        for lease in data.draw(st.permutations(self.twin))[:count]:
            self.end(lease)

    @precondition(lambda self: self.twin)
    @rule(data=st.data(), ms=st.integers(1, 5_000))
    def extend(self, data: st.DataObject, ms: int) -> None:
        lease = data.draw(st.sampled_from(self.twin))
        if self.now + ms > lease.deadline:
            lease.deadline = self.now + ms
            self.clock.extend(lease)

    @rule(step=times)
    def pass_time(self, step: int) -> None:
        self.now += step
        popped = self.clock.pop_expired(self.now)
        over = [lease for lease in self.twin if lease.deadline <= self.now]
        assert sorted(popped, key=lambda lease: lease.token) == over
        assert [lease.deadline for lease in popped] == sorted(lease.deadline for lease in popped)
        for lease in popped:
            self.end(lease)

    @invariant()
    def they_agree(self) -> None:
        assert self.clock.next <= min((lease.deadline for lease in self.twin), default=NEVER)


for machine in (DueTimesAndTwin, ExpiryAndTwin, LeaseClockAndTwin):
    machine.TestCase.settings = STRESS
TestDueTimesAndTwin = DueTimesAndTwin.TestCase
TestExpiryAndTwin = ExpiryAndTwin.TestCase
TestLeaseClockAndTwin = LeaseClockAndTwin.TestCase


def test_expiry_lets_go_of_what_is_settled_and_of_the_times_it_stood_for() -> None:
    expiry = Expiry()
    box = BOXES[0]
    for i in range(10 * SWEEP_MIN):
        entry = box.entries[i] = Entry(letter(ttl_ms=1 + i * 10_000), i, 0, 0, 0, 0, 3)
        expiry.add(box, [entry])
        del box.entries[i]
        expiry.settled(1)
    assert len(expiry) <= 2 * SWEEP_MIN
    assert len(expiry._keys) <= 2 * SWEEP_MIN
    assert len(expiry._buckets) == len(expiry._keys)


def test_one_lease_that_is_held_for_long_does_not_keep_the_grants_after_it() -> None:
    leases: Leases = {}
    clock = LeaseClock(leases)
    kept: list[Lease] = []
    for i in range(10 * SWEEP_MIN):
        entry = Entry(letter(), i, 0, 0, 0, 0, 3)
        grant = Grant("box", "holder", 60_000 + i, 60_000)
        lease = Lease(i, entry, 1, grant.deadline, grant)
        if i == 0:
            leases[0] = lease
            grant.tokens, grant.held = [0], 1
            kept.append(lease)
        clock.add(grant)
    assert len(clock) <= 2 * SWEEP_MIN
    assert clock.pop_expired(60_000) == kept


def test_a_lease_extended_again_and_again_stands_there_a_bounded_number_of_times() -> None:
    leases: Leases = {}
    clock = LeaseClock(leases)
    entry = Entry(letter(), 0, 0, 0, 0, 0, 3)
    lease = Lease(7, entry, 1, 0, Grant("box", "holder", 0, 0))
    leases[7] = lease
    for i in range(10 * SWEEP_MIN):
        lease.deadline = 10_000_000 + i
        clock.extend(lease)
    assert len(clock) <= SWEEP_MIN
    assert clock.pop_expired(lease.deadline) == [lease]
