"""A requested purge: a preview of old messages, tasks and letters, and their removal in short parts.

Rows of the store are removed by the projector's thread, window by window; dead letters by commands, portion
by portion, each archived before. Messages are handled in between. A purge that is killed has removed whole
portions, and the same purge again removes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from relaymesh.errors import StoreLagging
from relaymesh.kernel.aging import AgedLetters, aged_letters, letter_mailboxes
from relaymesh.kernel.looks import Looked
from relaymesh.node.core import Core
from relaymesh.node.old_letters import OldLetters
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.settings import MeshSettings
from relaymesh.store import SqliteStore
from relaymesh.store.aging import AgedRows, cut_before, survey
from relaymesh.wire.parameters import Parameters
from relaymesh.wire.retention import (
    DONE_PASSED,
    PreviewPurge,
    Purge,
    PurgeCounts,
    PurgePart,
    PurgePreview,
    PurgeRow,
)

__all__ = ["Purging", "preview"]

DAY_MS = 86_400_000
PART_MS = 1_000
"""After this time a request returns, and the caller sends it again."""


class Purging:
    """Purges of one node. `projector` is None for a mesh in memory, which has no store."""

    def __init__(
        self,
        core: Core,
        settings: MeshSettings,
        letters: OldLetters,
        projector: Projector | InlineProjector | None,
        store: SqliteStore | None,
        values: Callable[[], Parameters],
    ) -> None:
        self._core = core
        self._settings = settings
        self._values = values
        self._letters = letters
        self._projector = projector
        self._store_file = None if store is None else store.path

    def preview(self, request: PreviewPurge) -> PurgePreview:
        """Count what the purge would remove. Holds the core's lock for one mailbox at a time."""
        return preview(
            request, self._settings, self._values(), self._core.time.now(), self._core.read, self._store_file
        )

    def purge(self, request: Purge) -> PurgePart:
        """Remove for about a second. A time in the future counts as now."""
        now = self._core.time.now()
        counts, after = PurgeCounts(), request.after
        if request.done_before is None or self._projector is None:
            after = DONE_PASSED
        while after != DONE_PASSED:
            removed, after = self._purge_done(min(request.done_before or 0, now), now, request.mailbox, after)
            counts = counts.plus(removed)
            if self._core.time.now() - now >= PART_MS:
                return PurgePart(counts, after, True)
        before = min(request.dead_before or 0, now)
        while request.dead_before is not None:
            dead = self._letters.remove_some(
                before, mailbox=request.mailbox, including_steps=request.including_steps
            )
            if dead is None:
                break
            counts = counts.plus(PurgeCounts(dead_letters=dead))
            if self._core.time.now() - now >= PART_MS:
                return PurgePart(counts, after, True)
        return PurgePart(counts, after, False)

    def _purge_done(self, before: int, now: int, mailbox: str | None, after: int) -> tuple[PurgeCounts, int]:
        """One window of the store's tables, and where the next one begins."""
        assert self._projector is not None
        try:
            cut = cut_before(before, now, mailbox, _keys_ms(self._values()))
            part = self._projector.purge_part(cut, after)
        except apsw.Error as error:  # a full disk, most likely: nothing of this window was removed
            raise StoreLagging(f"the store cannot be purged now: {error}", hint="relaymesh doctor") from error
        counts = PurgeCounts(part.messages, part.ids, part.tasks, part.steps, part.keys)
        return counts, part.after if part.more else DONE_PASSED


def preview(
    request: PreviewPurge,
    settings: MeshSettings,
    values: Parameters,
    now: int,
    read: Callable[[Callable[[Looked], Any]], Any],
    store: Path | None,
) -> PurgePreview:
    """What a purge would remove at `now`. `read` reads the state of a node, or of a replayed journal."""
    done_ms, dead_ms = request.done_ms, request.dead_ms
    if done_ms is None and dead_ms is None:
        done_ms = int(values.done_retention_days * DAY_MS)
        dead_ms = int(settings.dead_letter_days * DAY_MS)
    done_before = None if done_ms is None else max(0, now - done_ms)
    dead_before = None if dead_ms is None else max(0, now - dead_ms)
    rows: list[PurgeRow] = []
    if done_before is not None and store is not None:
        cut = cut_before(done_before, now, request.mailbox, _keys_ms(values))
        rows += [_row(row) for row in survey(store, cut)]
    waiting, tasks = 0, set[str]()
    if dead_before is not None:
        for mailbox in sorted(read(letter_mailboxes)):
            if request.mailbox in (None, mailbox):
                look = partial(aged_letters, mailbox, dead_before, request.including_steps)
                found: AgedLetters = read(look)
                waiting += found.waiting
                tasks |= found.tasks
                if found.count:
                    numbers = (found.count, found.bytes, found.oldest, found.newest)
                    rows.append(PurgeRow("dead_letters", mailbox, *numbers))
    return PurgePreview(rows, done_before, dead_before, waiting, len(tasks))


def _keys_ms(values: Parameters) -> int:
    return int(values.idempotency_ttl_days * DAY_MS)


def _row(rows: AgedRows) -> PurgeRow:
    return PurgeRow(rows.kind, rows.mailbox, rows.count, rows.bytes, rows.oldest, rows.newest)
