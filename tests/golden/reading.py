"""Golden directories as a stranger reads them: with tests/journal/stranger.py, and no code of the product."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.journal.stranger import all_payloads

OPERATIONS = {
    1: "EpochStarted",
    2: "MailboxOpened",
    3: "Subscribed",
    4: "Unsubscribed",
    5: "Accepted",
    6: "Published",
    7: "Granted",
    8: "Acked",
    9: "Dropped",
    10: "Returned",
    11: "DeadLettered",
    12: "Redriven",
    13: "DeadLettersPurged",
    14: "Reprioritised",
    15: "DelayedForced",
    16: "Completed",
    128: "AgentRegistered",
}


def records_of(path: Path) -> list[list[Any]]:
    """Every record in order, as plain lists: `[operation, count, at_ms, ...]`."""
    files = {
        f"{folder}/{file.name}": file.read_bytes()
        for folder in ("journal", "archive")
        for file in (path / folder).glob("*.rmj")
    }
    return [record for payload in all_payloads(files) for record in msgspec.msgpack.decode(payload)]


def operations_of(path: Path) -> Counter[str]:
    """How many events of each operation the journal holds."""
    events: Counter[str] = Counter()
    for operation, count, *_ in records_of(path):
        events[OPERATIONS[operation]] += count
    return events
