"""Stages of a run, reported to an observer: a progress bar, or a test that kills the run."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

__all__ = ["Observer", "Stage", "unobserved"]


class Stage(StrEnum):
    """Points of a run, in order. Each is reported when it has been reached."""

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
    """Called in the thread that does the work: an exception ends the run."""

    def __call__(self, stage: Stage, detail: str, done: int, of: int, /) -> None: ...


def unobserved(stage: Stage, detail: str, done: int, of: int) -> None:
    """The observer of a run without one."""
