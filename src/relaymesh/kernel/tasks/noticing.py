"""Mail about tasks: to the mailbox that asked for the result, and to the owner.

A separate decision sends it, because the decision that ended the task must not be refused when a mailbox is
full. At most one message of each kind waits at a time, so a task that moves fast sends few updates.
"""

from __future__ import annotations

from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.payload import full_size
from relaymesh.kernel.records import Accepted, NoticeKind, NoticeSent
from relaymesh.kernel.tasks.advance import SENDER_NAME, json_encoding
from relaymesh.kernel.tasks.commands import SendNotice

NOTICE_TYPES: dict[NoticeKind, str] = {
    "update": "task_update",
    "complete": "task_complete",
    "failed": "task_failed",
    "result": "",
    "budget": "question",
}
"""The message type of each kind; the type of `result` is that of the outcome."""


def send_notice(decision: Decision, command: SendNotice) -> bool:
    """Returns whether it is done: sent, no longer needed, or its mailbox does not exist."""
    board = decision.state.board
    owed = board.owed.find(command.task, command.kind)
    decision.after_sync()
    if owed is None:
        return True
    mailbox = decision.state.mailboxes.get(owed.mailbox)
    if mailbox is None:
        decision.emit(NoticeSent(1, decision.now, owed.task, owed.kind, ""))
        decision.after_sync()
        return True
    letters = decision.state.letters
    full = letters.count and letters.of(owed.mailbox).full(mailbox.settings)
    if full or not mailbox.room_for(1, full_size(command.content)):
        return False
    type = NOTICE_TYPES[owed.kind] or ("task_complete" if owed.status == "SUCCESS" else "task_failed")
    envelope = Envelope(
        id=command.id,
        sender=f"{namespace_of(owed.owner)}/{SENDER_NAME}",
        content=command.content,
        encoding=json_encoding(command.content),
        type=type,
        correlation_id=owed.task,
        trace=owed.trace,
        ttl_ms=0,
    )
    decision.emit(Accepted(1, decision.now, owed.mailbox, [envelope]))
    decision.emit(NoticeSent(1, decision.now, owed.task, owed.kind, owed.mailbox))
    decision.after_sync()
    return True
