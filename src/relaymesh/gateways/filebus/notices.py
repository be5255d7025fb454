"""What a person should know about the files of a bus: said once, and kept for `relaymesh bus status`."""

from __future__ import annotations

import logging

log = logging.getLogger("relaymesh.filebus")

REMEMBERED_MAX = 1000


class Notices:
    """Findings by file. The same finding about the same file is logged once."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def say(self, where: str, what: str) -> None:
        if self.found.get(where) == what:
            return
        while len(self.found) >= REMEMBERED_MAX:
            del self.found[next(iter(self.found))]
        self.found[where] = what
        log.warning("%r: %s", where, what)
