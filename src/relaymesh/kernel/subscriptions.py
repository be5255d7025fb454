"""Subscriptions begin, change and end."""

from __future__ import annotations

import msgspec

from relaymesh.errors import NotFound, OverBudget
from relaymesh.kernel.charges import MAILBOX_BYTES, subscriptions_of
from relaymesh.kernel.commands import Subscribe, Unsubscribe
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.delivery import send_away
from relaymesh.kernel.failures import refused
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import Dropped, Failure, Subscribed, Unsubscribed
from relaymesh.kernel.settings import MailboxSettings

SUBSCRIPTIONS_MAX = 256
"""Subscriptions that one owner may have at a time."""


def subscribe(decision: Decision, command: Subscribe) -> None:
    state = decision.state
    mailbox = state.mailboxes.get(command.mailbox)
    subscribed = state.subscriptions.pattern_of(command.mailbox) == command.pattern
    settings = command.settings
    if not command.may_reject:
        settings = patient(settings, mailbox if subscribed else None)
    if not subscribed and command.owner:
        _require_a_subscription_more(decision, command.owner, command.budget)
    asked = (settings, command.owner, command.budget if command.owner else 0)
    if mailbox is None or not subscribed or asked != (mailbox.settings, mailbox.owner, mailbox.owner_budget):
        decision.emit(Subscribed(1, decision.now, command.pattern, command.mailbox, *asked))
    decision.after_sync()


def _require_a_subscription_more(decision: Decision, owner: str, budget: int) -> None:
    owned = sum(mailbox.owner == owner for mailbox in decision.state.mailboxes.values())
    if owned >= SUBSCRIPTIONS_MAX:
        raise OverBudget(
            f"{owner} has {owned} subscriptions already: every publish must look at each",
            hint="end those that are not needed: mesh.unsubscribe(topic, name)",
        )
    decision.state.charges.require(subscriptions_of(owner), MAILBOX_BYTES, budget)


def patient(settings: MailboxSettings, mailbox: Mailbox | None) -> MailboxSettings:
    """Settings under which a full subscription refuses no publish, unless it has exactly these already."""
    if settings.overflow != "reject" or (mailbox is not None and mailbox.settings == settings):
        return settings
    return msgspec.structs.replace(settings, overflow="dead_letter")


def unsubscribe(decision: Decision, command: Unsubscribe) -> int:
    """Drop and count what the subscription held; receivers that wait get nothing. Returns how many."""
    state = decision.state
    pattern = state.subscriptions.pattern_of(command.mailbox)
    if pattern is None:
        raise NotFound(
            f"there is no subscription {command.mailbox}", hint="relaymesh topic list: all subscriptions"
        )
    mailbox = decision.mailbox(command.mailbox)
    entries = mailbox.entries.every()
    sequences = [entry.sequence for entry in entries]
    if entries:
        decision.emit(Dropped(len(entries), decision.now, mailbox.address, sequences, "unsubscribed"))
    decision.emit(Unsubscribed(1, decision.now, pattern, mailbox.address))
    for entry in entries:
        failure = Failure(entry.attempts, decision.now, "unsubscribed")
        refused(decision, mailbox.address, entry, failure, "dropped")
    send_away(decision, mailbox)
    decision.after_sync()
    return len(entries)
