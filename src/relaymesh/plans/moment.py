"""Timestamps as people write them: RFC 3339 timestamps with an offset, such as `2026-11-20T07:00:00Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_WRITTEN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_ms(text: str) -> int | None:
    """The timestamp in milliseconds since 1970; None: the text is not a timestamp, or is before 1970."""
    if not _WRITTEN.fullmatch(text):
        return None
    try:
        since = datetime.fromisoformat(text.upper()) - _EPOCH
    except (ValueError, OverflowError):  # such as the 30th of February
        return None
    ms = since // timedelta(milliseconds=1)
    return ms if ms >= 0 else None
