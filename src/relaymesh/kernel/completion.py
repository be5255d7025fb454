"""Where successes end: a message that is done, and the word to a sender that asked for one."""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entries import sequences_of
from relaymesh.kernel.notices import notify
from relaymesh.kernel.parcel import Parcel, Part
from relaymesh.kernel.records import Acked
from relaymesh.kernel.step import Ended


def finish(decision: Decision, address: str, parts: Sequence[Part]) -> None:
    """Settle leased messages as done, and tell senders that asked to be told."""
    sequences = sequences_of(parts)
    decision.emit(Acked(len(sequences), decision.now, address, sequences))
    decision.step.freed = True
    for entry in parts:
        if isinstance(entry, Parcel):
            continue  # first attempts, and no sender asked to be told
        if entry.attempts > 1:
            id = entry.envelope.id
            decision.ended(Ended(address, id, entry.attempts, "", False, "success"))
        if entry.envelope.requires_ack:
            notify(decision, address, entry.envelope, None)
