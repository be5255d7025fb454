"""Finding the node that runs on a data directory, from another process of the same user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

SERVER_DIRECTORY = "server"
ADDRESS_FILE = "address.json"
TOKEN_FILE = "local.token"


class Found(msgspec.Struct, frozen=True):
    """Where the node listens, and the token that it leaves for its own user."""

    url: str
    token: str | None


Find = Callable[[], "Found | None"]


class _Address(msgspec.Struct, frozen=True):
    url: str


def running_node(directory: Path) -> Found | None:
    """The node that has this directory, by the files in it; None when there are none.

    Use it only if the directory is locked: a node that was killed leaves its files behind.
    """
    place = directory / SERVER_DIRECTORY
    try:
        address = msgspec.json.decode((place / ADDRESS_FILE).read_bytes(), type=_Address)
    except (OSError, msgspec.MsgspecError):
        return None
    try:
        token = (place / TOKEN_FILE).read_text(encoding="utf-8").strip() or None
    except OSError:
        token = None
    return Found(address.url, token)
