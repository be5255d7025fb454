"""What a send returns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from relaymesh.kernel import step
from relaymesh.wire.envelope import when


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The mesh has the message: it will be delivered or dead-lettered with a reason; until then it is
    pending.
    """

    id: str
    """The id of the message: the given one, or the generated one."""
    sequence: int
    """The sequence of the event that accepted it; for a duplicate, of the event that accepted the original.
    """
    duplicate: bool = False
    """The same id was accepted before; this is its receipt."""
    targets: int = 1
    """How many mailboxes it went to; 0 for a publish without subscribers."""
    scheduled_at: datetime | None = None
    """When it is delivered, for a delayed message."""
    notes: tuple[str, ...] = ()
    """Values that were replaced, such as a negative delay."""


def receipts_of(given: Sequence[step.Receipt], notes: dict[int, str]) -> list[Receipt]:
    receipts = [
        Receipt(each.id, each.sequence, each.duplicate, each.targets, when(each.due) if each.due else None)
        for each in given
    ]
    for i, note in notes.items():
        receipts[i] = msgspec.structs.replace(receipts[i], notes=(note,))
    return receipts
