"""What a node does once a day: archive and purge old dead letters, and drop old segments.

The first time is at the start. What is due then is told by the letters and segments themselves, so a node
that is restarted every day does it every day, and one that was down for a month makes up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from relaymesh.errors import MeshError, NotFound
from relaymesh.kernel.commands import PurgeDeadLetters
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.node.core import Core
from relaymesh.node.letter_archive import LetterArchive
from relaymesh.node.settings import MeshSettings

__all__ = ["Daily"]

log = logging.getLogger("relaymesh.node")
alert = logging.getLogger("relaymesh.alert")

DAY_MS = 86_400_000
AGAIN_MS = 3_600_000
"""When it is tried again after it failed."""
LETTERS_AT_ONCE = 1_000
LETTER_BYTES_AT_ONCE = 8_000_000
"""Archived and purged in one go, so that neither holds up others for long."""


class Daily:
    """Says when it is due, and does it. `run` is for one thread at a time."""

    def __init__(
        self,
        core: Core,
        settings: MeshSettings,
        archive: LetterArchive,
        drop_segments: Callable[[], object],
    ) -> None:
        self._core = core
        self._settings = settings
        self._archive = archive
        self._drop_segments = drop_segments
        self._next_ms = 0
        self._stopped = False

    def due(self, now: int) -> bool:
        """Whether a day has passed; true once a day."""
        if now < self._next_ms:
            return False
        self._next_ms = now + DAY_MS
        return True

    def stop(self) -> None:
        """Begin nothing more: the mesh closes. What is left is done at the next start."""
        self._stopped = True

    def run(self) -> None:
        """Raises nothing: what fails is told, and tried again in an hour."""
        try:
            self._drop_letters()
            if not self._stopped:
                self._drop_segments()
        except (MeshError, OSError) as error:
            if self._core.failure is not None:
                return  # the mesh is closed, or its journal failed: that was told
            self._next_ms = self._core.time.now() + AGAIN_MS
            alert.error(
                "the daily work failed, nothing that it had not archived was removed;"
                " it is tried again in an hour: %s",
                error,
            )

    def _drop_letters(self) -> None:
        before = self._core.time.now() - int(self._settings.dead_letter_days * DAY_MS)
        purged = 0
        files: dict[str | None, None] = {}
        while not self._stopped and (letters := self._old_letters(before)):
            files[self._archive.append(letters, self._core.time.wall_ns() // 1_000_000)] = None
            try:
                purged += self._core.execute(
                    PurgeDeadLetters([(letter.mailbox, letter.dead_sequence) for letter in letters])
                )
            except NotFound:
                continue  # somebody purged one of them meanwhile: look again
        if purged:
            log.info(
                "purged %d dead letters older than %s days; archived in %s",
                purged,
                self._settings.dead_letter_days,
                ", ".join([name or "no file: this mesh is in memory" for name in files]),
            )

    def _old_letters(self, before: int) -> list[DeadLetter]:
        old: list[DeadLetter] = self._core.read(
            lambda kernel: kernel.state.letters.older(before, LETTERS_AT_ONCE, LETTER_BYTES_AT_ONCE)
        )
        return old
