"""Where failures end: dead letters, and the word to a sender that asked for one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relaymesh.kernel.contract import TIMEOUT
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entries import sequences_of
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.leases import give_back
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.moment import iso
from relaymesh.kernel.parcel import Parcel, Part
from relaymesh.kernel.records import Accepted, Acked, DeadLettered, DeadLettersPurged, Dropped, Failure
from relaymesh.kernel.step import Ended

TTL_EXPIRED = "ttl_expired"
MAILBOX_FULL = "mailbox_full"
AGENT_BUSY = "AGENT_BUSY"
AGENT_OFFLINE = "AGENT_OFFLINE"
NOTICES = ("ack", "nack")


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
    """The message will never be done here: one log line, and the word to whoever waits for it."""
    id = entry.envelope.id
    decision.ended(
        Ended(address, id, entry.attempts, failure.code, False, final_state, failure.reason, alert)
    )
    if wants_nack(entry.envelope):
        notify(decision, address, entry.envelope, failure)


def wants_nack(envelope: Envelope) -> bool:
    """Whoever asked for an ack, or asked a question, is told when there will be none."""
    return envelope.requires_ack or envelope.type == "question"


def _error(failure: Failure) -> dict[str, str]:
    """What a nack says: the receiver's own words, or the protocol's code for what the mesh found itself."""
    code, reason = failure.code, failure.reason
    if code == TTL_EXPIRED:
        if failure.attempt == 0:
            return {"code": AGENT_OFFLINE, "message": "nobody took it before its time to live ended"}
        return {"code": AGENT_BUSY, "message": "it was tried, and not done before its time to live ended"}
    if code == MAILBOX_FULL:
        return {"code": AGENT_BUSY, "message": "the mailbox was full"}
    return {"code": AGENT_BUSY if code == TIMEOUT else code, "message": reason}


def notify(decision: Decision, receiver: str, envelope: Envelope, failure: Failure | None) -> None:
    """Put `ack` or `nack` into the sender's mailbox, which need not have room for it.

    Another mailbox, named by `reply_to`, must have: it did not ask.
    """
    mailbox = decision.state.mailboxes.get(envelope.reply_to or envelope.sender)
    if mailbox is None or (mailbox.address != envelope.sender and not mailbox.room_for(1, 0)):
        return
    content: dict[str, object] = {
        "originalMessageId": envelope.id,
        "success": failure is None,
        "timestamp": iso(decision.now),
    }
    if failure is not None:
        content["error"] = _error(failure)
    kind = "ack" if failure is None else "nack"
    question = envelope.type == "question" and envelope.correlation_id is not None
    notice = Envelope(
        id=notice_id(kind, decision.state.partition, decision.state.sequence),
        sender=receiver,
        content=msgspec.json.encode(content),
        type=kind,
        correlation_id=envelope.correlation_id if question else envelope.id,
    )
    decision.emit(Accepted(1, decision.now, mailbox.address, [notice]))


def notice_id(kind: str, partition: int, sequence: int) -> str:
    return f"{kind}-{partition}-{sequence}"


def is_notice(entry: Entry, partition: int) -> bool:
    """Whether `notify` made it: its id names the event that accepted it, which a sender could only guess."""
    kind = entry.envelope.type
    return kind in NOTICES and entry.envelope.id == notice_id(kind, partition, entry.sequence)
