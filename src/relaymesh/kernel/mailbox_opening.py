"""Opening a mailbox, and changing its settings."""

from __future__ import annotations

from relaymesh.errors import Conflict, NotFound
from relaymesh.kernel.address import is_subscription
from relaymesh.kernel.charges import MAILBOX_BYTES
from relaymesh.kernel.commands import OpenMailbox
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import MailboxOpened
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.subscriptions import patient


def open_mailbox(decision: Decision, command: OpenMailbox) -> None:
    """Open it, or change its settings. Without settings an existing mailbox stays as it is."""
    mailbox = decision.state.mailboxes.get(command.mailbox)
    settings = command.settings
    if mailbox is None:
        if not command.may_reject and is_subscription(command.mailbox):
            raise NotFound(f"there is no subscription {command.mailbox}", hint="subscribe first")
        decision.state.charges.require(command.mailbox, MAILBOX_BYTES, command.budget)
    elif settings is not None and not command.may_reject and is_subscription(command.mailbox):
        settings = patient(settings, mailbox)
    if settings is not None and settings.delivery_semantics == "at_most_once":
        _require_no_steps(decision, command.mailbox)
    if mailbox is None or (settings is not None and settings != mailbox.settings):
        decision.emit(MailboxOpened(1, decision.now, command.mailbox, settings or MailboxSettings()))
    decision.after_sync()


def _require_no_steps(decision: Decision, address: str) -> None:
    """A step that is settled before it is delivered would succeed without a result."""
    steps = decision.state.board.steps_in(address)
    if steps:
        raise Conflict(
            f"steps of tasks are in mailbox {address}: {steps}; at_most_once would lose their results",
            hint="let their tasks end, or cancel them, and set it again",
        )
