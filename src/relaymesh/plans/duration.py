"""Durations as people write them: `20s`, `90m`, `8h`, `1d`, or a number of seconds."""

from __future__ import annotations

import re
from typing import Any

from relaymesh.kernel.bounds import LEASE_MS_MAX, number, shown
from relaymesh.plans.position import Position

_WRITTEN = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(value: Any, position: Position, least_ms: int = 1) -> int:
    """The duration in milliseconds, between `least_ms` and a year."""
    if isinstance(value, str):
        written = _WRITTEN.fullmatch(value)
        if written is None:
            position.refuse(
                f"{shown(value)} is no duration", "write 500ms, 20s, 90m, 8h, 1d or a number of seconds"
            )
        amount: float = int(written[1]) * _UNIT_MS[written[2]]
    else:
        plain = number(value)
        if plain is None or plain != plain:  # noqa: PLR0124  NaN
            position.refuse(f"must be a duration, not {shown(value)}", 'write "90m" or a number of seconds')
        amount = plain * 1000
    if amount < least_ms:
        position.refuse(f"{shown(value)} is too short: the least is {_shown_ms(least_ms)}")
    if amount > LEASE_MS_MAX:
        position.refuse(f"{shown(value)} is too long: the most is 365d")
    return round(amount)


def _shown_ms(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
