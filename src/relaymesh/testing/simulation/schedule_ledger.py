"""The ledger of schedules: which ticks ran, worked out from the journal's records alone.

It shares no code with the kernel and knows one kind of cron line, `*/N * * * *` in UTC, whose ticks are the
multiples of N minutes. While it reads it checks that each tick runs once, and that none is passed over
without a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relaymesh.testing.simulation.verdict import Violation

MINUTE_MS = 60_000
LATE_MS = 60_000
"""A tick that is seen later than this was missed."""
COUNTED_MAX = 100
ACCEPTED, SUBMITTED = 5, 19
AT_THE_END = "the end"
"""Who pauses schedules when everything is healed and what is due has run."""


@dataclass(slots=True, eq=False)
class ScheduleTold:
    """One schedule, as the journal has it."""

    name: str
    period: int
    missed: str
    next_at: int
    paused: bool = False
    ran: set[int] = field(default_factory=set)
    overdue: bool = False
    """A tick was due at the end, when everything was healed."""

    def __str__(self) -> str:
        return f"schedule {self.name}"


class ScheduleLedger:
    """Fed by the ledger of messages. `before`: the record before, of the same frame."""

    def __init__(self) -> None:
        self.told: dict[str, ScheduleTold] = {}
        self.names: set[str] = set()
        """Every schedule that was ever set."""
        self.before: list[Any] | None = None
        self.epoch_at = 0

    def set(self, at: int, record: list[Any]) -> None:
        _, name, cron, _, missed = record[3:8]
        period = _period(cron)
        known = self.told.get(name)
        told = self.told[name] = ScheduleTold(name, period, missed, record[11])
        self.names.add(name)
        self._check_first(told, at)
        if known is not None:
            told.paused, told.ran = known.paused, known.ran

    def removed(self, _at: int, record: list[Any]) -> None:
        self._known(record).overdue = False
        del self.told[record[4]]

    def paused(self, at: int, record: list[Any]) -> None:
        told = self._known(record)
        if told.paused == record[5]:
            raise Violation("schedule_kept", f"{told} is paused or resumed twice")
        told.paused = record[5]
        told.overdue = record[7] == AT_THE_END and told.next_at <= at
        if not told.paused:
            told.next_at = record[6]
            self._check_first(told, at)

    def fired(self, at: int, record: list[Any]) -> None:
        told = self._known(record)
        tick_at, next_at, run, skipped = record[5:9]
        if told.paused:
            raise Violation("schedule_kept", f"{told} fired while it was paused")
        if tick_at < told.next_at or tick_at in told.ran:
            raise Violation("schedule_once", f"{told}: the tick {tick_at} came again")
        if tick_at % told.period or tick_at > at:
            raise Violation("schedule_on_time", f"{told}: there is no tick at {tick_at}, and it is {at}")
        passed = (tick_at - told.next_at) // told.period
        if next_at != tick_at + told.period or skipped != min(passed, COUNTED_MAX) + (not run):
            raise Violation("schedule_tick_lost", f"{told}: from {told.next_at} to {next_at}: {record}")
        if run:
            self._check_run(told, at, tick_at, run)
        elif told.missed != "none" or at - tick_at <= LATE_MS:
            raise Violation("schedule_tick_lost", f"{told}: the tick {tick_at} has no run, and no reason")
        told.next_at = next_at

    def _check_run(self, told: ScheduleTold, at: int, tick_at: int, run: str) -> None:
        begun = []
        if self.before is not None and self.before[0] == SUBMITTED:
            begun = [self.before[3]]
        elif self.before is not None and self.before[0] == ACCEPTED:
            begun = [envelope[0] for envelope in self.before[4]]
        if begun != [run]:
            raise Violation("schedule_tick_lost", f"{told}: run {run} of the tick {tick_at} is not with it")
        if told.missed == "none" and min(at, self.epoch_at) - tick_at > LATE_MS:
            raise Violation("schedule_missed", f"{told}: ran the tick {tick_at} although it was missed")
        told.ran.add(tick_at)

    def _known(self, record: list[Any]) -> ScheduleTold:
        told = self.told.get(record[4])
        if told is None:
            raise Violation("schedule_kept", f"there is no schedule {record[4]}: {record}")
        return told

    def _check_first(self, told: ScheduleTold, at: int) -> None:
        if told.next_at != (at // told.period + 1) * told.period:
            raise Violation("schedule_on_time", f"{told} waits at {at} for {told.next_at}")


def _period(cron: str) -> int:
    minutes = cron.removesuffix(" * * * *")
    return (1 if minutes == "*" else int(minutes.removeprefix("*/"))) * MINUTE_MS
