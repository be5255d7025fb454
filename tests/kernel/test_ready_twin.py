"""`Ready`, five queues with heaps beside them, against a list that is searched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relaymesh.kernel.entries import Entries, sequences_of
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.pending import DELAYED
from relaymesh.kernel.schedule import Ready
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import letter

TIERS = ([1, 2], [3], [4, 5])


class Twin:
    """Items in a list; each `pop` looks at all of them."""

    def __init__(self, schedule: str, high_max: int) -> None:
        self.schedule = schedule
        self.high_max = high_max
        self.items: list[Entry | Lane] = []
        self.credits = [8, 3, 1]
        self.before_normal = self.before_low = 0

    def rank(self, item: Entry | Lane) -> tuple[int, int, int]:
        head = item.waiting[0] if isinstance(item, Lane) else item
        best = min(e.priority for e in item.waiting if e.queued) if isinstance(item, Lane) else item.priority
        return (0 if self.schedule == "fifo" else best), head.ready_at, head.sequence

    def may_go(self, item: Entry | Lane) -> bool:
        return not isinstance(item, Lane) or (not item.out and item.waiting[0].state != DELAYED)

    def pop(self) -> Entry | Lane | None:
        found = sorted([item for item in self.items if self.may_go(item)], key=self.rank)
        chosen = self.choose(found)
        if chosen is not None:
            self.items.remove(chosen)
        return chosen

    def choose(self, found: list[Entry | Lane]) -> Entry | Lane | None:
        if self.schedule == "fifo":
            return next(iter(found), None)
        if self.schedule == "strict":
            return self.choose_strictly(found)
        for _ in range(2):
            for tier, priorities in enumerate(TIERS):
                here = [item for item in found if self.rank(item)[0] in priorities]
                if here and self.credits[tier]:
                    self.credits[tier] -= 1
                    return here[0]
            self.credits = [8, 3, 1]
        return None

    def choose_strictly(self, found: list[Entry | Lane]) -> Entry | Lane | None:
        """Counts what went before the normal and the low tier, since each had its turn."""
        low = [item for item in found if self.rank(item)[0] > 3]
        normal = [item for item in found if self.rank(item)[0] == 3]
        if self.before_low >= self.high_max:
            self.before_low = 0
            if low:
                return low[0]
        if self.before_normal >= self.high_max:
            self.before_normal = 0
            if normal:
                return normal[0]
        if not found:
            return None
        rank = self.rank(found[0])[0]
        self.before_normal = self.before_normal + 1 if rank < 3 else 0
        self.before_low = self.before_low + 1 if rank < 4 else 0
        return found[0]


def same(item: Entry | Lane | None, other: Entry | Lane | None) -> bool:
    """Of a message in a parcel the twin has another entry."""
    if isinstance(item, Entry) and isinstance(other, Entry):
        return item.sequence == other.sequence
    return item is other


class ReadyAndTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.sequence = 0
        self.lanes: list[Lane] = []
        self.out: list[Entry] = []

    @initialize(schedule=st.sampled_from(["weighted", "strict", "fifo"]), high_max=st.integers(1, 3))
    def begin(self, schedule: Any, high_max: int) -> None:
        self.entries = Entries()
        chosen = MailboxSettings(schedule=schedule, max_consecutive_high=high_max)
        self.ready = Ready(chosen, self.entries)
        self.twin = Twin(schedule, high_max)

    def entry(self, priority: int) -> Entry:
        self.sequence += 1
        self.now += self.sequence % 2
        entry = Entry(letter(), self.sequence, self.now, self.now, self.now, 0, priority)
        self.entries[entry.sequence] = entry
        return entry

    @rule(priority=st.integers(1, 5), count=st.integers(1, 6))
    def push(self, priority: int, count: int) -> None:
        for _ in range(count):
            entry = self.entry(priority)
            self.ready.push(entry)
            self.twin.items.append(entry)

    @rule(priorities=st.lists(st.integers(1, 5), min_size=1, max_size=12))
    def push_all(self, priorities: list[int]) -> None:
        entries = [self.entry(priority) for priority in priorities]
        self.ready.push_all(entries)
        self.twin.items += entries

    @rule(priority=st.integers(1, 5), count=st.integers(2, 12))
    def push_parcel(self, priority: int, count: int) -> None:
        envelopes = [letter(priority=priority) for _ in range(count)]
        parcel = Parcel(self.entries, self.sequence + 1, self.now, envelopes)
        self.sequence += count
        self.entries.enter(parcel)
        self.ready.push_parcel(parcel)
        self.twin.items += [parcel.look(sequence) for sequence in parcel.sequences]

    @rule(priority=st.integers(1, 5), count=st.integers(1, 30), limit=st.integers(1, 30))
    def push_and_pop_many_of_one_priority(self, priority: int, count: int, limit: int) -> None:
        self.push_all([priority] * count)
        self.pop_parts(limit)

    @rule(priority=st.integers(1, 5), count=st.integers(2, 30), limit=st.integers(1, 30))
    def push_parcels_and_pop_many(self, priority: int, count: int, limit: int) -> None:
        self.push_parcel(priority, count)
        self.push_parcel(priority, 2)
        self.pop_parts(limit)

    @rule(limit=st.integers(1, 20))
    def pop_parts(self, limit: int) -> None:
        """As many calls of `pop` would have given, or none at all."""
        popped = sequences_of(self.ready.pop_parts(limit))
        assert len(popped) <= limit
        for sequence in popped:
            assert same(self.entries.take_out(sequence), self.twin.pop())
            self.out.append(self.entries.take_out(sequence))

    @precondition(lambda self: self.standing())
    @rule(data=st.data())
    def look_at_one(self, data: st.DataObject) -> None:
        """The entry of one message of a parcel ends the parcel, and nothing else."""
        entry = data.draw(st.sampled_from(self.standing()))
        assert self.entries.take_out(entry.sequence).queued

    @rule(priorities=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def push_lane(self, priorities: list[int]) -> None:
        lane = Lane(f"lane {len(self.lanes)}")
        for priority in priorities:
            lane.join(self.entry(priority))
        self.lanes.append(lane)
        self.ready.push_lane(lane)
        self.twin.items.append(lane)

    @rule(count=st.integers(1, 9))
    def pop(self, count: int) -> None:
        for _ in range(count):
            item = self.ready.pop()
            assert same(item, self.twin.pop())
            if isinstance(item, Lane):
                item.take()
                if item.waiting:
                    self.ready.push_lane(item)
                    self.twin.items.append(item)
            elif item is not None:
                self.out.append(item)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """It keeps the time at which it was ready, so it goes before those that came later."""
        entry = data.draw(st.sampled_from(self.out))
        self.out.remove(entry)
        self.ready.push(entry)
        self.twin.items.append(entry)

    @precondition(lambda self: self.standing())
    @rule(data=st.data(), count=st.integers(1, 5))
    def settle(self, data: st.DataObject, count: int) -> None:
        for entry in data.draw(st.permutations(self.standing()))[:count]:
            assert self.entries.take_out(entry.sequence).queued
            del self.entries[entry.sequence]
            self.ready.gone(1)
            self.twin.items.remove(entry)

    def standing(self) -> list[Entry]:
        return [item for item in self.twin.items if isinstance(item, Entry)]

    @precondition(lambda self: self.standing())
    @rule(data=st.data(), priority=st.integers(1, 5))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        moved = data.draw(st.lists(st.sampled_from(self.standing()), unique_by=id, min_size=1))
        for entry in moved:
            entry.priority = priority
            own = self.entries.take_out(entry.sequence)
            own.queued, own.priority = 0, priority
        self.ready.sweep()
        for entry in moved:
            self.ready.push(self.entries.take_out(entry.sequence))

    @invariant()
    def nothing_stale_piles_up(self) -> None:
        if self.sequence:
            live = len(self.twin.items)
            assert len(self.ready) <= max(2 * live, live + 65) + 1


ReadyAndTwin.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestReadyAndTwin = ReadyAndTwin.TestCase


def test_settled_entries_nobody_receives_are_swept_out() -> None:
    entries = Entries()
    ready = Ready(MailboxSettings(), entries)
    for i in range(10_000):
        entries[i] = Entry(letter(), i, i, i, i, 0, 3)
        ready.push(entries.take_out(i))
        del entries[i]
        ready.gone(1)
    assert len(ready) <= 130


@pytest.mark.parametrize("priority", [1, 2, 3, 4, 5])
def test_a_batch_of_one_priority_costs_the_credits_of_its_entries_one_by_one(priority: int) -> None:
    for count in range(30):
        orders = []
        for batched in (True, False):
            entries = Entries()
            for i in range(40):
                entries[i] = Entry(letter(), i, i, i, i, 0, priority)
            ready = Ready(MailboxSettings(), entries)
            ready.push_all(list(entries.values()))
            taken = ready.pop_parts(count) if batched else [ready.pop() for _ in range(count)]
            assert taken == [entries[i] for i in range(count)]
            for i in range(40, 100):
                entries[i] = Entry(letter(), i, i, i, i, 0, i % 5 + 1)
                ready.push(entries.take_out(i))
            left = [ready.pop() for _ in range(100 - count)]
            orders.append([entry.sequence for entry in left if isinstance(entry, Entry)])
        assert orders[0] == orders[1]
