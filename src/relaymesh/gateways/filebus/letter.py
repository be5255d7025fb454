"""One send: its meta file and its payload, as the message that the mesh gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, Unauthorized
from relaymesh.kernel.address import agent_address, topic_address
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.wire.content import check_json
from relaymesh.wire.protocol import parse_message

META_BYTES_MAX = 65_536
OURS = ("payload", "payloadBytes", "delivery")
"""What the gateway writes into the meta file of a delivery: left out if a script sends it on."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message on its way in."""

    stem: str
    target: str
    """The address of the recipient, or of the topic."""
    is_topic: bool
    envelope: Envelope
    notes: tuple[str, ...] = ()


def parse_meta(data: bytes) -> dict[str, Any]:
    """The fields of a meta file: a message of the protocol without its content."""
    fields = msgspec.json.decode(check_json(data, META_BYTES_MAX))
    if not isinstance(fields, dict):
        raise InvalidEnvelope("the meta file is no JSON object")
    if "content" in fields:
        raise InvalidEnvelope(
            "the meta file has a content", hint="the content is what the payload file holds"
        )
    return fields


def letter_of(
    stem: str, meta: dict[str, Any], payload: bytes, *, raw: bool, agents: tuple[str, ...]
) -> Letter:
    """The message of a send. `raw`: its payload is bytes, else JSON. The sender is an agent of the bus."""
    fields = {name: value for name, value in meta.items() if name not in OURS}
    topic = fields.pop("topic", None)
    incoming = parse_message({**fields, "content": None}, new_id=lambda: stem)
    target = _target(incoming.to, topic)
    sender = agents[0] if incoming.sender is None else agent_address(incoming.sender, "from")
    if sender not in agents:
        raise Unauthorized(
            f"{sender} is no agent of this bus", hint=f"leave out `from`, or name one of {', '.join(agents)}"
        )
    reply_to = incoming.envelope.reply_to
    envelope = msgspec.structs.replace(
        incoming.envelope,
        sender=sender,
        content=payload if raw else check_json(payload, len(payload)),
        encoding=Encoding.BYTES if raw else Encoding.JSON,
        reply_to=None if reply_to is None else agent_address(reply_to, "replyTo"),
    )
    return Letter(stem, target, topic is not None, envelope, incoming.notes)


def _target(to: str | None, topic: Any) -> str:
    if (to is None) == (topic is None):
        raise InvalidEnvelope("the meta file must name one recipient: `to`, or `topic`")
    return topic_address(topic) if to is None else agent_address(to, "to")
