"""Axes with round figures, values in few characters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.pipeline.report.charts.bars import bars
from relaymesh.pipeline.report.charts.days import days
from relaymesh.pipeline.report.charts.heat import heat
from relaymesh.pipeline.report.charts.label import shortened
from relaymesh.pipeline.report.charts.lines import lines
from relaymesh.pipeline.report.charts.scale import (
    scale_of,
    time_text,
    time_ticks,
    value_ticks,
    wide_scale_of,
)
from relaymesh.pipeline.report.figure import Bucket
from relaymesh.pipeline.shown import count, duration, share

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [(0, [0, 1]), (7, [0, 2, 4, 6, 8]), (1_200, [0, 500, 1_000, 1_500]), (0.3, [0, 0.1, 0.2, 0.3])],
)
def test_an_axis_has_round_values(largest: float, ticks: list[float]) -> None:
    assert value_ticks(largest) == ticks


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_an_axis_begins_at_nothing_and_reaches_the_largest_value(largest: float) -> None:
    ticks = value_ticks(largest)
    assert ticks[0] == 0
    assert ticks[-1] >= largest * 0.998
    assert 2 <= len(ticks) <= 7


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=4_000)))
def test_a_time_axis_has_a_few_moments_that_lie_on_it(span: timedelta) -> None:
    ticks = time_ticks(NOON, NOON + span)
    assert len(ticks) <= 9
    assert all(NOON <= tick <= NOON + span for tick in ticks)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=4_000)))
def test_steps_of_time_are_few(span: timedelta) -> None:
    bucket = Bucket.of(NOON, NOON + span)
    assert bucket.sql.startswith("INTERVAL '")
    number, unit = bucket.sql.removeprefix("INTERVAL '").rstrip("'").split()
    assert span / timedelta(**{unit.rstrip("s") + "s": int(number)}) <= 121


def test_midnight_is_written_as_its_day() -> None:
    assert (time_text(NOON), time_text(NOON + timedelta(hours=12))) == ("12:00", "02 Mar")


def test_a_long_axis_names_its_years() -> None:
    moments = [NOON, NOON + timedelta(days=700)]
    drawn = lines("t", moments, {"x": [1.0, 2.0]}, count)
    assert " 2026<" in drawn
    assert " 2027<" in drawn
    assert ">Mar 2026<" in days("t", [each.date() for each in moments], {"x": [1.0, 2.0]}, count)


@pytest.mark.parametrize(
    ("longest", "ticks"),
    [
        (70_500_000, ["0 s", "6 h", "12 h", "18 h", "1 d"]),
        (2_823_631, ["0 s", "15 min", "30 min", "45 min", "1 h"]),
        (900, ["0 s", "500 ms", "1 s"]),
        (0.02, ["0 s", "5 µs", "10 µs", "15 µs", "20 µs"]),
        (1e12, ["0 s", "5,000 d", "10,000 d", "15,000 d"]),
    ],
)
def test_an_axis_of_durations_has_round_durations(longest: float, ticks: list[str]) -> None:
    assert [duration(each) for each in value_ticks(longest, duration)] == ticks


def test_things_are_counted_in_whole_steps() -> None:
    assert value_ticks(2, count) == [0, 1, 2]


def test_one_burst_does_not_flatten_the_rest() -> None:
    scale = scale_of([10, 12, 14, 40, 9, 13_000])
    assert (scale.cut, scale.top) == (True, 40)
    assert (scale.part(40), scale.part(13_000), scale.part(10)) == (1, 1, 0.25)
    assert (scale.is_cut(13_000), scale.is_cut(40), scale.is_cut(None)) == (True, False, False)


@pytest.mark.parametrize("values", [[], [0], [7], [1, 1_000], [1, 2, 1_000], [5, 7, 9, 11, 30], [4] * 20])
def test_a_scale_is_cut_only_by_a_burst(values: list[float]) -> None:
    scale = scale_of(values)
    assert not scale.cut
    assert all(scale.part(value) == value / scale.top for value in values)


def test_a_long_burst_is_drawn_by_its_logarithm() -> None:
    quiet, busy = [10.0, 12.0, 30.0] * 4, [40_000.0, 90_000.0] * 2
    scale = wide_scale_of([*quiet, *busy])
    assert (scale.cut, scale.logarithmic) == (False, True)
    assert scale.ticks == (0, 10, 100, 1_000, 10_000, 100_000)
    assert [scale.level(tick) for tick in scale.ticks] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert not wide_scale_of([*quiet, 45.0, 45.0, 45.0, 45.0]).logarithmic
    moments = [NOON + timedelta(hours=number) for number in range(16)]
    assert "The scale is logarithmic" in lines("t", moments, {"x": [*quiet, *busy]}, count)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e15), min_size=1, max_size=50))
def test_every_value_has_its_level_on_the_axis(values: list[float]) -> None:
    scale = wide_scale_of(values)
    levels = [scale.level(value) for value in sorted(values) if not scale.is_cut(value)]
    assert levels == sorted(levels)
    assert all(0 <= level <= 1.002 for level in levels)
    assert len(scale.ticks) <= 7


def test_parts_of_a_whole_are_never_cut() -> None:
    assert not scale_of([0.6, 0.0006, 0.0005, 0.0004, 0.0003], share).cut
    assert "are cut" not in bars("t", list("abcde"), {"x": [9_000.0, 3, 2, 1, 1]}, count, parts=True)


@given(st.lists(st.floats(min_value=0, max_value=1e15), max_size=200))
def test_a_scale_leaves_at_least_nine_tenths_uncut(values: list[float]) -> None:
    scale = scale_of(values)
    cut = sum(scale.is_cut(value) for value in values)
    assert cut <= max(1, len(values) // 10)
    assert scale.cut == (cut > 0)


def test_a_burst_is_said_where_it_is_cut() -> None:
    quiet: list[float | None] = [10.0, 12.0, 11.0, 9.0]
    moments = [NOON + timedelta(hours=number) for number in range(5)]
    drawn = lines("t", moments, {"accepted": [*quiet, 22_175_000.0]}, count)
    assert "▲ 22.2 M" in drawn
    assert "The scale ends at 15" in drawn
    assert "1 of 5 moments, the highest 22.2 M (accepted, 01 Mar 16:00)" in drawn
    drawn = bars("t", list("abcde"), {"x": [*quiet, 22_175_000.0]}, count)
    assert "Bars above 15 are cut." in drawn
    assert ">22.2 M<" in drawn
    assert "e, x: 22.2 M (22,175,000)" in drawn
    dates = [(NOON + timedelta(days=number)).date() for number in range(5)]
    drawn = days("t", dates, {"x": [*quiet, 22_175_000.0]}, count)
    assert "The highest day is 2026-03-05: 22.2 M." in drawn


def test_a_long_name_loses_its_middle_and_is_told_in_full() -> None:
    name = "team-a/" + "x" * 190 + "/coder"
    short = shortened(name, 20)
    assert (len(short), short[:10], short[-9:]) == (20, "team-a/xxx", "xxx/coder")
    drawn = bars("t", [name], {"messages": [3.0]}, count)
    assert f'title="{name}"' in drawn
    assert f"<title>{name}, messages: 3</title>" in drawn


@given(st.text(max_size=300), st.integers(min_value=8, max_value=60))
def test_a_name_is_never_cut_at_its_front(name: str, most: int) -> None:
    short, whole = shortened(name, most), " ".join(name.split())
    if short != whole:
        head, tail = short.split("…", 1) if "…" not in whole else (short[:2], short[-1:])
        assert head
        assert whole.startswith(head)
        assert whole.endswith(tail)
    assert len(short.encode("utf-16-le")) <= len(whole.encode("utf-16-le"))


def test_a_wide_letter_takes_the_room_of_two() -> None:
    assert shortened("注文" * 20, 11) == "注文…注文"


def test_days_run_from_the_oldest_at_the_left() -> None:
    dates = [NOON.date(), (NOON + timedelta(days=1)).date()]
    drawn = days("t", dates, {"x": [1.0, 2.0]}, count)
    assert drawn.index("01 Mar") < drawn.index("02 Mar")
    assert drawn.index("x, 2026-03-01: 1") < drawn.index("x, 2026-03-02: 2")


def test_heat_says_what_its_colours_mean() -> None:
    drawn = heat("t", ["a", "b"], ["P1"], {("a", "P1"): 20.0, ("b", "P1"): 90_000.0}, duration, "p95")
    legend = drawn[drawn.index('class="scale"') :]
    assert "p95: " in legend
    assert legend.index("20 ms") < legend.index("h0") < legend.index("h7") < legend.index("1 min 30 s")


def test_a_value_that_is_not_known_is_said_and_no_bar() -> None:
    drawn = bars("t", ["a"], {"x": [None]}, count)
    assert "not known" in drawn
    assert "<rect" not in drawn


def test_one_moment_is_a_picture_too() -> None:
    drawn = lines("t", [NOON], {"x": [3.0], "y": [None]}, count)
    assert "x, 2026-03-01 12:00:00: 3" in drawn
    assert "nan" not in drawn.lower()
