"""`GET /v1/messages/{id}`: the story of a message.

The answer waits for the store to have caught up, so that a message is found as soon as its receipt is there.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET

from relaymesh.errors import NotFound
from relaymesh.node.story import story_in_memory, story_in_store
from relaymesh.server.exchange import Exchange
from relaymesh.server.served import CATCH_UP_S, Served
from relaymesh.store.views import Views
from relaymesh.wire.api import StoryAnswer, StoryEntry


async def story(exchange: Exchange) -> StoryAnswer:
    """Everything the node knows about the messages with this id. An agent sees those that it sent or got."""
    principal, served = exchange.principal, exchange.served
    principal.require_looking()
    message_id = exchange.parameters["id"]
    if served.views is None:
        entries = story_in_memory(message_id, served.node.core.read)
    else:
        entries = await asyncio.to_thread(_from_store, served, served.views, message_id)
    visible = [
        entry if principal.may_look(entry.mailbox) else _for_its_sender(entry)
        for entry in entries
        if principal.may_follow(entry.sender, entry.mailbox)
    ]
    if not visible:
        raise NotFound(f"there is no message {message_id[:128]!r}", hint="settled ones are kept for a week")
    return StoryAnswer(message_id=message_id, entries=visible)


def _for_its_sender(entry: StoryEntry) -> StoryEntry:
    """Without data of the receiver: its lease, and the stacks of its program."""
    failures = [msgspec.structs.replace(failure, stack="") for failure in entry.failures]
    return msgspec.structs.replace(
        entry, holder=UNSET, lease_token=UNSET, lease_deadline=UNSET, failures=failures
    )


def _from_store(served: Served, views: Views, message_id: str) -> list[StoryEntry]:
    """In a thread of its own: it waits for the disk."""
    served.node.catch_up(CATCH_UP_S)
    return story_in_store(views, message_id, served.node.core.read)
