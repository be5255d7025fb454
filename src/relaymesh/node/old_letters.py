"""Removing old dead letters: archived and synced first, then purged, in portions.

The daily work and a requested purge share this. Only one of them works at a time.
"""

from __future__ import annotations

import threading
from functools import partial

from relaymesh.errors import NotFound
from relaymesh.kernel.aging import old_letters
from relaymesh.kernel.commands import PurgeDeadLetters
from relaymesh.node.core import Core
from relaymesh.node.letter_archive import LetterArchive

__all__ = ["OldLetters"]

LETTERS_AT_ONCE = 1_000
LETTER_BYTES_AT_ONCE = 8_000_000
"""Letters archived and purged in one portion. The number is small, so that other work is not delayed."""


class OldLetters:
    """The dead letters of one node, and their archive."""

    def __init__(self, core: Core, archive: LetterArchive) -> None:
        self._core = core
        self._archive = archive
        self._one_at_a_time = threading.Lock()
        self.files: dict[str | None, None] = {}
        """The files of the archive that were written, in order; None: a mesh in memory has no archive."""

    def remove_some(
        self, before: int, *, mailbox: str | None = None, including_steps: bool = True
    ) -> int | None:
        """Archive and purge a portion of what died before this time. None: nothing is left."""
        look = partial(old_letters, before, mailbox, LETTERS_AT_ONCE, LETTER_BYTES_AT_ONCE, including_steps)
        with self._one_at_a_time:
            letters = self._core.read(look)
            if not letters:
                return None
            self.files[self._archive.append(letters, self._core.time.wall_ns() // 1_000_000)] = None
            try:
                return self._core.execute(
                    PurgeDeadLetters([(letter.mailbox, letter.dead_sequence) for letter in letters])
                )
            except NotFound:
                return 0  # another caller purged one of them meanwhile: look again
