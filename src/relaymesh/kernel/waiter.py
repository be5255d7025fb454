"""Who waits for deliveries."""

from __future__ import annotations

import msgspec


class Waiter(msgspec.Struct, eq=False):
    """Somebody waits for deliveries. Volatile."""

    holder: str
    max: int
    correlation_id: str | None = None
    remote: bool = False
    lease_ms: int = 0
