"""`Lane`, which deletes lazily, against a sorted list."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relaymesh.kernel.entry import Entry, Grant, Lease
from relaymesh.kernel.lane import Lane, lane_order
from relaymesh.kernel.pending import DELAYED, LEASED, READY, SETTLED
from tests.kernel.driver import letter


class LaneAndTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane("k")
        self.waiting: list[Entry] = []
        self.out: list[Entry] = []
        self.now = 0
        self.sequence = 0

    @rule(priority=st.integers(1, 5), count=st.integers(1, 60), late=st.booleans())
    def join(self, priority: int, count: int, late: bool) -> None:
        """`late`: forced in the same millisecond, though accepted before the last that joined."""
        for _ in range(count):
            self.sequence += 2
            self.now += not late
            sequence = self.sequence - 3 if late and self.sequence > 3 else self.sequence
            if any(entry.sequence == sequence for entry in [*self.waiting, *self.out]):
                continue
            entry = Entry(letter(), sequence, self.now, self.now, self.now, 0, priority)
            self.lane.join(entry)
            self.waiting = sorted([*self.waiting, entry], key=lane_order)

    @precondition(lambda self: self.lane.runnable)
    @rule(count=st.integers(1, 5))
    def take_a_run(self, count: int) -> None:
        grant = Grant("box", "holder", 0, 0)
        for _ in range(min(count, len(self.waiting))):
            if self.waiting[0].state == DELAYED:
                break
            entry = self.lane.take()
            assert entry is self.waiting.pop(0)
            entry.state = LEASED
            token = len(self.out) + self.sequence * 100
            entry.lease = Lease(token, entry, 1, 0, grant)
            self.lane.send_out(entry.lease)
            self.out.append(entry)

    def draw(self, data: st.DataObject, entries: list[Entry], count: int) -> Any:
        return data.draw(st.permutations(entries))[:count]

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(1, 5), state=st.sampled_from([READY, DELAYED]))
    def put_back(self, data: st.DataObject, count: int, state: int) -> None:
        back = self.draw(data, self.out, count)
        for entry in back:
            self.out.remove(entry)
            assert entry.lease is not None
            del self.lane.out[entry.lease.token]
            entry.lease, entry.state = None, state
        self.lane.put_back(back)
        self.waiting = sorted([*self.waiting, *back], key=lane_order)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(1, 5))
    def settle_what_is_out(self, data: st.DataObject, count: int) -> None:
        for entry in self.draw(data, self.out, count):
            self.out.remove(entry)
            self.lane.discard(entry)
            entry.lease, entry.state = None, SETTLED

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), count=st.integers(1, 80))
    def settle_what_waits(self, data: st.DataObject, count: int) -> None:
        for entry in self.draw(data, self.waiting, count):
            self.waiting.remove(entry)
            self.lane.discard(entry)
            entry.state = SETTLED

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), priority=st.integers(1, 5))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        entry = data.draw(st.sampled_from(self.waiting))
        self.lane.change_priority(entry, priority)
        entry.priority = priority

    @rule()
    def all_delays_are_over(self) -> None:
        for entry in self.waiting:
            entry.state = READY

    @invariant()
    def they_agree(self) -> None:
        lane = self.lane
        assert [entry for entry in lane.waiting if entry.queued] == self.waiting
        assert [lease.entry for lease in lane.out.values()] == self.out
        assert lane.idle == (not self.waiting and not self.out)
        ready = bool(self.waiting) and self.waiting[0].state == READY
        assert lane.runnable == (ready and not self.out)
        if self.waiting:
            assert lane.best_priority == min(entry.priority for entry in self.waiting)
        assert len(lane.waiting) <= max(2 * len(self.waiting), len(self.waiting) + 65) + 1
        for i, entry in enumerate(self.out):
            assert entry.lease is not None
            assert [lease.entry for lease in lane.leases_after(entry.lease)] == self.out[i + 1 :]


LaneAndTwin.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestLaneAndTwin = LaneAndTwin.TestCase
