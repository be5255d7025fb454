"""Where failures end: dead letters and drops."""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.kernel.contract import TTL_EXPIRED
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.leases import give_back
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.notices import is_notice, notify, wants_nack
from relaymesh.kernel.records import DeadLettered, DeadLettersPurged, Dropped, Failure
from relaymesh.kernel.step import Ended


def bury(
    decision: Decision,
    mailbox: Mailbox,
    entries: list[Entry],
    reason: str,
    failures: Sequence[Failure] = (),
    alert: bool = False,
) -> None:
    """Dead-letter entries, pending or leased, and tell senders that asked to be told."""
    sequences = [entry.sequence for entry in entries]
    links = decision.state.board.links
    if links and any(each in links and links[each].step.undoes >= 0 for each in sequences):
        alert = True  # what was to be undone is not
    later: list[Lease] = []
    if mailbox.settings.halt_on_dead_letter:
        for entry in entries:
            later.extend(mailbox.leases_after(entry.lease) if entry.lease is not None else ())
    decision.emit(
        DeadLettered(
            len(sequences), decision.now, mailbox.address, sequences, reason, list(failures), alert=alert
        )
    )
    give_back(decision, mailbox.address, later)
    decision.step.freed = True
    for i, entry in enumerate(entries):
        failure = failures[i] if failures else Failure(entry.attempts, decision.now, reason)
        refused(decision, mailbox.address, entry, failure, "dead_letter", alert)
    forget_redriven(decision, mailbox.address)


def expire(decision: Decision, mailbox: Mailbox, entries: list[Entry]) -> None:
    """Settle entries whose TTL is over: as dead letters, but notices of the mesh itself are dropped."""
    partition = decision.state.partition
    unread = [entry for entry in entries if is_notice(entry, partition)]
    if unread:
        entries = [entry for entry in entries if not is_notice(entry, partition)]
        drop(decision, mailbox.address, unread, Failure(0, decision.now, TTL_EXPIRED))
    if entries:
        bury(decision, mailbox, entries, TTL_EXPIRED)


def forget_redriven(decision: Decision, address: str) -> None:
    """Purge the oldest redriven letters of a mailbox that keeps more than its budget for dead letters."""
    mailbox = decision.state.mailboxes.get(address)
    if mailbox is not None and (gone := decision.state.letters.of(address).surplus(mailbox.settings)):
        decision.emit(DeadLettersPurged(len(gone), decision.now, address, gone))


def drop(decision: Decision, address: str, entries: list[Entry], failure: Failure) -> None:
    """Settle entries without a dead letter, counted, and tell senders that asked to be told."""
    sequences = [entry.sequence for entry in entries]
    decision.emit(Dropped(len(entries), decision.now, address, sequences, failure.code))
    decision.step.freed = True
    for entry in entries:
        refused(decision, address, entry, failure, "dropped")


def refused(
    decision: Decision, address: str, entry: Entry, failure: Failure, final_state: str, alert: bool = False
) -> None:
    """The message will never be done here: log one line, and tell the sender if it asked to be told."""
    id = entry.envelope.id
    decision.ended(
        Ended(address, id, entry.attempts, failure.code, False, final_state, failure.reason, alert)
    )
    if wants_nack(entry.envelope):
        notify(decision, address, entry.envelope, failure)
