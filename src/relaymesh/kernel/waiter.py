"""A waiter: a receive that was not served yet, as the kernel keeps it."""

from __future__ import annotations

import msgspec


class Waiter(msgspec.Struct, eq=False):
    """Who receives, how much, and under which lease. Volatile. Two waiters with the same fields are two."""

    holder: str
    max: int
    correlation_id: str | None = None
    remote: bool = False
    lease_ms: int = 0
