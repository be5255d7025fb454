"""Numbers as people read them: no exponent, thousands kept apart, a unit that fits the size."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.pipeline.shown import (
    Cell,
    Show,
    cell,
    count,
    dollars,
    duration,
    exact,
    heading,
    per_second,
    share,
    size,
    words_of,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
S, MIN, H, D = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (950, "950"), (9_999, "9,999"), (12_345, "12,345"), (999_999, "999,999"),
        (22_175_000, "22.2 M"), (999_999_999, "1 G"), (10**12, "1 T"), (10**15, "1,000 T"),
        (0.1671, "0.167"), (0.00001, "< 0.0001"), (-5_000, "−5,000"), (float("nan"), "–"),
    ],
)  # fmt: skip
def test_a_count(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 s"), (0.0001, "< 1 µs"), (0.35, "350 µs"), (1, "1 ms"), (850, "850 ms"), (999.9, "1 s"),
        (12.34 * S, "12.3 s"), (59.96 * S, "1 min"), (2_823_631, "47 min 4 s"), (5 * MIN, "5 min"),
        (59 * MIN + 59.7 * S, "1 h"), (2.5 * H, "2 h 30 min"), (23.999 * H, "1 d"),
        (3 * D + 4 * H, "3 d 4 h"), (10**12, "11,574 d 2 h"), (-90 * S, "−1 min 30 s"),
    ],
)  # fmt: skip
def test_a_duration(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (950, "950 B"), (1_536, "1.5 KiB"), (1.2 * 2**30, "1.2 GiB"), (10**12, "931 GiB")],
)
def test_a_size(octets: float, text: str) -> None:
    assert size(octets) == text


def test_shares_money_and_rates() -> None:
    assert [share(value) for value in (0, 0.125, 1, 1e-9)] == ["0 %", "12.5 %", "100 %", "< 0.001 %"]
    assert [dollars(value) for value in (0, 1234.5, 0.0123, 22_175_000.0, 1e-9)] == [
        "$0.00", "$1,234.50", "$0.0123", "$22.2 M", "< $0.0001",
    ]  # fmt: skip
    assert [per_second(value) for value in (9, 0.525)] == ["9/s", "0.525/s"]


@given(
    st.sampled_from([count, duration, size, share, dollars, per_second]),
    st.floats(min_value=0, max_value=1e18, allow_nan=False),
)
def test_no_number_has_an_exponent_or_four_digits_without_a_comma(show: Show, value: float) -> None:
    text = show(value)
    assert not re.search(r"e[+-]?\d|(?<![\d.])\d{4}", text), text


@given(st.floats(min_value=1, max_value=1e12))
def test_a_longer_duration_is_never_written_as_a_shorter_one(milliseconds: float) -> None:
    units = {"ms": 1, "s": S, "min": MIN, "h": H, "d": D}
    parts = re.findall(r"([\d.,]+) (ms|s|min|h|d)", duration(milliseconds))
    told = sum(float(number.replace(",", "")) * units[unit] for number, unit in parts)
    assert told == pytest.approx(milliseconds, rel=0.01)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("latency_p95_ms", 2_823_631.0, Cell("47 min 4 s", "2,823,631 ms", "n")),
        ("buffer_bytes", 30_000, Cell("29.3 KiB", "30,000 bytes", "n")),
        ("traffic_share", 0.591, Cell("59.1 %", "0.591", "n")),
        ("p_fail", 0.2, Cell("20 %", "0.2", "n")),
        ("cost_usd", 0.25, Cell("$0.25", "0.25 USD", "n")),
        ("lambda_p95", 9.0, Cell("9/s", "9 per second", "n")),
        ("backlog_minutes", 90, Cell("1 h 30 min", "90 min", "n")),
        ("accepted", 22_175_000, Cell("22,175,000", "", "n")),
        ("mean", 0.123456, Cell("0.123", "0.123456", "n")),
        ("example_sequence", 1_234_567, Cell("1234567", "", "n")),
        ("passed", True, Cell("✓ yes")),
        ("last_seen", NOON, Cell("2026-03-01 12:00:00")),
        ("day", NOON.date(), Cell("2026-03-01")),
        ("cost_usd", None, Cell("–")),
        ("cost_usd", float("nan"), Cell("–")),
        ("error", "e" * 40, Cell("e" * 40, "", "long")),
    ],
)
def test_a_column_says_the_unit_of_its_values(column: str, value: object, expected: Cell) -> None:
    assert cell(column, value, {column: value}) == expected


def test_a_unit_may_stand_in_another_column() -> None:
    alert = {"peak": 90_000.0, "threshold": 5_000.0, "unit": "ms"}
    assert cell("peak", 90_000.0, alert).text == "1 min 30 s"
    assert cell("peak", 0.5, {"peak": 0.5, "unit": "share"}).text == "50 %"
    assert cell("peak", 1_200.0, {"peak": 1_200.0, "unit": "messages"}).text == "1,200"
    assert cell("value", 22_314_197.9, {"value": 22_314_197.9, "metric": "freshness_s"}) == Cell(
        "258 d 6 h", "22,314,197.9 s", "n"
    )


def test_a_heading_leaves_out_the_unit_that_its_values_have() -> None:
    assert [heading(name) for name in ("latency_p95_ms", "cost_usd", "first_seen", "bytes")] == [
        "latency p95", "cost", "first seen", "bytes",
    ]  # fmt: skip


def test_a_value_as_it_is_keeps_its_digits() -> None:
    values = (None, True, 0.1 + 0.2, float("nan"), NOON, NOON.date(), 7, 22_175_000.5, 1e-7, "word")
    assert [words_of(value) for value in values] == [
        "–", "yes", "0.3", "–", "2026-03-01 12:00:00", "2026-03-01", "7", "22175000.5", "1e-07", "word",
    ]  # fmt: skip


def test_the_exact_value_has_every_digit() -> None:
    assert [exact(value) for value in (22_175_000, 2_823_631.0, 0.1 + 0.2, 10**12)] == [
        "22,175,000", "2,823,631", "0.30000000000000004", "1,000,000,000,000",
    ]  # fmt: skip
