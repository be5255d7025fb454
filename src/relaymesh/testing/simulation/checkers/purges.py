"""Dead letters that were removed for good: because a client asked, or for their age and then archived."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relaymesh.testing.simulation.entries import Purge
from relaymesh.testing.simulation.history import History
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.verdict import Violation

DAY_MS = 86_400_000


def check_purges(history: History, ledger: Ledger, files: Mapping[str, bytes]) -> list[Purge]:
    """Returns those that were purged for their age."""
    asked = {(each.mailbox, each.dead_sequence) for each in history.redrives if each.purge}
    aged = [each for each in ledger.purges if (each.mailbox, each.dead_sequence) not in asked]
    if not aged:
        return []
    lines = [
        line
        for name, data in files.items()
        if name.startswith("dead-letters/")
        for line in map(_read, data.split(b"\n"))
        if line is not None
    ]
    archived = {(line["receiver"], line["deadSequence"], line["messageId"]) for line in lines}
    age_ms = int(history.plan.settings.dead_letter_days * DAY_MS)
    for purge in aged:
        what = f"dead letter {purge.dead_sequence} of {purge.mailbox}"
        if purge.at - purge.letter.dead_at <= age_ms:
            raise Violation("purged_for_a_reason", f"{what} is purged, not {age_ms} ms old, and unasked")
        if (purge.mailbox, purge.dead_sequence, purge.letter.id) not in archived:
            raise Violation("purged_for_a_reason", f"{what} is purged for its age, and is not archived")
    return aged


def _read(line: bytes) -> dict[str, Any] | None:
    """None: a power loss left no whole line there. Its letter must be in another one."""
    try:
        found: dict[str, Any] = json.loads(line.decode())
    except ValueError:
        return None
    return found
