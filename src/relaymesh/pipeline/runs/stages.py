"""How far a run has come, told to whoever wants to know: a progress bar, or a test that pulls the plug."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

__all__ = ["Observer", "Stage", "nobody"]


class Stage(StrEnum):
    """Points of a run, in order. Each is told when it has been reached."""

    STARTED = "started"
    BATCH_WRITTEN = "ingest: batch written"
    BATCH_COMMITTED = "ingest: batch committed"
    INGESTED = "ingested"
    FORGOTTEN = "retention: files written"
    FORGOT = "retention: bronze switched"
    TABLE_WRITTEN = "refresh: table written"
    CHECKED = "checked"
    SYNCED = "publish: files synced"
    PUBLISHED = "published"
    COMPACTED = "compact: files written"
    SWITCHED = "compact: bronze switched"
    SWEPT = "swept"


class Observer(Protocol):
    """Called in the thread that does the work: what it raises ends the run."""

    def __call__(self, stage: Stage, detail: str, done: int, of: int, /) -> None: ...


def nobody(stage: Stage, detail: str, done: int, of: int) -> None:
    """The observer of a run that nobody watches."""
