"""Old forms: what an earlier release could write and the decoder refuses.

Writing is strict: a record that is written reads back as the same value. Release 0.1.0 checked less, so a
directory it wrote may hold a float where a number of milliseconds belongs. This module lists each such form,
the field it was seen in, and what is read in its place. It is tried only after the strict decoder refused; a
record that is none of the listed forms stays unreadable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel import records
from relaymesh.kernel.bounds import LEASE_MS_MAX, MOMENT_MS_MAX, RETRIES_MAX
from relaymesh.kernel.contract import Exit, Rule
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.records import Failure
from relaymesh.kernel.settings import RATE_PER_S_MAX, WHOLE_BOUNDS, MailboxSettings
from relaymesh.kernel.snapshot import EntriesPiece, EntryPiece, Held, LettersPiece, MailboxPiece

__all__ = ["OLD_FORMS", "REFUSED", "OldForm", "in_new_form", "read_failures", "within_bounds"]

REFUSED = (msgspec.MsgspecError, MeshError, UnicodeDecodeError, RecursionError)
"""What decoding raises: the decoder's own errors, and those of values that check themselves when made."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_failures = msgspec.json.Decoder(list[Failure]).decode


class OldForm(NamedTuple):
    """One field that a release could write in a form the decoder refuses."""

    read: Callable[[Any], object]
    """Returns the value in today's form; any other value as it is."""
    written_by: str
    """The last release that wrote it."""
    example: str
    """A call that led to it."""


def moment(value: object) -> object:
    """A time in ms: a float is rounded up, a time beyond the bound is cut to it."""
    return _whole(value, MOMENT_MS_MAX)


def duration(value: object) -> object:
    """A lease or a window in ms: a float is rounded up, a span beyond the bound is cut to it."""
    return _whole(value, LEASE_MS_MAX)


def setting(name: str) -> Callable[[object], object]:
    """A setting that is a whole number: a float is rounded up, a number beyond its bound is cut to it."""
    return partial(_whole, bound=WHOLE_BOUNDS[name][1])


def retries(value: object) -> object:
    """A number of retries, also as a text of digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return _whole(value, RETRIES_MAX)


def text(value: object) -> object:
    """A text, also where anything else was given: an error's text is for people."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(value)


def exit_name(value: object) -> object:
    """Where a failed delivery ends: a name that is no exit always led to a dead letter."""
    return value if value in get_args(Exit) or not isinstance(value, str) else "dead_letter"


def rate(value: object) -> object:
    return min(value, RATE_PER_S_MAX) if isinstance(value, int | float) else value


def _whole(value: object, bound: int) -> object:
    if type(value) is float and not math.isnan(value):
        value = bound if value > bound else math.ceil(max(value, 0.0))
    return min(value, bound) if type(value) is int else value


def _old(read: Callable[[Any], object], example: str) -> OldForm:
    return OldForm(read, "0.1.0", example)


OLD_FORMS: dict[tuple[type, str], OldForm] = {
    (records.Returned, "due"): _old(moment, "delivery.nack(delay_ms=500.0)"),
    (EntryPiece, "due_at"): _old(moment, "a checkpoint after a send with a delay beyond the bound"),
    (EntryPiece, "ready_at"): _old(moment, "a checkpoint after delivery.nack(delay_ms=500.0)"),
    (Held, "deadline"): _old(moment, "a checkpoint after agent(lease_ms=2**63)"),
    (Held, "length"): _old(duration, "a checkpoint after agent(lease_ms=2**63)"),
    (records.Granted, "lease_ms"): _old(duration, "agent.receive(lease_ms=500.5)"),
    (Failure, "code"): _old(text, "delivery.nack(code=503)"),
    (Failure, "reason"): _old(text, "delivery.nack(404)"),
    (records.Dropped, "code"): _old(text, "delivery.nack(code=503), its rule ends in drop"),
    (Rule, "retries"): _old(retries, 'Retry(times="3")'),
    (Rule, "exit"): _old(exit_name, 'Rule(3, exit="dlq")'),
    (MailboxSettings, "rate_per_s"): _old(rate, "rate_per_s=2.0**30"),
    (MailboxSettings, "max_retries"): _old(retries, "max_retries=2**63"),
    **{(MailboxSettings, name): _old(setting(name), f"{name}=2**63") for name in WHOLE_BOUNDS},
}
"""By struct and field."""
_LISTS = ("due",)
"""Fields that are lists: each of their values may have the form."""

