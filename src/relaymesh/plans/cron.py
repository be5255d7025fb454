"""Cron lines with time zones: when the ticks of a schedule are.

Five fields, as in Debian's cron: minute, hour, day of month, month, day of week. On days on which clocks
change it also works as in Debian's cron: a tick in the hour that is left out comes right after it; a tick in
the hour that occurs twice comes once; and a line whose minute or hour begins with `*` follows real time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import shown, text
from relaymesh.kernel.schedules.commands import TZ_LENGTH_MAX, cron_text
from relaymesh.wire.near import Names

__all__ = ["Cron", "Due", "cron_of", "due_by", "first_tick"]

FIELDS = 5
PASSED_MAX = 100
"""Passed ticks are counted up to this number: a year of minutes would take half a minute to count."""
MINUTE_MS = 60_000
LAST_MS = 253_370_764_800_000
"""The year 9999, the end of the calendar. It is the next tick of a line that has no further tick."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local time of any zone
SECOND = timedelta(seconds=1)
DAY_S = 86_400
KEPT_MAX = 4_096
HINT = (
    "five fields: minute, hour, day of month, month, day of week;"
    " such as '0 7 * * *' or '*/15 8-18 * * MON-FRI'"
)


class Due(NamedTuple):
    """The last tick that is due, the tick after it, and how many earlier ones it replaces."""

    tick_at: int
    next_at: int
    passed: int


class Cron:
    """The ticks of one cron line in one time zone. Times are milliseconds since 1970."""

    def __init__(self, line: str, tz: str) -> None:
        self.line = cron_text(line)
        self.zone = _zone(tz)
        count = len(self.line.split())
        if count != FIELDS:
            seconds = " (a schedule has no seconds)" if count == FIELDS + 1 else ""
            raise InvalidValue(
                f"cron {shown(self.line)} has {count} fields, not {FIELDS}{seconds}", hint=HINT
            )
        try:
            CronSim(self.line, datetime(2000, 1, 1, tzinfo=self.zone))
        except CronSimError as error:
            raise InvalidValue(f"cron {shown(self.line)}: {str(error).lower()}", hint=HINT) from None
        except Exception:  # a defect of the parser: the line is no good either way
            raise InvalidValue(f"cron {shown(self.line)} cannot be read", hint=HINT) from None
        minute, hour, *_ = self.line.split()
        self._follows = minute.startswith("*") or hour.startswith("*")
        """Whether it follows the hours that really pass."""

    def after(self, ms: int) -> int:
        """The first tick after this time; `LAST_MS` if there is none in the next 50 years."""
        return next(self._ticks(ms), LAST_MS)

    def _ticks(self, ms: int) -> Iterator[int]:
        """Yields the ticks in order, from the first after this time."""
        if ms < LAST_MS and self._follows:
            yield from self._following(ms // 1000)
        elif ms < LAST_MS:
            for tick in CronSim(self.line, datetime.fromtimestamp(ms // 1000, self.zone)):
                at = round(tick.timestamp()) * 1000
                if at > ms:  # in the second of two equal hours it begins with the first
                    yield at

    def _following(self, second: int) -> Iterator[int]:
        """The same for a line that follows the hours: in local time until the clock is changed, then again
        from the change on. If a day or an hour begins in a change, `CronSim` loses or adds ticks.
        """
        offset: int | None = self._offset(second)
        while offset is not None:
            clock, offset = offset, None
            for tick in CronSim(self.line, EPOCH + timedelta(seconds=second + clock)):
                at = (tick - EPOCH) // SECOND - clock
                change = self._change(second, at, clock)
                if change is not None:
                    second, offset = change - 1, self._offset(change)
                    break
                second = at
                yield at * 1000

    def _offset(self, second: int) -> int:
        """How many seconds local time is ahead of UTC."""
        ahead = datetime.fromtimestamp(second, self.zone).utcoffset()
        return 0 if ahead is None else ahead // SECOND

    def _change(self, low: int, high: int, clock: int) -> int | None:
        """The first second after `low`, `high` at the latest, at which local time is not ahead by `clock`.

        Looks at every day: the clock may be changed twice in between, and be as it was.
        """
        for day in (*range(low + DAY_S, high, DAY_S), high):
            if self._offset(day) != clock:
                return bisect_left(range(day), True, low + 1, key=lambda at: self._offset(at) != clock)
            low = day
        return None

    def due(self, due_at: int, now: int) -> Due:
        """The ticks that are due by `now`. The schedule waits for the tick at `due_at`, which is not later
        than `now`."""
        tick_at, passed = due_at, 0
        for next_at in self._ticks(due_at):
            if next_at > now:
                return Due(tick_at, next_at, passed)
            tick_at, passed = next_at, passed + 1
            if passed == PASSED_MAX:
                tick_at = self._last(tick_at, now)
                break
        return Due(tick_at, self.after(tick_at), passed)

    def _last(self, low: int, now: int) -> int:
        """The last tick until `now`, found by bisection between `low` and `now`."""
        high = now
        while high - low > MINUTE_MS // 2:
            middle = (low + high) // 2
            if self.after(middle) <= now:
                low = middle
            else:
                high = middle
        return self.after(low - 1)


def first_tick(line: str, tz: str, now: int) -> int:
    """The first tick after `now`. Raises `InvalidValue` for a line without one."""
    tick = cron_of(line, tz).after(now)
    if tick == LAST_MS:
        raise InvalidValue(f"cron {shown(line)} has no tick in the next 50 years", hint=HINT)
    return tick


@lru_cache(maxsize=256)
def due_by(line: str, tz: str, due_at: int, now: int) -> Due:
    """`Cron.due`, once for all schedules that share a line: many wait for the same hour."""
    return cron_of(line, tz).due(due_at, now)


def cron_of(line: str, tz: str) -> Cron:
    """The ticks of this line in this zone. Raises `InvalidValue` for an invalid line or zone."""
    return _known(cron_text(line), text(tz, "tz", 1, TZ_LENGTH_MAX))


@lru_cache(maxsize=KEPT_MAX)
def _known(line: str, tz: str) -> Cron:
    return Cron(line, tz)


def _zone(tz: str) -> ZoneInfo:
    name = text(tz, "tz", 1, TZ_LENGTH_MAX)
    if name not in _zones():
        near = _nearest(name)
        hint = "names are those of the IANA database, such as Europe/Berlin or UTC"
        if near is not None:
            hint = f"did you mean {near}?"
        raise InvalidValue(f"there is no time zone {shown(name)}", hint=hint)
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """The zone is compared with the list of names: a path, or a name in other case, would work on some
    systems only."""
    return frozenset(available_timezones() - {"localtime"})  # another zone on each machine


def _nearest(name: str) -> str | None:
    cities = {zone.rpartition("/")[2]: zone for zone in sorted(_zones())}
    near = Names(sorted(_zones())).nearest(name)
    city = Names(cities).nearest(name.rpartition("/")[2].replace(" ", "_"))
    return near or (None if city is None else cities[city])
