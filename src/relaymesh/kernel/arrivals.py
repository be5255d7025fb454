"""Arrivals: delayed messages become ready, at their time or by force."""

from __future__ import annotations

from relaymesh.kernel.commands import ForceDelayed
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.pending import DELAYED
from relaymesh.kernel.records import DelayedForced
from relaymesh.kernel.step import Arrived


def arrive(decision: Decision, mailbox: Mailbox, entry: Entry) -> None:
    if entry.ready_at == entry.due_at:
        _note_arrival(decision, mailbox, entry, entry.due_at, forced=False)
    decision.state.arrive(mailbox, entry)


def force_delayed(decision: Decision, command: ForceDelayed) -> int:
    """Delayed messages are all due now, and so in send order."""
    count = 0
    for mailbox in list(decision.state.mailboxes.values()):
        if mailbox.delayed and command.mailbox in (None, mailbox.address):
            early = [e for e in mailbox.entries.values() if e.state == DELAYED and e.ready_at == e.due_at]
            for entry in early:
                _note_arrival(decision, mailbox, entry, entry.due_at, forced=True)
            sequences = [entry.sequence for entry in early]
            decision.emit(DelayedForced(len(early), decision.now, mailbox.address, sequences))
            count += len(early)
    decision.after_sync()
    return count


def _note_arrival(decision: Decision, mailbox: Mailbox, entry: Entry, due: int, *, forced: bool) -> None:
    if decision.step.arrived is None:
        decision.step.arrived = []
    decision.step.arrived.append(Arrived(mailbox.address, entry.envelope.id, due, decision.now, forced))
