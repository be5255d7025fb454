"""What a node does once a day: report dead letters, archive and purge old ones, and drop old segments.

It runs first at the start, and then on each new day (UTC) of the wall clock. What is due follows from the
files, dead letters and segments. So it also works for a node that is restarted every day, and a node that was
down for a month catches up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from relaymesh.errors import MeshError
from relaymesh.node.core import Core
from relaymesh.node.letter_reports import LetterReports
from relaymesh.node.old_letters import OldLetters
from relaymesh.node.settings import MeshSettings

__all__ = ["Daily"]

log = logging.getLogger("relaymesh.node")
alert = logging.getLogger("relaymesh.alert")

DAY_MS = 86_400_000
DAY_NS = DAY_MS * 1_000_000
AGAIN_MS = 3_600_000
"""How long to wait before the next try after a failure."""


class Daily:
    """Knows when the daily work is due, and does it. Only one thread at a time calls `run`."""

    def __init__(
        self,
        core: Core,
        settings: MeshSettings,
        letters: OldLetters,
        reports: LetterReports,
        drop_segments: Callable[[], object],
    ) -> None:
        self._core = core
        self._settings = settings
        self._letters = letters
        self._reports = reports
        self._drop_segments = drop_segments
        self._next_ms = 0
        self._day = -1
        self._stopped = False

    def due(self, now: int) -> bool:
        """Whether a new day has begun. True once a day, and after each jump of the clock to another day."""
        day = self._core.time.wall_ns() // DAY_NS
        if now < self._next_ms and day == self._day:
            return False
        self._next_ms, self._day = now + DAY_MS, day
        return True

    def stop(self) -> None:
        """Start nothing more: the mesh closes. The next start does the rest."""
        self._stopped = True

    def run(self) -> None:
        """It never raises: a failure is logged and tried again after an hour. The other work is still
        done."""
        self._try("the report of dead letters failed", self._report)
        self._try("the daily work failed; nothing was removed that was not archived before", self._drop)

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (MeshError, OSError) as error:
            if self._core.failure is not None:
                return  # the mesh is closed, or its journal failed: that was logged
            self._next_ms = self._core.time.now() + AGAIN_MS
            alert.error("%s; it is tried again in an hour: %s", what, error)

    def _report(self) -> None:
        """Before letters are removed for their age: the report shows them once more."""
        if not self._stopped:
            self._reports.write_if_due()

    def _drop(self) -> None:
        self._drop_letters()
        if not self._stopped:
            self._drop_segments()

    def _drop_letters(self) -> None:
        before = self._core.time.now() - int(self._settings.dead_letter_days * DAY_MS)
        purged = 0
        self._letters.files.clear()
        while not self._stopped and (removed := self._letters.remove_some(before)) is not None:
            purged += removed
        if purged:
            log.info(
                "purged %d dead letters older than %s days; archived in %s",
                purged,
                self._settings.dead_letter_days,
                ", ".join([name or "no file: this mesh is in memory" for name in self._letters.files]),
            )
