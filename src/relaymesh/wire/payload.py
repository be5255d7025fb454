"""Content that is kept in payload files, put back into envelopes; and which files a record names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.envelope import IN_FILE, Envelope
from relaymesh.kernel.payload import REFERENCE_MARK, Reference, references_in, resolved, the_reference
from relaymesh.kernel.records import Accepted, Published, Redriven, StepsEnded, TaskEnded, TaskSubmitted
from relaymesh.wire.records import Skipped, Unreadable, read_records

__all__ = ["Get", "named_in", "no_payloads", "result_hash", "shown_whole", "whole", "with_content"]

_encoder = msgspec.msgpack.Encoder()

Get = Callable[[Reference], bytes]
"""Reads a payload file. Raises `JournalDamaged`."""


def no_payloads(reference: Reference) -> bytes:
    """Where there are no payload files, none can be read."""
    raise JournalDamaged(f"{reference.path} is damaged: there are no payload files here")


def whole(envelope: Envelope, get: Get) -> Envelope:
    """The envelope with its content. Raises `JournalDamaged`."""
    if envelope.encoding < IN_FILE:
        return envelope
    content = resolved(envelope.content, get)
    return replace(envelope, content=content, encoding=envelope.encoding - IN_FILE)


def shown_whole(envelope: Envelope, get: Get) -> Envelope:
    """The same for a list: one message whose content is damaged must not hide the others.

    It keeps its encoding, and its content says what is wrong; `decode_content` raises that.
    """
    try:
        return whole(envelope, get)
    except JournalDamaged as error:
        return replace(envelope, content=error.message.encode(), encoding=IN_FILE)


def result_hash(result: bytes, get: Get = no_payloads) -> str:
    """The SHA-256 of a result, in hex. `get` is needed only for one that was joined of several files."""
    reference = the_reference(result)
    if reference is not None:
        return reference.sha256
    return sha256(resolved(result, get)).hexdigest()


def with_content(payload: bytes, get: Get) -> bytes:
    """The records of a frame with their content, encoded again: for a reader that has no payload files."""
    if REFERENCE_MARK not in payload:
        return payload
    found = read_records(payload)
    if any(isinstance(each, Skipped | Unreadable) for each in found):
        return payload
    return _encoder.encode([_record_whole(each, get) for each in found])


def _record_whole(record: Any, get: Get) -> Any:
    match record:
        case Accepted() | Published():
            return replace(record, envelopes=[shown_whole(each, get) for each in record.envelopes])
        case Redriven():
            return replace(record, envelope=shown_whole(record.envelope, get))
        case TaskSubmitted():
            return replace(record, input=_shown(record.input, get))
        case StepsEnded():
            return replace(record, outputs=[_shown(each, get) for each in record.outputs])
        case TaskEnded():
            return replace(record, result=_shown(record.result, get))
        case _:
            return record


def _shown(text: bytes, get: Get) -> bytes:
    try:
        return resolved(text, get)
    except JournalDamaged as error:
        return msgspec.json.encode({"error": error.message})


def named_in(value: Any) -> Iterator[Reference]:
    """The payload files that a record, or a piece of a checkpoint, names."""
    if isinstance(value, Envelope):
        if value.encoding >= IN_FILE:
            yield from references_in(value.content)
    elif isinstance(value, bytes):
        yield from references_in(value)
    elif isinstance(value, msgspec.Struct):
        yield from named_in(astuple(value))
    elif isinstance(value, dict):
        for pair in value.items():
            yield from named_in(pair)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from named_in(each)
