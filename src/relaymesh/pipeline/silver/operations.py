"""Which operations of bronze do what to a message. `kernel/state.py` is the truth they follow."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

ACCEPTS = ("APPEND", "PUBLISH", "REDRIVE")
BURNING = ("NACK", "LEASE_EXPIRED", "RECLAIM", "ABANDON")
"""Returns that count the attempt."""
UNBURNED = ("DEFER", "RELEASE")
RETURNS = (*BURNING, *UNBURNED)
ASKED = ("NACK", "DEFER")
"""Returns whose due time a nack set: the TTL does not count the wait until then."""
SETTLES = ("ACK", "DROP", "DEAD_LETTER")
CHANGES = ("REPRIORITISE", "FORCE_DELIVER", "COMPLETE")
NAMING = ("GRANT", *RETURNS, *SETTLES, *CHANGES)
"""Operations that name a message which is there already."""
OF_TASKS = (
    "SUBMIT", "STEP_SENT", "STEP_ENDED", "STEPS_ADDED", "TASK_CLOSING", "TASK_ENDED", "STEP_WAITS", "SIGNAL",
    "STEP_WITHDRAWN", "TASK_UNDOING", "USAGE", "BUDGET_PAUSED", "BUDGET_SET",
)  # fmt: skip
"""Operations that name a task: in their rows `task_id` is the task itself."""
KEY = ("message_sequence", "mailbox", "partition")
"""What names a message. The number comes first: a sort of Spark compares eight bytes of the first column, and
looks at the others, and at rows, only where those are the same."""

FINAL_STATES = {"ACK": "acked", "DROP": "dropped", "DEAD_LETTER": "dead"}
OUTCOMES = {
    **FINAL_STATES,
    "NACK": "nack",
    "LEASE_EXPIRED": "lease_expired",
    "RECLAIM": "reclaimed",
    "ABANDON": "abandoned",
    "DEFER": "deferred",
    "RELEASE": "released",
}

YEAR_9999_MS = 253_402_300_799_999


def is_one(*operations: str) -> Column:
    """Whether the row is one of these operations."""
    return f.col("operation").isin(*operations)


def namespace() -> Column:
    return f.substring_index("mailbox", "/", 1)


def first_due() -> Column:
    """Of an accepting row: when it may first be delivered. A redriven message is due at once."""
    delay = f.when(is_one("REDRIVE"), 0).otherwise(f.greatest(f.coalesce("delay_ms", f.lit(0)), f.lit(0)))
    return later(f.col("timestamp"), delay)


def later(time: Column, ms: Column) -> Column:
    """`ms` after `time`, or the end of the year 9999 if that is earlier."""
    end = f.lit(YEAR_9999_MS)
    return f.timestamp_millis(f.least(f.unix_millis(time) + f.least(ms, end), end))


def named(value: Column, names: dict[str, str]) -> Column:
    """The name that stands for the value; null for any other."""
    pairs = [f.lit(part) for pair in names.items() for part in pair]
    return f.create_map(*pairs)[value]
