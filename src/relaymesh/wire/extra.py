"""A sender's own fields, which the protocol does not know: kept as a JSON object beside the message.

They travel with the message and are shown among its fields, so they must not look like a field that the
mesh itself writes. `check_extra` refuses such names on the way in. `unforged` drops them on the way out,
because journals written by earlier versions may hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from relaymesh.errors import InvalidEnvelope
from relaymesh.wire.content import check_json, check_size
from relaymesh.wire.outgoing import DeliveryOut, MessageOut, MetadataOut

__all__ = [
    "LEASE_NAMES",
    "MESSAGE_NAMES",
    "METADATA",
    "METADATA_NAMES",
    "check_count",
    "check_extra",
    "unforged",
    "unforged_metadata",
]

EXTRA_NAMES_MAX = 256
"""Names at the top of `extra`, and as many in its `metadata`. A reader makes an object for each."""
EXTRA_NAME_LENGTH_MAX = 256

METADATA = "metadata"
MESSAGE_NAMES = frozenset(DeliveryOut.__struct_encode_fields__)
"""What the mesh writes at the top of a message or a delivery."""
LEASE_NAMES = MESSAGE_NAMES - frozenset(MessageOut.__struct_encode_fields__)
"""What a delivery has beside its message."""
METADATA_NAMES = frozenset(MetadataOut.__struct_encode_fields__)
"""What the mesh writes in `metadata`."""

_OWN = (MESSAGE_NAMES - {METADATA}) | {"delayMs", "taskId"}
"""The last two are read at the top of a message: what a sender means by them is never in doubt."""
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
Value = TypeVar("Value")


def check_extra(extra: bytes, limit: int, *, sound: bool = False) -> bytes:
    """Raise `InvalidEnvelope` unless this is an object whose names cannot be taken for the mesh's own.

    `sound`: it is known to be sound JSON.
    """
    try:
        fields = _decode_fields(check_size(extra, limit) if sound else check_json(extra, limit))
    except msgspec.ValidationError:
        raise InvalidEnvelope("extra must be a JSON object") from None
    _check_names(fields, _OWN, "extra")
    metadata = fields.get(METADATA)
    if metadata is not None:
        try:
            inner = _decode_fields(metadata)
        except msgspec.ValidationError:
            raise InvalidEnvelope("extra: metadata must be a JSON object") from None
        _check_names(inner, METADATA_NAMES, "extra: metadata")
    return extra


def check_count(count: int, where: str) -> None:
    """Raise `InvalidEnvelope` when there are too many fields that the protocol does not know."""
    if count > EXTRA_NAMES_MAX:
        raise InvalidEnvelope(
            f"{where} has {count} fields that the protocol does not know; the limit is {EXTRA_NAMES_MAX}",
            hint="put them into one object of your own, or into the content",
        )


def unforged(fields: Mapping[str, Value]) -> dict[str, Value]:
    """The sender's own fields, without `metadata` and without any name that the mesh writes."""
    return {name: value for name, value in fields.items() if name not in MESSAGE_NAMES}


def unforged_metadata(fields: Mapping[str, Value]) -> dict[str, Value]:
    """The sender's own fields of `metadata`, without any name that the mesh writes there."""
    return {name: value for name, value in fields.items() if name not in METADATA_NAMES}


def _check_names(fields: Mapping[str, Raw], reserved: frozenset[str], where: str) -> None:
    check_count(len(fields), where)
    forged = sorted(reserved & fields.keys())
    if forged:
        raise InvalidEnvelope(
            f"{where} has the field {forged[0]!r}, which only the mesh itself writes",
            hint="leave it out, or give it another name; options such as reply_to have an argument",
        )
    for name in fields:
        if len(name) > EXTRA_NAME_LENGTH_MAX:
            raise InvalidEnvelope(
                f"{where} has a name of {len(name)} characters; the limit is {EXTRA_NAME_LENGTH_MAX}"
            )
