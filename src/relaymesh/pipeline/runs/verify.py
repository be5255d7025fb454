"""Checks before every publish that the warehouse is unchanged, and that bronze has all events of the
journals.

Before a publish, only the footer is read of files whose size, time and inode are unchanged; `relaymesh
pipeline verify` reads every byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from relaymesh.errors import NotFound
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.runs.completeness import against_checkpoint, against_journals, how_to_rebuild
from relaymesh.pipeline.tables.inspection import Finding, Inspection, WarehouseDamaged
from relaymesh.pipeline.tables.manifest import Manifest
from relaymesh.pipeline.tables.sources import known_sources
from relaymesh.pipeline.tables.store import HISTORY, MANIFEST, TableStore

__all__ = ["Verified", "require_whole", "verify_warehouse"]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    warehouse: str
    bronze_files: int
    bronze_events: int
    table_files: int
    bytes: int
    without_checksum: int
    """Files that an older version wrote: for them only bytes and rows are known."""
    found: list[Finding]
    hint: str = ""


def require_whole(
    store: TableStore,
    bronze: Bronze,
    inspection: Inspection,
    published: Manifest | None = None,
    reached: Mapping[str, int] | None = None,
) -> BronzeSnapshot:
    """Bronze as it is, or `WarehouseDamaged`. With `published` also the files of those tables."""
    snapshot = bronze.snapshot()
    found = _bronze(bronze, snapshot, inspection, reached)
    if found:
        raise WarehouseDamaged(found, hint=how_to_rebuild(store.root, snapshot))
    if store.differs_from_its_copy():
        raise WarehouseDamaged([_changed(store)], hint=_FROM_THE_COPY)
    damaged = {} if published is None else inspection.tables(published)
    for own in damaged.values():
        raise WarehouseDamaged(own, hint=_BUILD_ANEW)
    return snapshot


def verify_warehouse(root: Path) -> Verified:
    """Read every file whole. Looks again when a run changed the warehouse meanwhile."""
    store, bronze = TableStore.open(root), Bronze(root)
    while True:
        snapshot, manifest = bronze.snapshot(), store.manifest()
        if manifest is None and not snapshot.pieces and not (root / "bronze").exists():
            raise NotFound(f"no pipeline has run in {root}", hint="relaymesh pipeline run")
        verified = _verified(store, bronze, snapshot, manifest)
        if not verified.found or (bronze.snapshot(), store.manifest()) == (snapshot, manifest):
            return verified


def _verified(
    store: TableStore, bronze: Bronze, snapshot: BronzeSnapshot, manifest: Manifest | None
) -> Verified:
    inspection = Inspection(store.root)
    of_bronze = _bronze(bronze, snapshot, inspection, None, whole=True)
    of_manifest = [_changed(store)] if store.differs_from_its_copy() else []
    damaged = {} if manifest is None else inspection.tables(manifest, whole=True)
    of_tables = [finding for own in damaged.values() for finding in own]
    hints = (
        (of_bronze, how_to_rebuild(store.root, snapshot)),
        (of_manifest, _FROM_THE_COPY),
        (of_tables, _BUILD_ANEW),
    )
    pieces = snapshot.pieces
    parts = [part for table in manifest.tables.values() for part in table.parts] if manifest else []
    files = [file for part in parts for file in part.files]
    return Verified(
        warehouse=str(store.root),
        bronze_files=sum(piece.files for piece in pieces),
        bronze_events=snapshot.rows,
        table_files=len(files),
        bytes=sum(piece.bytes for piece in pieces) + sum(file.bytes for file in files),
        without_checksum=sum(piece.files for piece in pieces if not piece.contents)
        + sum(not file.sha256 for file in files),
        found=[*of_bronze, *of_manifest, *of_tables],
        hint=next((hint for found, hint in hints if found), ""),
    )


def _bronze(
    bronze: Bronze,
    snapshot: BronzeSnapshot,
    inspection: Inspection,
    reached: Mapping[str, int] | None,
    *,
    whole: bool = False,
) -> list[Finding]:
    """Files first: a finding that names a file helps most."""
    files = inspection.bronze(snapshot, whole=whole)
    journals = against_journals(snapshot, known_sources(bronze.root), reached)
    return [*files, *against_checkpoint(bronze), *journals]


def _changed(store: TableStore) -> Finding:
    manifest = store.published()
    copy = f"{HISTORY}/{manifest.run_id}.json"
    there = (store.root / copy).exists()
    return Finding(
        MANIFEST, f"it differs from its copy, {copy}" if there else f"its copy, {copy}, is missing"
    )


_FROM_THE_COPY = (
    "one of the two was changed: copy the right one over the other; or remove manifest.json, and"
    " relaymesh pipeline run publishes anew"
)
_BUILD_ANEW = "relaymesh pipeline run builds the table anew from bronze"
