"""What a sender gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from relaymesh.kernel import step
from relaymesh.wire.envelope import when


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The message is in the mesh's hands: delivered, dead-lettered with a reason, or still pending."""

    id: str
    """The id of the message: the one that was given, or the one that was made for it."""
    sequence: int
    """The event of the journal that accepted it; of a duplicate, the one that accepted the original."""
    duplicate: bool = False
    """The same id was accepted before; this is the receipt of that one."""
    targets: int = 1
    """How many mailboxes it went to; 0 for a publish nobody subscribes to."""
    scheduled_at: datetime | None = None
    """When it is delivered, for a delayed message."""
    notes: tuple[str, ...] = ()
    """What was not taken literally, such as a negative delay."""


def receipts_of(given: Sequence[step.Receipt], notes: dict[int, str]) -> list[Receipt]:
    receipts = [
        Receipt(each.id, each.sequence, each.duplicate, each.targets, when(each.due) if each.due else None)
        for each in given
    ]
    for i, note in notes.items():
        receipts[i] = msgspec.structs.replace(receipts[i], notes=(note,))
    return receipts
