"""Finds out without Spark whether there is nothing to do.

There is nothing to do when bronze has every event of the journals, no known gap can be read by now, every
file is as written, and the published tables were made from all of bronze, by this version, with the tables
that it needs. In any other case the run starts Spark, checks again, and reports.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from relaymesh import __version__
from relaymesh.errors import MeshError
from relaymesh.journal.aside import read_aside
from relaymesh.journal.extent import Unreadable, list_extents, read_between
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.content import settle_content
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.retention import days_to_forget, first_day
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.bronze.spans import Gap
from relaymesh.pipeline.runs.completeness import journal_ends
from relaymesh.pipeline.runs.record import RunRecord, new_run_id
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.sources import remember_sources
from relaymesh.pipeline.runs.verify import require_whole
from relaymesh.pipeline.schema.shapes import SHAPES, Shape
from relaymesh.pipeline.source.offsets import Position, locate
from relaymesh.pipeline.tables.inspection import Inspection
from relaymesh.pipeline.tables.lock import warehouse_lock
from relaymesh.pipeline.tables.manifest import Manifest
from relaymesh.pipeline.tables.store import TableStore

__all__ = ["is_idle", "is_published", "reads_back", "run_if_idle"]


def run_if_idle(settings: PipelineSettings) -> RunRecord | None:
    """Record a run that finds nothing new; None if there may be something new, so that Spark must be
    started."""
    store = TableStore.open(settings.warehouse, settings.format)
    record, began = RunRecord(run_id=new_run_id(), kind="run"), time.monotonic()
    with warehouse_lock(store.root, f"run {record.run_id}", settings.shared):
        if not is_idle(store, settings, Inspection(store.root), SHAPES):
            return None
        record.seconds = {"look": round(time.monotonic() - began, 3)}
        record.end(store.root, "nothing new")
    return record


def is_idle(
    store: TableStore, settings: PipelineSettings, inspection: Inspection, shapes: Mapping[str, Shape]
) -> bool:
    """Whether a run would find nothing new. Needs the lock of the warehouse."""
    if store.format.name != "parquet":
        return False  # the other formats keep their files themselves
    bronze = Bronze(store.root)
    try:
        manifest = store.manifest()
        if manifest is None:
            return False
        settle_content(store.root, settings.content)
        sources = remember_sources(store.root, settings.directories)
        reached = journal_ends(sources.values())
        snapshot = require_whole(store, bronze, inspection, manifest, reached)
        read = [gap for gap in snapshot.gaps if gap.source in sources]
        if any(reads_back(gap, Path(sources[gap.source].path)) for gap in read):
            return False
        if _forgets(store, settings, snapshot, manifest):
            return False
    except (MeshError, OSError):
        return False  # the run that starts Spark raises it again, and records it
    if not is_published(store, snapshot, manifest, shapes):
        return False
    inspection.keep()
    return True


def is_published(
    store: TableStore, snapshot: BronzeSnapshot, manifest: Manifest, shapes: Mapping[str, Shape]
) -> bool:
    """Whether the tables hold all of bronze, were made by this version, and have format and shapes."""
    made = {name: Shape(table.version, table.day_column) for name, table in manifest.tables.items()}
    return (
        not snapshot.after(manifest.through_batch)
        and snapshot.inputs() == manifest.inputs
        and manifest.table_format == store.format.name
        and manifest.code_version == __version__
        and all(made.get(name) == shape for name, shape in shapes.items())
    )


def _forgets(
    store: TableStore, settings: PipelineSettings, snapshot: BronzeSnapshot, manifest: Manifest
) -> bool:
    if settings.keep_days is None:
        return False
    first = first_day(datetime.now(UTC).date(), settings.keep_days)
    return bool(days_to_forget(store.root, snapshot, manifest, first))


def reads_back(gap: Gap, directory: Path) -> bool:
    """Whether any event of the gap can be read from its directory by now."""
    from relaymesh.pipeline.source.events import Misfit, records_of  # noqa: PLC0415 - loads pyarrow

    disk = RealDisk(directory)
    aside = read_aside(disk)
    try:
        for extent in list_extents(disk, gap.first):
            if extent.start.sequence > gap.last:
                break
            start = locate(disk, extent, Position(gap.first))
            for part in read_between(disk, extent.segment, start, extent.end, extent.salt):
                if isinstance(part, Unreadable) or part.next_sequence <= gap.first:
                    continue
                if part.first_sequence > gap.last:
                    break
                try:
                    records_of(part, aside)
                except (Misfit, MeshError):
                    continue
                return True
    except (MeshError, OSError):
        return False  # the segment, or the directory, is gone
    return False