_INSIDE: dict[tuple[type, str], tuple[Literal["one", "list", "dict"], type]] = {
    (records.MailboxOpened, "settings"): ("one", MailboxSettings),
    (records.Subscribed, "settings"): ("one", MailboxSettings),
    (records.Returned, "failures"): ("list", Failure),
    (records.DeadLettered, "failures"): ("list", Failure),
    (MailboxSettings, "contract"): ("dict", Rule),
    (MailboxPiece, "settings"): ("one", MailboxSettings),
    (EntriesPiece, "entries"): ("list", EntryPiece),
    (EntryPiece, "failures"): ("list", Failure),
    (EntryPiece, "held"): ("one", Held),
    (LettersPiece, "letters"): ("list", DeadLetter),
    (DeadLetter, "failures"): ("list", Failure),
}
"""Fields that hold other structs, and how."""


def in_new_form(raw: bytes | msgspec.Raw, kinds: dict[int, type]) -> bytes | None:
    """The record or piece with each listed old form replaced; None when there is none in it.

    `kinds`: the structs it may be, by tag. The caller decodes the result strictly.
    """
    try:
        values = _decode(raw)
    except REFUSED:
        return None
    if not isinstance(values, list) or not values or type(values[0]) is not int:
        return None
    kind = kinds.get(values[0])
    if kind is None:
        return None
    replaced = [values[0], *_replaced(kind, values[1:])]
    return None if replaced == values and repr(replaced) == repr(values) else _encode(replaced)


def _replaced(kind: type, values: list[Any]) -> list[Any]:
    replaced = list(values)
    for place, name in enumerate(kind.__struct_fields__[: len(values)]):  # type: ignore[attr-defined]
        form, inside = OLD_FORMS.get((kind, name)), _INSIDE.get((kind, name))
        if form is not None:
            replaced[place] = _each(form, values[place]) if name in _LISTS else form.read(values[place])
        elif inside is not None:
            replaced[place] = _replaced_inside(*inside, values[place])
    return replaced


def _each(form: OldForm, value: object) -> object:
    return [form.read(each) for each in value] if isinstance(value, list) else form.read(value)


def _replaced_inside(how: Literal["one", "list", "dict"], kind: type, value: object) -> object:
    if how == "list" and isinstance(value, list):
        return [_replaced_inside("one", kind, each) for each in value]
    if how == "dict" and isinstance(value, dict):
        return {key: _replaced_inside("one", kind, each) for key, each in value.items()}
    return _replaced(kind, value) if how == "one" and isinstance(value, list) else value


def read_failures(data: str | bytes) -> list[Failure]:
    """The failures of a message as the store keeps them, JSON, also in old forms."""
    try:
        return _decode_failures(data)
    except REFUSED:
        values = _replaced_inside("list", Failure, msgspec.json.decode(data))
        return _decode_failures(msgspec.json.encode(values))


def within_bounds(record: records.Granted | records.Returned) -> records.Granted | records.Returned:
    """The record with its times cut to the bounds: too large a number is no fault for the decoder."""
    if isinstance(record, records.Granted):
        if record.lease_ms > LEASE_MS_MAX:
            return msgspec.structs.replace(record, lease_ms=LEASE_MS_MAX)
    elif record.due and max(record.due) > MOMENT_MS_MAX:
        return msgspec.structs.replace(record, due=[min(due, MOMENT_MS_MAX) for due in record.due])
    return record
