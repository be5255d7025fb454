"""Which ready item goes first: five queues, and a rule to choose among them.

Items are parcels, entries without a lane, and lanes whose head may go. Within a priority they are ordered by
(ready time, sequence), a lane by those of its head. Entries nearly always become ready in that order, so a
queue is enough for them. Lanes, and the few entries that become ready out of order (released, given another
priority), are in a heap beside it.

A settled entry, or a lane that moved, is skipped when it comes up: removing it at once would cost a search.
Entries are listed here by their sequence, so that a settled entry is freed. When stale items outnumber the
others, all of them are swept out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from relaymesh.kernel.entries import Entries
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.parcel import CUT_MIN, Parcel, Part
from relaymesh.kernel.settings import MailboxSettings

Item = Entry | Lane

WEIGHTS = (8, 3, 1)
TIER_OF = (0, 0, 0, 1, 2, 2)
"""Priority 1..5 to tier: 0 high, 1 normal, 2 low (index 0 is unused)."""
FIFO_QUEUE = 3
SWEEP_MIN = 64

Standing = tuple[int, int, int, Lane | None]
"""In a heap: ready time, sequence, ticket, and the lane whose head that is, if it is one."""


class Ready:
    """The ready items of one mailbox. Volatile: rebuilt at start from the entries."""

    __slots__ = (
        "_above_low",
        "_above_normal",
        "_credits",
        "_entries",
        "_fifo",
        "_gone",
        "_heaps",
        "_high_max",
        "_last",
        "_queues",
        "_strict",
        "_tickets",
        "low_starvation_count",
    )

    def __init__(self, settings: MailboxSettings, entries: Entries) -> None:
        self._entries = entries
        """The mailbox's own entries: a missing one is settled."""
        self._queues: list[deque[int | Parcel]] = [deque() for _ in range(6)]
        """Sequences of entries, and parcels. An unpacked parcel represents its sequences."""
        self._last = [(0, 0)] * 6
        """Ready time and sequence of the last item appended to each queue."""
        self._heaps: list[list[Standing]] = [[] for _ in range(6)]
        self._tickets = 0
        self._gone = 0
        self._credits = list(WEIGHTS)
        self._above_normal = 0
        """`strict`: entries of the high tier in a row since the normal tier's last turn."""
        self._above_low = 0
        """`strict`: entries of the high and normal tiers in a row since the low tier's last turn."""
        self.low_starvation_count = 0
        self.configure(settings)

    def configure(self, settings: MailboxSettings) -> None:
        """Another schedule needs every item pushed again: see `Mailbox.rebuild`."""
        self._fifo = settings.schedule == "fifo"
        self._strict = settings.schedule == "strict"
        self._high_max = settings.max_consecutive_high

    # -- in -----------------------------------------------------------------------------------

    def push(self, entry: Entry) -> None:
        priority = FIFO_QUEUE if self._fifo else entry.priority
        entry.queued = priority
        queue = self._queues[priority]
        place = (entry.ready_at, entry.sequence)
        if queue and place < self._last[priority]:
            self._tickets += 1
            heappush(self._heaps[priority], (entry.ready_at, entry.sequence, self._tickets, None))
        else:
            queue.append(entry.sequence)
            self._last[priority] = place

    def push_parcel(self, parcel: Parcel) -> None:
        """Append a new parcel: no item here became ready later."""
        priority = FIFO_QUEUE if self._fifo else parcel.priority
        parcel.queued = priority
        self._queues[priority].append(parcel)
        self._last[priority] = (parcel.accepted_at, parcel.ready_sequence)

    def push_all(self, entries: list[Entry]) -> None:
        """Append entries that became ready together: only the first in a queue can be out of order."""
        checked = 0
        for entry in entries:
            priority = FIFO_QUEUE if self._fifo else entry.priority
            if priority == checked:
                entry.queued = priority
                self._queues[priority].append(entry.sequence)
                self._last[priority] = (entry.ready_at, entry.sequence)
            else:
                self.push(entry)
                checked = priority if self._last[priority][1] == entry.sequence else 0

    def push_lane(self, lane: Lane) -> None:
        """Place a runnable lane by its best priority and its head, unless it is already there."""
        head = lane.waiting[0]
        priority = FIFO_QUEUE if self._fifo else lane.best_priority
        place = (priority, head.ready_at, head.sequence)
        if lane.place != place:
            if lane.place is not None:
                self.gone(1)
            self._tickets += 1
            lane.place, lane.ticket = place, self._tickets
            heappush(self._heaps[priority], (head.ready_at, head.sequence, self._tickets, lane))

    # -- out ----------------------------------------------------------------------------------

    def gone(self, count: int) -> None:
        """Count items here that will never be given out: their entry is settled, or their lane moved."""
        self._gone += count
        if self._gone > SWEEP_MIN and self._gone * 2 > len(self):
            self.sweep()

    def sweep(self) -> None:
        """Remove every item that will not be given out."""
        self._gone = 0
        for priority in range(1, 6):
            queue = self._queues[priority]
            if queue:
                self._queues[priority] = deque(self._standing(queue, priority))
            heap = [standing for standing in self._heaps[priority] if self._stands(standing, priority)]
            heapify(heap)
            self._heaps[priority] = heap

    def _standing(self, queue: deque[int | Parcel], priority: int) -> Iterator[int | Parcel]:
        for item in queue:
            if isinstance(item, Parcel) and not item.unpacked:
                yield item
                continue
            for sequence in item.sequences if isinstance(item, Parcel) else (item,):
                if self._entry(sequence, priority):
                    yield sequence

    def _entry(self, sequence: int, priority: int) -> Entry | None:
        """The entry, if it is to be given out when it comes up here."""
        entry = self._entries.alone(sequence)
        return entry if entry is not None and entry.queued == priority else None

    def _stands(self, standing: Standing, priority: int) -> bool:
        _, sequence, ticket, lane = standing
        if lane is None:
            return self._entry(sequence, priority) is not None
        return lane.place is not None and lane.ticket == ticket

    def pop(self) -> Item | None:
        """The next item by the mailbox's schedule; None when nothing is ready."""
        if self._fifo:
            return self._pop_from(FIFO_QUEUE)
        if self._strict:
            return self._pop_strict()
        return self._pop_weighted()

    def pop_parts(self, limit: int) -> list[Part]:
        """What `pop` would return next, as long as it comes from the same queue; else nothing."""
        if self._strict or any(self._heaps):
            return []
        busy = [priority for priority in range(1, 6) if self._queues[priority]]
        if len(busy) != 1:
            return []
        priority = busy[0]
        queue = self._queues[priority]
        entries = self._entries
        parts: list[Part] = []
        count = 0
        while queue and count < limit:
            item = queue.popleft()
            if isinstance(item, int):
                entry = entries.alone(item)
                if entry is not None and entry.queued == priority:
                    entry.queued = 0
                    parts.append(entry)
                    count += 1
                else:
                    self._gone -= 1
            elif item.unpacked or limit - count < min(item.count, CUT_MIN):
                queue.appendleft(item)
                self._unpack_first(queue)
            else:
                if item.count > limit - count:
                    queue.appendleft(item)
                    item = item.cut(limit - count)
                item.queued = 0
                parts.append(item)
                count += item.count
        if not self._fifo:
            self._charge(TIER_OF[priority], count)
        return parts

    def _charge(self, tier: int, count: int) -> None:
        """The credits after `count` entries of one tier went while the others had none."""
        left = self._credits[tier] - count
        if left < 0:
            self._credits[:] = WEIGHTS
            left = WEIGHTS[tier] - 1 - (-left - 1) % WEIGHTS[tier]
        self._credits[tier] = left

    def _pop_weighted(self) -> Item | None:
        credits, queues, heaps = self._credits, self._queues, self._heaps
        for _ in range(2):
            if credits[0] and (queues[2] or queues[1] or heaps[2] or heaps[1]):
                item = self._pop_from(1) or self._pop_from(2)
                if item is not None:
                    credits[0] -= 1
                    return item
            if credits[1] and (queues[3] or heaps[3]):
                item = self._pop_from(3)
                if item is not None:
                    credits[1] -= 1
                    return item
            if credits[2] and (queues[4] or queues[5] or heaps[4] or heaps[5]):
                item = self._pop_from(4) or self._pop_from(5)
                if item is not None:
                    credits[2] -= 1
                    return item
            credits[:] = WEIGHTS
        return None

    def _pop_strict(self) -> Item | None:
        """By priority; but after `max_consecutive_high` entries of higher tiers in a row a lower tier has a
        turn.

        The low tier is checked first. Each tier has its own count, so that neither takes the other's turns.
        These turns are not counted themselves.
        """
        if self._above_low >= self._high_max:
            self._above_low = 0
            item = self._pop_from(4) or self._pop_from(5)
            if item is not None:
                self.low_starvation_count += 1
                return item
        if self._above_normal >= self._high_max:
            self._above_normal = 0
            item = self._pop_from(3)
            if item is not None:
                self.low_starvation_count += 1
                return item
        for priority in (1, 2, 3, 4, 5):
            item = self._pop_from(priority)
            if item is not None:
                tier = TIER_OF[priority]
                self._above_normal = self._above_normal + 1 if tier == 0 else 0
                self._above_low = self._above_low + 1 if tier < 2 else 0
                return item
        return None

    def _pop_from(self, priority: int) -> Item | None:
        queue = self._queues[priority]
        heap = self._heaps[priority]
        entries = self._entries
        while True:
            first = queue[0] if queue else None
            if isinstance(first, Parcel):
                self._unpack_first(queue)
                continue
            if heap and (first is None or heap[0][:2] < self._place(first)):
                item = self._pop_heap(heap, priority)
                if item is not None:
                    return item
            elif first is not None:
                queue.popleft()
                entry = entries.alone(first)
                if entry is not None and entry.queued == priority:
                    entry.queued = 0
                    return entry
                self._gone -= 1
            else:
                return None

    @staticmethod
    def _unpack_first(queue: deque[int | Parcel]) -> None:
        """Its messages go one by one from here on."""
        parcel = queue.popleft()
        assert isinstance(parcel, Parcel)
        if not parcel.unpacked:
            parcel.unpack()
        queue.extendleft(reversed(parcel.sequences))

    def _place(self, sequence: int) -> tuple[int, int]:
        """A settled item sorts before everything: it is then skipped first."""
        entry = self._entries.alone(sequence)
        return (0, 0) if entry is None else (entry.ready_at, sequence)

    def _pop_heap(self, heap: list[Standing], priority: int) -> Item | None:
        _, sequence, ticket, lane = heappop(heap)
        if lane is not None:
            if lane.ticket == ticket and lane.place is not None:
                lane.place = None
                return lane if lane.runnable else None
        else:
            entry = self._entry(sequence, priority)
            if entry is not None:
                entry.queued = 0
                return entry
        self._gone -= 1
        return None

    def __len__(self) -> int:
        """How many items are listed here, including those that will be skipped."""
        return sum(map(len, self._queues)) + sum(map(len, self._heaps))

    def __bool__(self) -> bool:
        """Whether anything may be ready; items that will be skipped count until they come up."""
        return any(self._queues) or any(self._heaps)
