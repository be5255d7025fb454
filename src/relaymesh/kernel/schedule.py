"""Which ready item goes first: five queues, and a rule for choosing among them.

Items are entries without a lane, and lanes whose head may go. Within a priority they go by
(ready time, sequence), a lane by those of its head. Entries nearly always become ready in that
order, so a queue is enough for them; lanes, and the few entries that come out of order
(released, given another priority), stand in a heap beside it.

An item that is settled, or a lane that moved, is skipped when it comes up: removing it at once
would cost a search. When such items outnumber the others, all are swept out.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from relaymesh.kernel.entry import Entry
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.settings import MailboxSettings

Item = Entry | Lane

WEIGHTS = (8, 3, 1)
TIER_OF = (0, 0, 0, 1, 2, 2)
"""Priority 1..5 to tier: 0 high, 1 normal, 2 low (index 0 is unused)."""
FIFO_QUEUE = 3
SWEEP_MIN = 64


class Ready:
    """The ready items of one mailbox. Volatile: rebuilt at start from the entries."""

    __slots__ = (
        "_consecutive_high",
        "_credits",
        "_fifo",
        "_gone",
        "_heaps",
        "_high_max",
        "_queues",
        "_strict",
        "_tickets",
        "low_starvation_count",
    )

    def __init__(self, settings: MailboxSettings) -> None:
        self._queues: list[deque[Entry]] = [deque() for _ in range(6)]
        self._heaps: list[list[tuple[int, int, int, Item]]] = [[] for _ in range(6)]
        self._tickets = 0
        self._gone = 0
        self._credits = list(WEIGHTS)
        self._consecutive_high = 0
        self.low_starvation_count = 0
        self.configure(settings)

    def configure(self, settings: MailboxSettings) -> None:
        """Another schedule needs everything pushed anew: see `Mailbox.rebuild`."""
        self._fifo = settings.schedule == "fifo"
        self._strict = settings.schedule == "strict"
        self._high_max = settings.max_consecutive_high

    # -- in -----------------------------------------------------------------------------------

    def push(self, entry: Entry) -> None:
        priority = FIFO_QUEUE if self._fifo else entry.priority
        entry.queued = priority
        queue = self._queues[priority]
        if queue:
            last = queue[-1]
            if last.ready_at > entry.ready_at or (
                last.ready_at == entry.ready_at and last.sequence > entry.sequence
            ):
                self._tickets += 1
                heappush(self._heaps[priority], (entry.ready_at, entry.sequence, self._tickets, entry))
                return
        queue.append(entry)

    def push_lane(self, lane: Lane) -> None:
        """Place a runnable lane by its best priority and its head, unless it stands there already."""
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
        """So many items that stand here will never be given out: their entry is settled, their lane moved."""
        self._gone += count
        if self._gone > SWEEP_MIN and self._gone * 2 > len(self):
            self.sweep()

    def sweep(self) -> None:
        """Let go of every item that will not be given out."""
        self._gone = 0
        for priority in range(1, 6):
            queue = self._queues[priority]
            if queue:
                self._queues[priority] = deque([entry for entry in queue if entry.queued == priority])
            heap = [item for item in self._heaps[priority] if _stands(item[3], priority, item[2])]
            heapify(heap)
            self._heaps[priority] = heap

    def pop(self) -> Item | None:
        """The next item by the mailbox's schedule; None when nothing is ready."""
        if self._fifo:
            return self._pop_from(FIFO_QUEUE)
        if self._strict:
            return self._pop_strict()
        return self._pop_weighted()

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
        if self._consecutive_high >= self._high_max:
            self._consecutive_high = 0
            for priority in (3, 4, 5):
                item = self._pop_from(priority)
                if item is not None:
                    self.low_starvation_count += 1
                    return item
        for priority in (1, 2, 3, 4, 5):
            item = self._pop_from(priority)
            if item is not None:
                self._consecutive_high = self._consecutive_high + 1 if TIER_OF[priority] == 0 else 0
                return item
        return None

    def _pop_from(self, priority: int) -> Item | None:
        queue = self._queues[priority]
        heap = self._heaps[priority]
        while True:
            if heap and (not queue or heap[0][:2] < (queue[0].ready_at, queue[0].sequence)):
                item = self._pop_heap(heap, priority)
                if item is not None:
                    return item
            elif queue:
                entry = queue.popleft()
                if entry.queued == priority:
                    entry.queued = 0
                    return entry
                self._gone -= 1
            else:
                return None

    def _pop_heap(self, heap: list[tuple[int, int, int, Item]], priority: int) -> Item | None:
        _, _, ticket, item = heappop(heap)
        if not _stands(item, priority, ticket):
            self._gone -= 1
            return None
        if isinstance(item, Lane):
            item.place = None
            return item if item.runnable else None
        item.queued = 0
        return item

    def __len__(self) -> int:
        """How many items stand here, those included that will be skipped."""
        return sum(map(len, self._queues)) + sum(map(len, self._heaps))

    def __bool__(self) -> bool:
        """Whether anything may be ready; items that will be skipped count until they come up."""
        return any(self._queues) or any(self._heaps)


def _stands(item: Item, priority: int, ticket: int) -> bool:
    """Whether the item is given out when it comes up here."""
    if isinstance(item, Lane):
        return item.place is not None and item.ticket == ticket
    return item.queued == priority
