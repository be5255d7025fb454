"""What a record that cannot be read names, as far as its parts can be read by themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.wire.old_forms import REFUSED
from relaymesh.wire.records import RECORDS_BY_OPERATION, Unreadable

__all__ = ["Named", "named_by"]

_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_text = msgspec.msgpack.Decoder(str).decode
_number = msgspec.msgpack.Decoder(int).decode

OPENS = (2, 3)
"""Operations that open a mailbox: `MailboxOpened` and `Subscribed`."""


class Named(msgspec.Struct, frozen=True):
    """The parts that can be read; what cannot is None or left out."""

    mailbox: str | None = None
    pattern: str | None = None
    source: str | None = None
    sequences: tuple[int, ...] = ()
    """Messages that came in before."""
    dead_sequences: tuple[int, ...] = ()
    """Dead letters."""
    ids: tuple[str, ...] = ()
    """Messages that the record itself brought in."""
    opens: str | None = None
    """The mailbox that the record opened. It exists although the record is set aside."""


def named_by(record: Unreadable) -> Named:
    """What the record names. Never raises."""
    kind = RECORDS_BY_OPERATION.get(record.operation)
    values = _list(record.raw)[1:]
    if kind is None:
        return Named()
    fields = dict(zip(kind.__struct_fields__, values, strict=False))  # type: ignore[attr-defined]
    envelopes = [*_list(fields.get("envelopes")), *_present(fields.get("envelope"))]
    dead = [*_list(fields.get("dead_sequences")), *_present(fields.get("dead_sequence"))]
    mailbox, pattern = _one(_text, fields.get("mailbox")), _one(_text, fields.get("pattern"))
    whole = record.operation in OPENS and (pattern is not None or "pattern" not in fields)
    return Named(
        mailbox=mailbox,
        pattern=pattern,
        source=_one(_text, fields.get("source")),
        sequences=_numbers(_list(fields.get("sequences"))),
        dead_sequences=_numbers(dead),
        ids=tuple(id for each in envelopes if (id := _one(_text, next(iter(_list(each)), None))) is not None),
        opens=mailbox if whole else None,
    )


def _present(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    return [] if raw is None else [raw]


def _list(raw: bytes | msgspec.Raw | None) -> list[msgspec.Raw]:
    try:
        return [] if raw is None else _parts(raw)
    except REFUSED:
        return []


def _numbers(raws: list[msgspec.Raw]) -> tuple[int, ...]:
    return tuple(number for each in raws if (number := _one(_number, each)) is not None)


def _one(decode: Any, raw: msgspec.Raw | None) -> Any:
    try:
        return None if raw is None else decode(raw)
    except REFUSED:
        return None
