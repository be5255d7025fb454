"""Priorities that change while messages wait."""

from __future__ import annotations

from relaymesh.kernel.commands import Reprioritise
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.pending import LEASED
from relaymesh.kernel.records import Reprioritised


def reprioritise(decision: Decision, command: Reprioritise) -> int:
    """Pending messages only: what is out with a holder keeps its priority until it comes back."""
    mailbox = decision.mailbox(command.mailbox)
    sequences = [
        entry.sequence
        for entry in mailbox.entries.values()
        if entry.state != LEASED
        and entry.priority != command.priority
        and (command.ids is None or entry.envelope.id in command.ids)
    ]
    if sequences:
        decision.emit(
            Reprioritised(len(sequences), decision.now, mailbox.address, sequences, command.priority)
        )
    decision.after_sync()
    return len(sequences)
