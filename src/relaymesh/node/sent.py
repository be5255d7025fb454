"""Logs and counters of sends: duplicates, delayed messages, and refused sends."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from relaymesh.errors import Refused
from relaymesh.kernel.step import Repeated, Scheduled
from relaymesh.node.clock import MeshTime
from relaymesh.wire.envelope import iso

__all__ = ["Refusals", "log_sent"]

log = logging.getLogger("relaymesh.admission")

QUIET_MS = 1_000
"""Refusals of one kind are logged once per this time: a sender may try a full mailbox in a loop."""


def log_sent(sent: Sequence[Repeated | Scheduled]) -> None:
    """Log a line for each duplicate and each delayed message, if the log level shows them."""
    if not log.isEnabledFor(logging.INFO):
        return
    for each in sent:
        fields: dict[str, object] = {"message_id": each.message_id, "to": each.target, "sender": each.sender}
        what = "duplicate message skipped"
        if isinstance(each, Scheduled):
            what = "delayed message sent"
            fields |= {"delay_ms": each.delay_ms, "deliver_at": iso(each.due)}
        log.info("%s: %s", what, " ".join(f"{k}={v}" for k, v in fields.items()), extra=fields)


class Refusals:
    """Counts sends and publishes that the mesh refused since the start, by error code. Thread-safe."""

    def __init__(self, time: MeshTime) -> None:
        self._time = time
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[int, int]] = {}
        """By code: when a line was last written, and the count then."""

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def note(self, error: Refused) -> None:
        """Count a refusal, and log it unless one like it was logged just now."""
        code, now = error.code, self._time.now()
        with self._lock:
            self._counts[code] += 1
            total = self._counts[code]
            at, before = self._logged.get(code, (now - QUIET_MS, 0))
            if now - at < QUIET_MS:
                return
            self._logged[code] = now, total
        fields = {"error_code": code, "count": total - before}
        text = "send refused: error_code=%s count=%d reason=%s"
        log.warning(text, code, total - before, error.message, extra=fields)
