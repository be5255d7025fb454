"""Subscriptions: made and ended. What is published goes through `messages.publish`."""

from __future__ import annotations

from relaymesh.kernel.address import name_of
from relaymesh.kernel.commands import Subscribe, Unsubscribe
from relaymesh.server.exchange import Exchange
from relaymesh.wire.api import (
    DroppedAnswer,
    MailboxSettingsBody,
    SubscribeRequest,
    SubscriptionAnswer,
    settings_from,
)


async def subscribe(exchange: Exchange) -> SubscriptionAnswer:
    """Subscribe to a topic or a pattern. A second call only updates the settings.

    When it is full, messages that are published become its dead letters (`overflow` is `dead_letter`). To
    refuse the publish instead (`reject`) needs the scope `write`.
    """
    mailbox, pattern = _named(exchange)
    request = await exchange.decode(SubscribeRequest)
    given = settings_from(request.settings or MailboxSettingsBody(), schedule="fifo")
    settings = exchange.served.roster.config.mailbox_settings(given)
    owner = exchange.principal.owner_of(mailbox)
    await exchange.served.session.execute(
        Subscribe(pattern, mailbox, settings, owner, exchange.served.budget, may_reject=not owner)
    )
    return SubscriptionAnswer(mailbox=mailbox, topic=pattern, name=name_of(mailbox).partition(":")[2])


async def unsubscribe(exchange: Exchange) -> DroppedAnswer:
    """End a subscription. The messages that it still holds are dropped."""
    mailbox, _ = _named(exchange)
    return DroppedAnswer(dropped=await exchange.served.session.execute(Unsubscribe(mailbox)))


def _named(exchange: Exchange) -> tuple[str, str]:
    """The subscription's mailbox and its pattern. An agent may have subscriptions of its own name."""
    principal = exchange.principal
    principal.require("agent")
    topic = exchange.parameters["topic"]
    mailbox = principal.subscription(topic, exchange.parameters["name"])
    principal.require_mailbox(mailbox)
    return mailbox, principal.pattern(topic)
