"""A lane: the entries of one ordering key in one mailbox, in order, for one holder at a time.

Order is (first due, sequence): acceptance order, with a delayed message joining when due. One holder may have
several consecutive entries. Until all of them are settled or returned, no other holder gets an entry of
the lane. A head that waits for its retry holds the lane.

An entry that is settled while it waits stays in `waiting` until it comes up, or until the settled entries
outnumber the others: removing it at once would cost a search.
"""

from __future__ import annotations

from collections import deque

from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.pending import DELAYED

SWEEP_MIN = 8


def lane_order(entry: Entry) -> tuple[int, int]:
    return entry.due_at, entry.sequence


class Lane:
    """`waiting`: in order. `out`: what is leased, by token. `halted`: by this many dead letters."""

    __slots__ = (
        "_best",
        "_by_priority",
        "_gone",
        "halted",
        "key",
        "out",
        "place",
        "taken",
        "ticket",
        "waiting",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: deque[Entry] = deque()
        """Its first entry is never a settled one."""
        self.out: dict[int, Lease] = {}
        self.taken = 0
        """Entries on their way from `waiting` to `out`."""
        self.halted = 0
        self.place: tuple[int, int, int] | None = None
        """Its position among the ready: priority, and its head's ready time and sequence."""
        self.ticket = 0
        self._by_priority = [0] * 6
        self._best = 0
        """The best priority that waits, or 0 when it must be looked up."""
        self._gone = 0

    def join(self, entry: Entry) -> None:
        """Insert a new entry: at the tail, except for one forced in the same millisecond."""
        waiting = self.waiting
        if waiting and waiting[-1].due_at >= entry.due_at:
            later: list[Entry] = []
            while waiting and lane_order(waiting[-1]) > lane_order(entry):
                later.append(waiting.pop())
            waiting.append(entry)
            waiting.extend(reversed(later))
        else:
            waiting.append(entry)
        self._came(entry)

    def put_back(self, entries: list[Entry]) -> None:
        """Put returned entries back in order, at the front."""
        waiting = self.waiting
        earlier: list[Entry] = []
        for entry in sorted(entries, key=lane_order):
            while waiting and lane_order(waiting[0]) < lane_order(entry):
                earlier.append(waiting.popleft())
            earlier.append(entry)
            self._came(entry)
        waiting.extendleft(reversed(earlier))

    def take(self) -> Entry:
        """The head leaves to be delivered."""
        entry = self.waiting.popleft()
        self._left(entry)
        self.taken += 1
        if self._gone:
            self._trim()
        return entry

    def send_out(self, lease: Lease) -> None:
        """The entries taken are delivered."""
        self.taken -= 1
        self.out[lease.token] = lease

    def discard(self, entry: Entry) -> None:
        """The entry is settled: remove it from `out`, from those taken, or from those that wait."""
        if entry.lease is not None:
            del self.out[entry.lease.token]
        elif entry.queued:
            self._left(entry)
            self._gone += 1
            self._trim()
        else:
            self.taken -= 1

    def withdraw(self, entry: Entry) -> None:
        """Remove a waiting entry, to be delivered out of line."""
        self.waiting.remove(entry)
        self._left(entry)
        self._trim()

    def _trim(self) -> None:
        """Drop settled entries from the head, and from everywhere if they are many."""
        waiting = self.waiting
        while waiting and not waiting[0].queued:
            waiting.popleft()
            self._gone -= 1
        if self._gone > SWEEP_MIN and self._gone * 2 > len(waiting):
            self.waiting = deque([entry for entry in waiting if entry.queued])
            self._gone = 0

    def change_priority(self, entry: Entry, priority: int) -> None:
        """Call before the priority of a waiting entry changes."""
        self._by_priority[entry.priority] -= 1
        self._by_priority[priority] += 1
        self._best = 0

    def _came(self, entry: Entry) -> None:
        entry.queued = 1
        self._by_priority[entry.priority] += 1
        self._best = min(self._best, entry.priority)

    def _left(self, entry: Entry) -> None:
        entry.queued = 0
        self._by_priority[entry.priority] -= 1
        if not self._by_priority[entry.priority]:
            self._best = 0

    def leases_after(self, lease: Lease) -> list[Lease]:
        """The later deliveries of the same lane, which must come back when this one does."""
        later = list(self.out.values())
        return later[later.index(lease) + 1 :]

    @property
    def runnable(self) -> bool:
        """Whether nothing of it is leased and its head may go."""
        return bool(self.waiting) and not self.out and not self.halted and self.waiting[0].state != DELAYED

    @property
    def best_priority(self) -> int:
        """The best priority among the waiting entries: the lane competes with it."""
        if not self._best:
            self._best = next(priority for priority in range(1, 6) if self._by_priority[priority])
        return self._best

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is leased: it can be removed."""
        return not self.waiting and not self.out and not self.taken and not self.halted
