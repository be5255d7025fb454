"""A journal written by hand, one event after the other, as rows of bronze.

    journal = Journal()
    journal.open("default/coder")
    m = journal.append("default/coder", "m1")
    journal.at(100).grant("default/coder", m)
    journal.at(250).ack("default/coder", m)

Times are milliseconds after `NOON`. Each call is one event and answers its sequence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from relaymesh.kernel.token import TOKEN_COUNTER_BITS
from relaymesh.pipeline.schema.bronze import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NAMES = EVENTS.fieldNames()
CODES = {
    "START": 1, "OPEN_MAILBOX": 2, "SUBSCRIBE": 3, "UNSUBSCRIBE": 4, "APPEND": 5, "PUBLISH": 6, "GRANT": 7,
    "ACK": 8, "DROP": 9, "NACK": 10, "LEASE_EXPIRED": 10, "RECLAIM": 10, "DEFER": 10, "RELEASE": 10,
    "DEAD_LETTER": 11, "REDRIVE": 12, "PURGE": 13, "REPRIORITISE": 14, "FORCE_DELIVER": 15, "COMPLETE": 16,
    "SUSPEND": 17, "RESUME": 18,
}  # fmt: skip

Row = dict[str, Any]


def moment(ms: float) -> datetime:
    """So many milliseconds after noon."""
    return NOON + timedelta(milliseconds=ms)


def bronze(spark: SparkSession, *journals: Journal | Iterable[Row]) -> DataFrame:
    """The rows of some journals as one DataFrame."""
    rows = [
        row for journal in journals for row in (journal.rows if isinstance(journal, Journal) else journal)
    ]
    return spark.createDataFrame([tuple(row[name] for name in NAMES) for row in rows], EVENTS)


class Journal:
    """Events of one partition in the order in which they are written."""

    def __init__(self, partition: int = 0, *, first: int = 1, start: bool = True) -> None:
        self.partition = partition
        self.rows: list[Row] = []
        self.epoch = 1
        self.ms = 0.0
        self._next = first
        self._token = 1
        self._ids: dict[int, str] = {}
        if start:
            self.event("START")

    def at(self, ms: float) -> Journal:
        self.ms = ms
        return self

    def event(self, operation: str, **columns: Any) -> int:
        sequence, now = self._next, moment(self.ms)
        self._next += 1
        row: Row = dict.fromkeys(NAMES)
        row |= {
            "partition": self.partition,
            "sequence": sequence,
            "timestamp": now,
            "event_date": now.date(),
            "operation": operation,
            "operation_code": CODES.get(operation, 128),
            "epoch": self.epoch,
            "source": "data",
            "segment": "00000001.rmj",
            "frame_offset": 64,
        }
        if operation in ("APPEND", "PUBLISH", "REDRIVE"):
            row["message_sequence"] = sequence
        if operation == "DEAD_LETTER":
            row["dead_sequence"] = sequence
        unknown = columns.keys() - row.keys()
        assert not unknown, unknown
        self.rows.append(row | columns)
        return sequence

    def restart(self) -> int:
        self.epoch += 1
        self._token = 1
        return self.event("START")

    # -- mailboxes

    def open(self, mailbox: str, **settings: Any) -> int:
        return self.event("OPEN_MAILBOX", mailbox=mailbox, settings=json.dumps(settings))

    def subscribe(self, pattern: str, name: str = "s", **settings: Any) -> str:
        mailbox = f"{pattern}:{name}"
        self.event("SUBSCRIBE", mailbox=mailbox, pattern=pattern, settings=json.dumps(settings))
        return mailbox

    def unsubscribe(self, mailbox: str) -> int:
        return self.event("UNSUBSCRIBE", mailbox=mailbox, pattern=mailbox.rpartition(":")[0])

    # -- messages

    def append(self, mailbox: str, id: str, **columns: Any) -> int:
        return self.event("APPEND", mailbox=mailbox, **_envelope(id, columns))

    def publish(self, topic: str, id: str, targets: int, **columns: Any) -> int:
        return self.event("PUBLISH", topic=topic, targets=targets, **_envelope(id, columns))

    def redrive(self, source: str, dead: int, to: str, id: str, **columns: Any) -> int:
        fields = _envelope(id, columns)
        return self.event("REDRIVE", mailbox=to, source_mailbox=source, dead_sequence=dead, **fields)

    def purge(self, mailbox: str, dead: int) -> int:
        return self.event("PURGE", mailbox=mailbox, dead_sequence=dead)

    def grant(self, mailbox: str, *messages: int, holder: str = "w1", **columns: Any) -> int:
        """Leases in one record; answers the last one's sequence."""
        sequence = 0
        for message in messages:
            token = self.epoch << TOKEN_COUNTER_BITS | self._token
            self._token += 1
            fields = {"holder": holder, "lease_token": token, "lease_ms": 0, "remote": False} | columns
            sequence = self.event("GRANT", mailbox=mailbox, message_sequence=message, **fields)
        return sequence

    def ack(self, mailbox: str, *messages: int) -> int:
        return [self.event("ACK", mailbox=mailbox, message_sequence=m) for m in messages][-1]

    def drop(self, mailbox: str, message: int, code: str) -> int:
        return self.event("DROP", mailbox=mailbox, message_sequence=message, code=code)

    def back(
        self, operation: str, mailbox: str, message: int, *, due: float | None = None, **columns: Any
    ) -> int:
        """NACK, LEASE_EXPIRED, RECLAIM, DEFER or RELEASE: due at once unless it is said when."""
        when = moment(self.ms if due is None else due)
        return self.event(operation, mailbox=mailbox, message_sequence=message, due_at=when, **columns)

    def nack(
        self, mailbox: str, message: int, attempt: int, code: str = "other", due: float | None = None
    ) -> int:
        return self.back("NACK", mailbox, message, due=due, attempt=attempt, code=code, error=f"{code}!")

    def dead(self, mailbox: str, message: int, reason: str, code: str | None = None, **columns: Any) -> int:
        fields = {"reason": reason, "code": code, "alert": False} | columns
        return self.event("DEAD_LETTER", mailbox=mailbox, message_sequence=message, **fields)


def _envelope(id: str, columns: dict[str, Any]) -> dict[str, Any]:
    given = {
        "message_id": id,
        "sender": "default/planner",
        "type": "message",
        "priority": 3,
        "ttl_ms": 3_600_000,
        "delay_ms": 0,
        "requires_ack": False,
        "tags": [],
        "encoding": 0,
        "content_bytes": 10,
    }
    return given | columns
