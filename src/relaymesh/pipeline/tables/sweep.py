"""Removing files that no manifest names any more: of old runs, and of crashed ones.

Mark and sweep, under the lock of the warehouse: everything that the kept manifests, the batch log or the
bronze generation name is marked; every other folder of a batch or of a run goes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from relaymesh.pipeline.bronze.folder import FOLDER, INCOMING, Bronze
from relaymesh.pipeline.tables.manifest import Manifest
from relaymesh.pipeline.tables.store import HISTORY, TableStore

__all__ = ["sweep"]


def sweep(store: TableStore, bronze: Bronze, keep_runs: int, ingesting: str = "") -> int:
    """Forget all but the last `keep_runs` publishes and remove their files. Returns how many folders went.

    `ingesting`: the run that takes in batches meanwhile: its folders may be about to be committed.
    """
    current = store.manifest()
    history = store.history()
    kept = history[-keep_runs:]
    if current is not None and all(each.run_id != current.run_id for each in kept):
        kept.append(current)
    named = {each.run_id for each in kept}
    for path in (store.root / HISTORY).glob("*.json"):
        if path.stem not in named:
            path.unlink()
    spared = {f"{FOLDER}/{path.name}" for path in bronze.folder.glob(f"batch=*-{ingesting}")}
    spared.add(f"{FOLDER}/{INCOMING}/{ingesting}")
    pieces = [*bronze.snapshot().pieces, *(piece for manifest in kept for piece in manifest.bronze)]
    _remove_days(store.root, {piece.folder for piece in pieces} - spared, {piece.path for piece in pieces})
    return _remove(store.root, _marked(kept) | {piece.folder for piece in pieces} | spared)


def _marked(kept: list[Manifest]) -> set[str]:
    return {
        f"tables/{table.name}/run_id={part.run_id}"
        for manifest in kept
        for table in manifest.tables.values()
        for part in table.parts
    }


def _remove_days(root: Path, folders: set[str], paths: set[str]) -> None:
    """Days that were forgotten, in folders whose other days are still there."""
    for folder in folders:
        for day in (root / folder).glob("event_date=*"):
            if day.relative_to(root).as_posix() not in paths:
                shutil.rmtree(day)


def _remove(root: Path, marked: set[str]) -> int:
    patterns = (f"{FOLDER}/batch=*", f"{FOLDER}/{INCOMING}/*", "tables/*/run_id=*")
    folders = [folder for pattern in patterns for folder in root.glob(pattern)]
    gone = [folder for folder in folders if folder.relative_to(root).as_posix() not in marked]
    for folder in gone:
        shutil.rmtree(folder)
    return len(gone)
