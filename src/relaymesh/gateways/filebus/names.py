"""File names: which are the gateway's, which are a worker's, and what they say.

A *stem* is a file name without its ending. The stem of a send is chosen by its sender and is the
message id unless the meta file names another. The stem of a delivery is made here, `<id>~<lease>`, so
that one delivery can never be taken for another, nor for a send: no sender's stem has a `~`.
"""

from __future__ import annotations

import hashlib
import re
from datetime import date
from urllib.parse import quote

from relaymesh.kernel.token import format_token, parse_token

META = ".meta.json"
PAYLOAD = ".payload.json"
PAYLOAD_BYTES = ".payload.bin"
RECEIPT = ".receipt.json"
REASON = ".reason.json"
VERDICT = ".verdict.json"
LOST = ".lost.json"
ALIVE = "alive"
TIERS = ("high", "normal", "low")

QUOTED_LENGTH_MAX = 160
_SAFE = "_.+@=-"
_SEND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]{0,127}\Z")
_DELIVERY = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_.+@=%-]{0,159}~(\d{1,6}\.\d{1,8}\.\d{1,13})\Z")


def stem_of(name: str, ending: str) -> str | None:
    """The stem of a file with this ending; None for any other file, and for one that is still written."""
    if name.startswith(".") or not name.endswith(ending):
        return None
    return name[: -len(ending)]


def is_send(stem: str) -> bool:
    """Whether a sender may choose this stem: what every file system and every shell takes literally."""
    return _SEND.match(stem) is not None


is_worker = is_send
"""A worker's id obeys the same rules, and names a folder."""


def is_day(name: str) -> bool:
    """Whether it is a date, as the gateway writes it."""
    try:
        return name.isascii() and date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def delivery_stem(id: str, token: int) -> str:
    """The stem of a delivery. Reads as the id where that can be a file name."""
    text = quote(id, safe=_SAFE).replace("~", "%7E")
    if text[0] in ".-+@=":
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text) > QUOTED_LENGTH_MAX:
        text = f"{text[:120]}%{hashlib.sha256(id.encode()).hexdigest()[:16]}"
    return f"{text}~{format_token(token)}"


def token_of(stem: str) -> int | None:
    """The lease that a delivery's stem names; None for any other stem."""
    match = _DELIVERY.match(stem)
    token = None if match is None else parse_token(match[1])
    return token if token is not None and token < 1 << 63 else None


def tier_of(priority: int) -> str:
    return TIERS[0] if priority <= 2 else TIERS[1] if priority == 3 else TIERS[2]


def stand_in(name: str) -> str:
    """A stem for a file whose own name cannot be one."""
    return f"invalid-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
