"""A warehouse whose bronze is filled without Spark.

The ingest's own taker takes what the source's own reader wrote; only the Spark between the two is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.runs.completeness import CHECKPOINT
from relaymesh.pipeline.runs.ingest import BatchTaker
from relaymesh.pipeline.runs.sources import path_option, remember_sources
from relaymesh.pipeline.runs.stages import unobserved
from relaymesh.pipeline.runs.verify import require_whole, verify_warehouse
from relaymesh.pipeline.source.batch import BatchReader
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.tables.inspection import Inspection, WarehouseDamaged
from relaymesh.pipeline.tables.store import TableStore
from tests.pipeline.source.journals import traffic, write_frames

EVENTS = 9 * 12
"""Twelve frames with nine events each."""


class Collected:
    """The rows that Spark brings from the tasks to the driver."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        from pyspark.sql import Row

        return [Row(**row) for row in self._rows]


class Filled:
    """A warehouse whose bronze took one batch after the other."""

    def __init__(self, data: Path, root: Path) -> None:
        self.data, self.root = data, root
        self.bronze, self.store = Bronze(root), TableStore.open(root)
        self._batches = 0
        root.mkdir()
        [self.source] = remember_sources(root, [data]).values()

    def take(self, first: int, through: int, **more: str) -> None:
        batch, run = self._batches, f"r{self._batches}"
        options = {
            "path": path_option([self.source]),
            "fromSequence": first,
            "throughSequence": through,
        }
        into = {"into": self.bronze.incoming(run), "runId": run, **more}
        reader = BatchReader(SourceOptions.parse({name: str(v) for name, v in (options | into).items()}))
        pieces = reader.partitions()
        rows = [row for piece in pieces for told in reader.read(piece) for row in told.to_pylist()]
        for folder in ("offsets", "commits"):
            (self.root / CHECKPOINT / folder).mkdir(parents=True, exist_ok=True)
            (self.root / CHECKPOINT / folder / str(batch)).touch()
        BatchTaker(self.root, run, unobserved)(Collected(rows), batch)  # type: ignore[arg-type]
        self._batches += 1

    def unseal(self) -> None:
        """Take the seals off the log, as older versions wrote it."""
        for path in self.root.glob("bronze/log/*.json"):
            entry = json.loads(path.read_text())
            del entry["checksum"]
            path.write_text(json.dumps(entry, indent=1))

    def files(self) -> list[Path]:
        return sorted(self.root.glob("bronze/batch=*/*/*.parquet"))

    def require(self, **reached: int) -> None:
        ends = {self.source.id: reached["through"] + 1} if reached else None
        require_whole(self.store, self.bronze, Inspection(self.root), reached=ends)

    def refused(self, **reached: int) -> str:
        """What a run would say, in one line."""
        with pytest.raises((WarehouseDamaged, JournalDamaged)) as refusal:
            self.require(**reached)
        assert refusal.value.hint
        return f"{refusal.value.message} | {refusal.value.hint}"


def filled_in(path: Path) -> Filled:
    """Three batches of them."""
    write_frames(path / "data", traffic(12))
    filled = Filled(path / "data", path / "tables")
    for first in (1, 37, 73):
        filled.take(first, first + 35)
    filled.require(through=EVENTS)
    assert verify_warehouse(filled.root).found == []
    return filled
