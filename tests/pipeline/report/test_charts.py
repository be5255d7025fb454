"""Axes with round figures, values in few characters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.pipeline.report.charts.bars import bars
from relaymesh.pipeline.report.charts.lines import lines
from relaymesh.pipeline.report.charts.scale import time_text, time_ticks, value_ticks
from relaymesh.pipeline.report.charts.svg import shortened
from relaymesh.pipeline.report.figure import Bucket
from relaymesh.pipeline.report.shown import cell, count, dollars, milliseconds, share

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


def test_values_are_short_and_have_their_units() -> None:
    assert [count(value) for value in (0, 950, 9_999, 12_345, 4_560_000, 0.5)] == [
        "0", "950", "9999", "12.3 k", "4.56 M", "0.5",
    ]  # fmt: skip
    assert [milliseconds(value) for value in (0.5, 850, 12_300, 300_000, 9_000_000, 259_200_000)] == [
        "0.5 ms", "850 ms", "12.3 s", "5 min", "2.5 h", "3 d",
    ]  # fmt: skip
    assert [share(value) for value in (0, 0.125, 1, 1e-9)] == ["0 %", "12.5 %", "100 %", "< 0.001 %"]
    assert [dollars(value) for value in (1234.5, 0.0123)] == ["$1,234.50", "$0.0123"]
    assert [cell(value) for value in (None, True, 0.1 + 0.2, float("nan"), NOON, NOON.date(), 7)] == [
        "–", "yes", "0.3", "–", "2026-03-01 12:00:00", "2026-03-01", "7",
    ]  # fmt: skip


def test_a_long_name_keeps_its_end_and_is_told_in_full() -> None:
    name = "default/" + "team-" * 10 + "coder"
    assert shortened(name, 10).endswith("-coder")
    drawn = bars("t", [name], {"messages": [3.0]}, count)
    assert f"<title>{name}</title>" in drawn


def test_a_value_that_is_not_known_is_said_and_no_bar() -> None:
    drawn = bars("t", ["a"], {"x": [None]}, count)
    assert "not known" in drawn
    assert "<rect" not in drawn


def test_one_moment_is_a_picture_too() -> None:
    drawn = lines("t", [NOON], {"x": [3.0], "y": [None]}, count)
    assert "x, 2026-03-01 12:00:00: 3" in drawn
    assert "nan" not in drawn.lower()
