"""The schedules of a partition: by name, and by the time at which the shell must look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from relaymesh.errors import NotFound
from relaymesh.kernel.charges import Charges
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.records import ScheduleFired, SchedulePaused, ScheduleRemoved, ScheduleSet
from relaymesh.kernel.schedules.schedule import Refusal, Schedule, ScheduleView, Work

if TYPE_CHECKING:
    from relaymesh.kernel.state import State

SCHEDULES_MAX = 1_000
"""Schedules of one namespace."""
NAMESPACE_BYTES_MAX = 67_108_864
"""Documents, inputs and messages of the schedules of one namespace."""
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 30_000
"""How soon a tick that was refused is tried again; the time doubles each time."""
SWEEP_MIN = 1_024

Name = tuple[str, str]
"""The namespace and the name of a schedule."""
NO_WORK = Work()


class Schedules:
    """`next`: when the shell must look again. A schedule that waits costs one place in a heap."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._live = False
        self._by_name: dict[Name, Schedule] = {}
        self._count: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._refusals: dict[Name, Refusal] = {}
        """Volatile. Due ticks that could not run yet."""
        self._heap: list[tuple[int, str, str]] = []
        self._sweep_at = SWEEP_MIN
        self.next = NEVER

    # -- records

    def effects(self, state: State) -> dict[type, Callable[[Any], None]]:
        """What each record about schedules does."""
        return {
            ScheduleSet: lambda record: self.set(record, state.sequence),
            ScheduleRemoved: self.removed,
            ScheduleFired: self.fired,
            SchedulePaused: self.paused,
        }

    def set(self, record: ScheduleSet, sequence: int) -> None:
        """A schedule that is set again stays paused, and keeps what its ticks led to."""
        before = self._by_name.get((record.namespace, record.name))
        made = Schedule(
            record.namespace,
            record.name,
            record.cron,
            record.tz,
            record.missed,
            record.work,
            record.owner,
            record.budget,
            record.next_at,
            record.at,
            sequence,
        )
        if before is not None:
            made = replace(
                made,
                paused=before.paused,
                runs=before.runs,
                skipped=before.skipped,
                last_tick_at=before.last_tick_at,
                last_run=before.last_run,
                last_run_at=before.last_run_at,
            )
        self._put(made)

    def removed(self, record: ScheduleRemoved) -> None:
        """One that is not there is passed over: the record that set it may be set aside."""
        name = record.namespace, record.name
        schedule = self._by_name.pop(name, None)
        if schedule is not None:
            self._charge(schedule, -1)
            self._refusals.pop(name, None)
            self._prune()

    def fired(self, record: ScheduleFired) -> None:
        schedule = self._by_name.get((record.namespace, record.name))
        if schedule is None:  # as above
            return
        changed = replace(
            schedule,
            next_at=record.next_at,
            skipped=schedule.skipped + record.skipped,
            reason=record.reason,
        )
        if record.run:
            changed = replace(
                changed,
                runs=schedule.runs + 1,
                last_tick_at=record.tick_at,
                last_run=record.run,
                last_run_at=record.at,
            )
        self._put(changed)

    def paused(self, record: SchedulePaused) -> None:
        schedule = self._by_name.get((record.namespace, record.name))
        if schedule is not None:
            next_at = schedule.next_at if record.paused else record.next_at
            self._put(replace(schedule, paused=record.paused, next_at=next_at))

    def restore(self, schedules: Sequence[Schedule]) -> None:
        """What a snapshot had."""
        for each in schedules:
            self._put(each)

    def _put(self, schedule: Schedule) -> None:
        name = schedule.namespace, schedule.name
        before = self._by_name.get(name)
        if before is not None:
            self._charge(before, -1)
        self._by_name[name] = schedule
        self._charge(schedule, 1)
        self._refusals.pop(name, None)
        self._push(name)

    def _charge(self, schedule: Schedule, sign: int) -> None:
        self._count[schedule.namespace] += sign
        self._bytes[schedule.namespace] += sign * schedule.work.size
        if self._live:
            self._charges.add(schedule.owner, sign * schedule.size)

    # -- timers: live only

    def refuse(self, schedule: Schedule, tick_at: int, now: int, reason: str) -> Refusal:
        """The tick stays due, and is tried again later."""
        name = schedule.namespace, schedule.name
        before = self._refusals.get(name)
        since, tries = now, 1
        if before is not None and before.tick_at == tick_at:
            since, tries = before.since, before.tries + 1
        wait = min(RETRY_MS_MIN << min(tries - 1, 10), RETRY_MS_MAX)
        refusal = self._refusals[name] = Refusal(tick_at, since, tries, reason, now + wait)
        self._push(name)
        return refusal

    def refusal(self, schedule: Schedule) -> Refusal | None:
        return self._refusals.get((schedule.namespace, schedule.name))

    def _look_at(self, name: Name) -> int:
        """When the shell must look at it."""
        schedule = self._by_name.get(name)
        if schedule is None or schedule.paused:
            return NEVER
        refusal = self._refusals.get(name)
        return schedule.next_at if refusal is None else refusal.retry_at

    def _push(self, name: Name) -> None:
        if not self._live:
            return
        at = self._look_at(name)
        if at < NEVER:
            heappush(self._heap, (at, *name))
        if len(self._heap) >= self._sweep_at:
            self._heap = list({item for item in self._heap if self._waits(item)})
            heapify(self._heap)
            self._sweep_at = SWEEP_MIN + 2 * len(self._heap)
        self._prune()

    def _prune(self) -> None:
        """Drop what does not wait any more from the top, so that `next` is the time of one that does."""
        heap = self._heap
        while heap and not self._waits(heap[0]):
            heappop(heap)
        self.next = heap[0][0] if heap else NEVER

    def _waits(self, item: tuple[int, str, str]) -> bool:
        return item[0] == self._look_at((item[1], item[2]))

    def go_live(self) -> None:
        """After a replay: charge the owners and build the timers."""
        self._live = True
        self._refusals = {}
        self._heap = [(self._look_at(name), *name) for name in self._by_name if self._look_at(name) < NEVER]
        heapify(self._heap)
        self._prune()
        for schedule in self._by_name.values():
            self._charges.add(schedule.owner, schedule.size)

    # -- looking

    def __iter__(self) -> Iterator[Schedule]:
        return iter(self._by_name.values())

    def due(self, now: int, limit: int) -> list[Schedule]:
        """Those to look at by now, the longest due first."""
        if self.next > now:
            return []
        due = sorted({item for item in self._heap if item[0] <= now and self._waits(item)})
        return [self._by_name[namespace, name] for _, namespace, name in due[:limit]]

    def find(self, namespace: str, name: str) -> Schedule | None:
        return self._by_name.get((namespace, name))

    def view(self, schedule: Schedule, *, whole: bool = True) -> ScheduleView:
        refusal = self.refusal(schedule)
        if not whole:
            work = replace(schedule.work, document=b"", input=b"", message=None)
            schedule = replace(schedule, work=work)
        return ScheduleView(schedule, refusal)

    def list(self, namespace: str | None, limit: int, after: str) -> list[ScheduleView]:
        """By namespace and name. `after`: only those behind this `namespace/name`."""
        behind = after.partition("/")
        names = sorted([name for name in self._by_name if namespace in (None, name[0])])
        found = [name for name in names if not after or name > (behind[0], behind[2])]
        return [self.view(self._by_name[name], whole=False) for name in found[:limit]]

    def count(self, namespace: str) -> int:
        return self._count[namespace]

    def bytes_of(self, namespace: str) -> int:
        return self._bytes[namespace]


def missing(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r} here", hint="relaymesh schedule list shows their names")
