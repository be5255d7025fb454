"""A frame that does not fit its `op`: it is answered with a problem, and the connection goes on. The
connection ends only if the bytes are not JSON or MessagePack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from relaymesh.errors import InvalidEnvelope
from relaymesh.wire import frames
from relaymesh.wire.near import Names

WORDS_LENGTH_MAX = 300
"""Of what a problem says: it may hold a name as the client wrote it."""
DOCUMENT_HINT = "GET /asyncapi.json describes every frame"

_unknown = re.compile(r"unknown field `(.*)`\Z", re.DOTALL)


class Mistyped(msgspec.Struct, frozen=True):
    """What stands in the place of the frame. `ref`: the one it had, if that could be read.

    `ends`: the frame is no sound JSON, and the client waits for an answer that could not name its ref.
    """

    ref: int | None
    error: InvalidEnvelope
    ends: bool = False


class _Head(msgspec.Struct):
    op: Raw = Raw()
    ref: Raw = Raw()


Decode = Callable[..., Any]
"""`msgspec.json.decode` or `msgspec.msgpack.decode`."""


def mistyped(error: Exception, data: bytes | Raw, decode: Decode, kinds: dict[str, type]) -> Mistyped:
    """The problem with a frame that `decode` refused with this error. `kinds`: the frames, by their op."""
    ends = False
    try:
        head = decode(data, type=_Head)
    except msgspec.ValidationError as unfit:
        head, ends = _Head(), "Expected `object`" not in str(unfit)  # a map with a key that is no text
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        head, ends = _Head(), True
    op, ref = _scalar(decode, head.op, str), _scalar(decode, head.ref, int)
    words = str(error)
    if "`array` of length <=" in words:
        words = f"a frame has at most {frames.BATCH_MAX} messages, and as many tokens in each list"
        return Mistyped(ref, InvalidEnvelope(words), ends)
    detail = f"the frame {op!r}: {words}" if op in kinds else f"the frame: {words}"
    if len(detail) > WORDS_LENGTH_MAX:
        detail = detail[:WORDS_LENGTH_MAX] + "…"
    return Mistyped(ref, InvalidEnvelope(detail, hint=_hint(words, op, kinds)), ends)


def _scalar(decode: Decode, data: Raw, kind: type) -> Any:
    """The value, or None for one of another type."""
    try:
        return decode(data, type=kind) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _hint(words: str, op: str | None, kinds: dict[str, type]) -> str:
    """Names that could have been meant; they are the frame's own, or those of all frames."""
    if op is None or op not in kinds:
        meant = None if op is None else Names(kinds).nearest(op)
        also = f"`op` is one of {', '.join(kinds)}; {DOCUMENT_HINT}"
        return also if meant is None else f"did you mean `{meant}`? {also}"
    known = msgspec.structs.fields(kinds[op])
    unknown = _unknown.search(words)
    meant = None if unknown is None else Names([field.encode_name for field in known]).nearest(unknown[1])
    also = f"`{op}` has the fields {', '.join([field.encode_name for field in known])}; {DOCUMENT_HINT}"
    return also if meant is None else f"did you mean `{meant}`? {also}"


def by_op(kinds: tuple[Any, ...]) -> dict[str, type]:
    """Frames by the word that names them."""
    return {kind.__struct_config__.tag: kind for kind in kinds}
