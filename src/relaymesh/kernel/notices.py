"""Notices: the `ack` or `nack` that the mesh itself puts into the mailbox of a sender that asked for it."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.contract import MAILBOX_FULL, TIMEOUT, TTL_EXPIRED
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.moment import iso
from relaymesh.kernel.records import Accepted, Failure

AGENT_BUSY = "AGENT_BUSY"
AGENT_OFFLINE = "AGENT_OFFLINE"
NOTICES = ("ack", "nack")


def wants_nack(envelope: Envelope) -> bool:
    """Whether its sender is told that it failed: it asked for an ack, or asked a question."""
    return envelope.requires_ack or envelope.type == "question"


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


def _error(failure: Failure) -> dict[str, str]:
    """What a nack says: the receiver's own words, or the protocol's code for what the mesh found itself."""
    code, reason = failure.code, failure.reason
    if code == TTL_EXPIRED:
        if failure.attempt == 0:
            return {"code": AGENT_OFFLINE, "message": "no receiver took it before its time to live ended"}
        return {"code": AGENT_BUSY, "message": "it was tried, and not done before its time to live ended"}
    if code == MAILBOX_FULL:
        return {"code": AGENT_BUSY, "message": "the mailbox was full"}
    return {"code": AGENT_BUSY if code == TIMEOUT else code, "message": reason}


def notice_id(kind: str, partition: int, sequence: int) -> str:
    return f"{kind}-{partition}-{sequence}"


def is_notice(entry: Entry, partition: int) -> bool:
    """Whether `notify` made it: its id names the event that accepted it, which a sender could only guess."""
    kind = entry.envelope.type
    return kind in NOTICES and entry.envelope.id == notice_id(kind, partition, entry.sequence)
