"""What is published, how many events are not in it yet, and how the last runs ended. Reads a few small
files; no Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.journal import FIRST_SEQUENCE, read_frames
from relaymesh.journal.mark import read_mark
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.content import keeps_content
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.runs.record import RunRecord, load_records
from relaymesh.pipeline.tables.lock import holder, is_locked
from relaymesh.pipeline.tables.manifest import Input, Manifest
from relaymesh.pipeline.tables.sources import Source, earlier_names, known_sources, under_its_id
from relaymesh.pipeline.tables.store import TableStore

__all__ = ["Lag", "Status", "status_of"]


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """One source: synced events that are not in bronze, or not in the published tables."""

    source: str
    partition: int
    path: str
    """Where it was read last."""
    synced: int
    """Events in the journal."""
    not_in_bronze: int
    not_published: int
    seconds: float
    """Age of the oldest event that is not published; 0 when there is none."""
    error: str | None = None
    """Why the journal could not be looked at."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a warehouse."""

    warehouse: str
    published: Manifest | None
    bronze_events: int
    bronze_files: int
    generation: int
    content: str
    """`keep` or `drop`: whether the next events come with their content."""
    lags: list[Lag]
    running: str | None
    """The process that works here now."""
    runs: list[RunRecord]
    """The last ones, the newest first."""

    @property
    def failed_expectations(self) -> list[dict[str, Any]]:
        """Of the last run that ended."""
        ended = [run for run in self.runs if run.ended_at is not None and run.status != "nothing new"]
        return ended[0].expectations if ended else []


def status_of(warehouse: Path, *, last_runs: int = 5) -> Status:
    snapshot = Bronze(warehouse).snapshot()
    manifest = TableStore.open(warehouse).manifest()
    locked = is_locked(warehouse)
    taken = {(each.source, each.partition): each for each in snapshot.inputs()}
    sources = known_sources(warehouse)
    names = earlier_names(sources.values())
    published = [under_its_id(each, names) for each in (manifest.inputs if manifest else [])]
    shown = {(each.source, each.partition): each for each in published}
    return Status(
        warehouse=str(warehouse),
        published=manifest,
        bronze_events=snapshot.rows,
        bronze_files=sum(piece.files for piece in snapshot.pieces),
        generation=snapshot.generation.generation,
        content="keep" if keeps_content(warehouse) else "drop",
        lags=[
            _lag(each, taken.get((each.id, each.partition)), shown.get((each.id, each.partition)))
            for each in sources.values()
            if not each.forgotten
        ],
        running=holder(warehouse) if locked else None,
        runs=[_as_it_is(run, locked=locked) for run in load_records(warehouse, last_runs)],
    )


def _as_it_is(run: RunRecord, *, locked: bool) -> RunRecord:
    """A record says `running` until its run ends; without a lock no run is active."""
    if run.status == "running" and not locked:
        run.status = "interrupted"
    return run


def _lag(source: Source, taken: Input | None, shown: Input | None) -> Lag:
    disk = RealDisk(Path(source.path))
    begins = max(FIRST_SEQUENCE, source.first)
    after_bronze = begins if taken is None else taken.through_sequence + 1
    after_shown = begins if shown is None else shown.through_sequence + 1
    try:
        mark = read_mark(disk)
        synced = FIRST_SEQUENCE if mark is None else mark.sequence
        seconds = 0.0
        if synced > after_shown:
            frame = next(iter(read_frames(disk, after_shown)), None)
            seconds = 0.0 if frame is None else max(0.0, time.time() - frame.written_at_ns / 1e9)
        error = None
    except (OSError, msgspec.DecodeError) as problem:
        synced, seconds, error = FIRST_SEQUENCE, 0.0, str(problem)
    return Lag(
        source=source.id,
        partition=source.partition,
        path=source.path,
        synced=synced - FIRST_SEQUENCE,
        not_in_bronze=max(0, synced - after_bronze),
        not_published=max(0, synced - after_shown),
        seconds=round(seconds, 1),
        error=error,
    )
