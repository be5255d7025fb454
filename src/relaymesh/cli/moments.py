"""Times as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from relaymesh.cli.failure import UsageFailed

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_since(text: str, option: str = "--since") -> datetime:
    """`30m`, `2h`, `7d` ago, or a date or time in ISO 8601 (UTC unless it says otherwise)."""
    span = _SPAN.match(text)
    try:
        if span:
            return datetime.now(UTC) - timedelta(seconds=float(span[1]) * _SECONDS[span[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageFailed(
            f"{option} {text!r} is neither a span nor a time",
            hint="write 30m, 2h or 7d, or a time as 2026-03-01T12:00",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_span(text: str, option: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d`: up to a hundred years."""
    span = _SPAN.match(text)
    try:
        length = timedelta(seconds=float(span[1]) * _SECONDS[span[2]]) if span and text.isascii() else None
    except OverflowError:
        length = None
    if length is None or length > timedelta(days=36_500):
        raise UsageFailed(f"{option} {text!r} is not a span of time", hint="write 7d, 12h, 30m or 90s")
    return length


def span_text(seconds: float) -> str:
    """`850ms`, `12s`, `3m`, `2h`, `5d`: the largest unit that gives at least 1, rounded down."""
    if 0 < seconds < 1:
        return f"{int(seconds * 1000)}ms"
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit]:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{int(max(0, seconds))}s"


def bytes_text(size: float) -> str:
    """In powers of 1000, as disks are sold."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
