"""Deliveries on their way out: from the mesh into `inbox/`, and back if no worker claims them."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.gateways.filebus.dead import pretty
from relaymesh.gateways.filebus.held_files import INBOX, Held, Spot
from relaymesh.gateways.filebus.names import META, PAYLOAD, PAYLOAD_BYTES, delivery_stem, tier_of
from relaymesh.gateways.filebus.tree import Tree
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.envelope import Encoding
from relaymesh.kernel.token import format_token
from relaymesh.wire.protocol import message_json

ENDINGS = (PAYLOAD, PAYLOAD_BYTES)


def put_out(tree: Tree, row: DeliveryRow, mailbox: str, now: int) -> Held:
    """Write a delivery as files: the payload first, then the meta file that makes it claimable."""
    envelope = row.envelope
    stem = delivery_stem(envelope.id, row.token)
    tier = tier_of(row.priority)
    ending = PAYLOAD_BYTES if envelope.encoding == Encoding.BYTES else PAYLOAD
    length_ms = max(1, row.deadline - now)
    tree.payload.write(stem + ending, envelope.content)
    tree.tiers[tier].write(stem + META, _meta(row, mailbox, f"payload/{stem}{ending}", length_ms, now))
    return Held(
        stem=stem,
        token=row.token,
        mailbox=mailbox,
        sequence=row.sequence,
        length_ms=length_ms,
        deadline=row.deadline,
        expires_at=_expires_at(row, now),
        spot=Spot(INBOX, tier),
        moved_at=now,
        settled=row.settled,
    )


def _expires_at(row: DeliveryRow, now: int) -> int:
    """When its time to live is over; 0 for never. A node far away does not say since when it waits."""
    if row.accepted_at:
        return row.expires_at
    return now + row.envelope.ttl_ms if row.envelope.ttl_ms else 0


def _meta(row: DeliveryRow, mailbox: str, payload: str, length_ms: int, now: int) -> bytes:
    """The envelope under its protocol names, without its content."""
    envelope = row.envelope
    bare = msgspec.structs.replace(envelope, content=b"null", encoding=Encoding.JSON)
    words: dict[str, Any] = msgspec.json.decode(
        message_json(bare, mailbox, row.accepted_at or now, max(0, row.attempt - 1))
    )
    del words["content"]
    words["payload"] = payload
    words["payloadBytes"] = len(envelope.content)
    words["delivery"] = {
        "lease": format_token(row.token),
        "leaseMs": length_ms,
        "attempt": row.attempt,
        "sequence": row.sequence,
        "settled": row.settled,
    }
    return pretty(words)


def withdraw(tree: Tree, stem: str, tier: str) -> bool:
    """Take a delivery back out of `inbox/`. False: a worker was first, and has it."""
    if not tree.tiers[tier].remove(stem + META):
        return False
    drop_payload(tree, stem)
    return True


def drop_payload(tree: Tree, stem: str) -> None:
    for ending in ENDINGS:
        tree.payload.remove(stem + ending)
