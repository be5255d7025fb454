"""What `relaymesh ps` shows: one small file, replaced when something in it changed."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from relaymesh.agents.places import Places
from relaymesh.modes import replace_file

__all__ = ["TeamStatus", "read_status"]


class TeamStatus:
    """Only the supervisor writes it. If the disk is full, the old file stays, and the team continues."""

    def __init__(self, places: Places) -> None:
        self._path = places.status
        self._written = b""

    def write(self, agents: list[dict[str, Any]]) -> None:
        data = msgspec.json.encode({"pid": os.getpid(), "agents": agents})
        if data != self._written:
            try:
                replace_file(self._path, data)
                self._written = data
            except OSError:
                return


def read_status(places: Places) -> dict[str, Any]:
    """What the supervisor wrote last; empty if nothing can be read."""
    try:
        found = msgspec.json.decode(places.status.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return found if isinstance(found, dict) else {}
