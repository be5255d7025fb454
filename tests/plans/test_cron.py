"""Cron lines: when their ticks are, on every kind of day, and which lines and zones are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidValue, MeshError
from relaymesh.plans.cron import LAST_MS, PASSED_MAX, Cron, cron_of, first_tick

BERLIN = "Europe/Berlin"
MINUTE = 60_000
DAY = 1_440 * MINUTE


def ms(*moment: int, zone: str = BERLIN, fold: int = 0) -> int:
    return round(datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000  # type: ignore[misc, arg-type]


def ticks(line: str, since: int, count: int, zone: str = BERLIN) -> list[str]:
    """As clocks in that zone show them, with the offset from UTC."""
    cron, at, found = cron_of(line, zone), since, []
    for _ in range(count):
        at = cron.after(at)
        found.append(datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).strftime("%d %H:%M %z"))
    return found


def test_a_time_of_day_is_that_of_its_zone_in_summer_and_in_winter() -> None:
    assert ticks("0 7 * * *", ms(2026, 3, 27, 12), 3) == [
        "28 07:00 +0100",
        "29 07:00 +0200",
        "30 07:00 +0200",
    ]
    assert ticks("0 7 * * *", ms(2026, 10, 23, 12), 3) == [
        "24 07:00 +0200",
        "25 07:00 +0100",
        "26 07:00 +0100",
    ]


def test_a_tick_in_the_hour_that_is_left_out_comes_right_behind_it() -> None:
    assert ticks("30 2 * * *", ms(2026, 3, 28, 1), 3) == [
        "28 02:30 +0100",
        "29 03:00 +0200",
        "30 02:30 +0200",
    ]
    assert ticks("*/30 * * * *", ms(2026, 3, 29, 1), 3) == [
        "29 01:30 +0100",
        "29 03:00 +0200",
        "29 03:30 +0200",
    ]


def test_a_tick_in_the_hour_that_comes_twice_comes_once() -> None:
    assert ticks("30 2 * * *", ms(2026, 10, 24, 12), 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    in_the_second_hour = ms(2026, 10, 25, 2, 10, fold=1)
    assert ticks("30 2 * * *", in_the_second_hour, 1) == ["26 02:30 +0100"]


def test_a_line_of_minutes_follows_the_hours_that_pass() -> None:
    assert ticks("15 * * * *", ms(2026, 10, 25, 1, 30), 3) == [
        "25 02:15 +0200",
        "25 02:15 +0100",
        "25 03:15 +0100",
    ]


@pytest.mark.parametrize("line", ["*/7 * * * *", "30 2 * * *", "0 2,3 * * *", "5 */4 * * MON", "0 0 1 * *"])
@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"])
def test_what_is_due_is_what_one_tick_after_the_other_gives(line: str, zone: str) -> None:
    cron, first = cron_of(line, zone), ms(2026, 3, 1, zone=zone)
    for begin, length in ((0, 3 * DAY), (20 * DAY, 20 * DAY), (205 * DAY, 60 * DAY)):
        due_at = cron.after(first + begin)
        now, at, passed = due_at + length, due_at, 0
        while (behind := cron.after(at)) <= now:
            at, passed = behind, passed + 1
        assert cron.due(due_at, now) == (at, behind, min(passed, PASSED_MAX))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["* * * * *", "*/5 * * * *", "30 2 * * *", "0 2,3 * * *", "59 1-4 * * *", "0 */6 * * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    st.sampled_from([datetime(2026, *day, tzinfo=UTC) for day in ((3, 29), (3, 8), (10, 25), (4, 5))]),
    st.integers(0, 2 * 1_440),
    st.integers(0, 59_999),
)
def test_the_next_tick_does_not_depend_on_where_one_looks_from(
    line: str, zone: str, day: datetime, minutes: int, rest: int
) -> None:
    cron = cron_of(line, zone)
    now = round(day.timestamp() - 86_400) * 1000 + minutes * MINUTE + rest
    tick = cron.after(now)
    assert tick > now
    assert tick % MINUTE == 0
    assert cron.after(tick - 1) == tick
    assert cron.after((now + tick) // 2) == tick if (now + tick) // 2 < tick else True


def test_ten_years_of_minutes_are_passed_over_in_an_instant() -> None:
    start = ms(2026, 1, 1)
    due = cron_of("* * * * *", BERLIN).due(start, start + 3_650 * DAY + 17)
    assert due == (start + 3_650 * DAY, start + 3_650 * DAY + MINUTE, PASSED_MAX)


def test_a_line_without_a_further_tick_waits_for_the_end_of_the_calendar() -> None:
    cron = cron_of("0 0 1 1 *", "UTC")
    assert cron.after(LAST_MS - 1) == cron.after(LAST_MS) == LAST_MS
    with pytest.raises(InvalidValue, match="50 years"):
        first_tick("0 0 */20 * 1L", "UTC", ms(2026, 1, 1))


LINES: list[Any] = [
    "", " ", "* * * *", "* * * * * *", "0 * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
    "* * * * 8", "*/0 * * * *", "5-1 * * * *", "a * * * *", "@daily", "0 0 30 2 *", "* * 31 2,4 *",
    "٣ * * * *", "1,,2 * * * *", "* * * * MON#6", "-1 * * * *", "1/ * * * *", "\x00 * * * *", "* * * * *\n*",
    "0" * 129, "* * * * " + "1," * 100 + "1", None, 7, 1.5, True, b"* * * * *", ["*"], {}, object(),
    "\ud800 * * * *",
]  # fmt: skip
ZONES: list[Any] = [
    "", "Mars/Base", "europe/berlin", "Europe", "../../etc/passwd", "/etc/localtime", "localtime", "zone.tab",
    "CET\x00", "Europe/Berlin ", "UTC+2", "x" * 65, None, 7, b"UTC", "\ud800", ["UTC"],
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda each: repr(each).partition(" at 0x")[0][:30])
def test_a_line_that_is_none_is_refused_with_a_hint(line: Any) -> None:
    with pytest.raises(MeshError) as refused:
        first_tick(line, "UTC", 0)
    assert refused.value.hint


@pytest.mark.parametrize("zone", ZONES, ids=lambda each: repr(each).partition(" at 0x")[0][:30])
def test_a_zone_that_is_none_is_refused_with_a_hint(zone: Any) -> None:
    with pytest.raises(MeshError) as refused:
        Cron("0 7 * * *", zone)
    assert refused.value.hint


@pytest.mark.parametrize("meant", ["Europe/Berln", "europe/berlin", "berlin", "Europe/berlin", "Asia/Berlin"])
def test_the_zone_that_was_meant_is_named(meant: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        cron_of("0 7 * * *", meant)
    assert refused.value.hint == "did you mean Europe/Berlin?"


def test_seconds_are_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match=r"6 fields, not 5 \(a schedule has no seconds\)"):
        cron_of("*/10 * * * * *", "UTC")


def test_a_day_before_its_time_is_a_day() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    assert datetime.fromtimestamp(
        first_tick("0 0 * * *", "UTC", round(start.timestamp() * 1000)) / 1000, UTC
    ) == (start + timedelta(days=1))


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Africa/Cairo", (2026, 4, 24)),  # midnight does not come
        ("America/Sao_Paulo", (2006, 11, 5)),
        ("Asia/Beirut", (2026, 10, 25)),  # the hour before midnight comes twice
        ("Atlantic/Azores", (2026, 10, 25)),
        ("Australia/Lord_Howe", (2026, 10, 4)),  # half an hour
        ("Australia/Lord_Howe", (2026, 4, 5)),
        ("Pacific/Apia", (2011, 12, 30)),  # a day does not come
        ("Antarctica/Troll", (2026, 3, 29)),  # two hours
        (BERLIN, (2026, 3, 29)),
    ],
)
@pytest.mark.parametrize(
    "line",
    ["*/7 */2 * * SUN", "*/10 3 * * *", "*/40 1 * * *", "30 */2 * * *", "* 0 * * *", "*/20 * 24-30 * *"],
)
def test_a_line_that_follows_the_hours_has_each_minute_that_passes_and_fits(
    line: str, zone: str, change: tuple[int, int, int]
) -> None:
    """The dumb twin: look at every minute from three days before the change to two days behind it."""
    first = ms(*change, zone=zone) // MINUTE * MINUTE - 3 * DAY
    minutes = range(first + MINUTE, first + 5 * DAY, MINUTE)
    expected = [at for at in minutes if fits(line, datetime.fromtimestamp(at // 1000, ZoneInfo(zone)))]
    cron, at, found = cron_of(line, zone), first, []
    while (at := cron.after(at)) < first + 5 * DAY:
        found.append(at)
    assert found == expected
    assert list(takewhile(lambda at: at < first + 5 * DAY, cron._ticks(first))) == expected


def test_a_repeated_hour_is_found_from_far_away() -> None:
    """From winter to the hour that comes twice, the clock is changed twice, and is as it was."""
    cron, at, found = cron_of("*/30 2 25 10 *", BERLIN), ms(2026, 1, 15, zone=BERLIN), []
    while (at := cron.after(at)) < ms(2027, 1, 1, zone=BERLIN):
        found.append(datetime.fromtimestamp(at // 1000, UTC).strftime("%H:%M"))
    assert found == ["00:00", "00:30", "01:00", "01:30"]


def fits(line: str, local: datetime) -> bool:
    plain = local.replace(tzinfo=None)
    return next(CronSim(line, plain - timedelta(seconds=1))) == plain
