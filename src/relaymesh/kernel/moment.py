"""Mesh time for people: ISO 8601 in UTC, computed without the operating system's calendar."""

from __future__ import annotations

from functools import lru_cache

NEVER = 1 << 62
"""A time that never comes."""
YEAR_1_MS = -62_135_596_800_000
YEAR_10000_MS = 253_402_300_800_000


def iso(ms: int) -> str:
    """`2026-03-01T00:00:01.000Z`. Times outside the years 1 to 9999 are shown as the end of them."""
    ms = min(max(ms, YEAR_1_MS), YEAR_10000_MS - 1)
    seconds, thousandths = divmod(ms, 1000)
    return f"{_second(seconds)}.{thousandths:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    """Messages of one batch share a second: its date is computed once."""
    days, rest = divmod(seconds, 86_400)
    year, month, day = _date(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day, so many days after 1970-01-01 (Howard Hinnant, `civil_from_days`).

    Years are counted from March, so that the leap day is the last of its year, and in eras of 400 years.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return era * 400 + year + (month <= 2), month, day
