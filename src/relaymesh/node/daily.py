"""What a node does once a day: archive and purge old dead letters, and drop old segments.

It runs first at the start. The letters and segments themselves tell what is due, so a node that is restarted
every day still does it every day, and a node that was down for a month catches up.
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
"""How long to wait before the next try after a failure."""
LETTERS_AT_ONCE = 1_000
LETTER_BYTES_AT_ONCE = 8_000_000
"""Letters archived and purged in one go. The number is small, so that other work is not held up."""


class Daily:
    """Tells when the daily work is due, and does it. Only one thread at a time calls `run`."""

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
        """Whether a day has passed. True once a day."""
        if now < self._next_ms:
            return False
        self._next_ms = now + DAY_MS
        return True

    def stop(self) -> None:
        """Start nothing more: the mesh closes. The next start does the rest."""
        self._stopped = True

    def run(self) -> None:
        """Raises nothing: a failure is logged and tried again in an hour."""
        try:
            self._drop_letters()
            if not self._stopped:
                self._drop_segments()
        except (MeshError, OSError) as error:
            if self._core.failure is not None:
                return  # the mesh is closed, or its journal failed: that was logged
            self._next_ms = self._core.time.now() + AGAIN_MS
            alert.error(
                "the daily work failed; nothing was removed that was not archived before;"
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
                continue  # another caller purged one of them meanwhile: look again
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
