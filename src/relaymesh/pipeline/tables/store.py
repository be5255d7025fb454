"""The published tables: written aside by one run, and made visible together by one rename."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from relaymesh.errors import JournalDamaged, NotFound
from relaymesh.pipeline.tables.counts import Counts, count_files, count_rows
from relaymesh.pipeline.tables.durable import swap_file, sync_files
from relaymesh.pipeline.tables.formats import TableFormat, format_of
from relaymesh.pipeline.tables.manifest import Manifest, PublishedTable, decode_manifest, encode
from relaymesh.pipeline.tables.sharing import modes_of, settle_modes
from relaymesh.pipeline.tables.views import VIEWS, views_sql
from relaymesh.pipeline.tables.warehouse_folder import folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MANIFEST", "Draft", "TableStore"]

log = logging.getLogger("relaymesh.pipeline")

MANIFEST = "manifest.json"
HISTORY = "manifests"


class TableStore:
    """A warehouse, for readers and for the one run that writes."""

    def __init__(self, root: Path, format: TableFormat) -> None:
        self.root = root
        self.format = format

    @classmethod
    def open(cls, root: str | Path, format: str = "parquet") -> TableStore:
        """The warehouse at `root`, a path that this machine and every Spark executor can write to."""
        path = folder_of(root, "the warehouse")
        return cls(path, format_of(format, path))

    # -- readers

    def manifest(self) -> Manifest | None:
        """What is published now; None before the first publish."""
        try:
            data = (self.root / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        return decode_manifest(data, str(self.root / MANIFEST))

    def published(self) -> Manifest:
        """The manifest; raises `NotFound` before the first publish."""
        manifest = self.manifest()
        if manifest is None:
            raise NotFound(f"nothing is published in {self.root}", hint="relaymesh pipeline run")
        return manifest

    def current(self, spark: SparkSession, name: str) -> DataFrame:
        """The published rows of a table. The frame stays valid while the run is kept, see `sweep`."""
        manifest = self.published()
        return format_of(manifest.table_format, self.root).read(spark, _named(manifest, name))

    def files(self, name: str) -> list[Path]:
        """The Parquet files of a published table, for readers other than Spark; may be none."""
        return [self.root / file.path for part in _named(self.published(), name).parts for file in part.files]

    def history(self) -> list[Manifest]:
        """The manifests that are kept, the oldest first: their files are all there.

        One that does not read back, or has another's name, does not count: `sweep` removes it.
        """
        found = (_readable(path) for path in sorted((self.root / HISTORY).glob("*.json")))
        return [each for each in found if each is not None]

    def differs_from_its_copy(self) -> bool:
        """Whether manifest.json was changed, or the copy of it that each publish leaves in manifests/.

        Without its copy it cannot be told.
        """
        manifest = self.manifest()
        if manifest is None:
            return False
        copy = self.root / HISTORY / f"{manifest.run_id}.json"
        return not copy.exists() or copy.read_bytes() != (self.root / MANIFEST).read_bytes()

    # -- the run that writes

    def draft(self, run_id: str) -> Draft:
        """New tables, beginning with what is published; with nothing, if that has another format."""
        published = self.manifest()
        keep = published is not None and published.table_format == self.format.name
        return Draft(self, run_id, published, keep=keep)

    def publish(self, run_id: str, frames: Mapping[str, DataFrame], **facts: Any) -> Manifest:
        """Write whole tables and publish them together; other published tables stay as they are."""
        draft = self.draft(run_id)
        for name, df in frames.items():
            draft.write(name, df)
        return draft.publish(**facts)

    def swap(self, manifest: Manifest) -> None:
        """Make this manifest the one that counts. Its files must be durable."""
        data = encode(manifest)
        settle_modes(self.root)
        modes = modes_of(self.root)
        swap_file(self.root / HISTORY / f"{manifest.run_id}.json", data, modes)
        swap_file(self.root / MANIFEST, data, modes)
        if manifest.table_format == "parquet":
            swap_file(self.root / VIEWS, views_sql(manifest).encode(), modes)
        else:
            (self.root / VIEWS).unlink(missing_ok=True)


def _readable(path: Path) -> Manifest | None:
    try:
        manifest = decode_manifest(path.read_bytes(), str(path))
    except JournalDamaged as error:
        log.warning("%s: it does not count", error.message)
        return None
    return manifest if manifest.run_id == path.stem else None


def _named(manifest: Manifest, name: str) -> PublishedTable:
    if name not in manifest.tables:
        raise NotFound(f"there is no table {name!r}", hint=f"there are {', '.join(manifest.tables)}")
    return manifest.tables[name]


class Draft:
    """Unpublished tables of a run. They start as a copy of what is published."""

    def __init__(self, store: TableStore, run_id: str, published: Manifest | None, *, keep: bool) -> None:
        self._store = store
        self.run_id = run_id
        self.published = published
        self.tables: dict[str, PublishedTable] = dict(published.tables) if published and keep else {}
        self.written: list[str] = []
        self._unsynced: set[str] = set()

    def write(
        self,
        name: str,
        df: DataFrame,
        *,
        layer: str = "gold",
        version: int = 1,
        day_column: str | None = None,
        days: Sequence[str] | None = None,
    ) -> PublishedTable:
        """Write a table, or with `days` only those days of it: its other days stay the published files."""
        before = self.tables.get(name)
        if days is not None and not self.continues(name, version, day_column):
            raise ValueError(f"{name} has no days to keep: it must be written whole")
        written = self._store.format.write(df, name, self.run_id, day_column, days)
        parts = written.parts
        if days is not None and before is not None:
            replaced = {part.day for part in parts}
            parts = sorted(
                [*(part for part in before.parts if part.day not in replaced), *parts],
                key=lambda part: part.day or "",
            )
        parts = [part for part in parts if part.files]
        rows = sum(part.rows for part in parts) if written.rows is None else written.rows
        table = PublishedTable(
            name=name,
            layer=layer,
            version=version,
            rows=rows,
            day_column=day_column,
            schema=df.schema.jsonValue(),
            parts=parts,
            location=written.location,
            snapshot=written.snapshot,
        )
        self.tables[name] = table
        self.written.append(name)
        self._unsynced.add(name)
        return table

    def continues(self, name: str, version: int, day_column: str | None) -> bool:
        """Whether the published table has this shape, so that its days may be written one by one."""
        before = self.tables.get(name)
        return before is not None and (before.version, before.day_column) == (version, day_column)

    def drop(self, name: str) -> None:
        """Take nothing over from the published table: it has to be built anew."""
        self.tables.pop(name, None)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """The table as it would be published now."""
        return self._store.format.read(spark, self.tables[name])

    def counts(self, spark: SparkSession, name: str, columns: Sequence[str], keys: Sequence[str]) -> Counts:
        """Of what this run has written of the table: rows, nulls of columns, different keys."""
        table = self.tables[name]
        own = [part for part in table.parts if part.run_id == self.run_id]
        if table.location is None:
            files = [self._store.root / file.path for part in own for file in part.files]
            counted = count_files(files, columns, keys)
            if counted is not None:
                return counted
            table = structs.replace(table, parts=own)
        return count_rows(self._store.format.read(spark, table), columns, keys)

    def arrange(self, names: Iterable[str]) -> None:
        """Put the tables into this order; others stay behind them."""
        first = {name: self.tables[name] for name in names if name in self.tables}
        self.tables = first | self.tables

    def sync(self) -> None:
        """Make every file of this run durable."""
        root = self._store.root
        sync_files(
            root / file.path
            for name in self._unsynced
            for part in self.tables[name].parts
            if part.run_id == self.run_id
            for file in part.files
        )
        self._unsynced.clear()

    def publish(self, **facts: Any) -> Manifest:
        """Everything written here becomes visible at once."""
        self.sync()
        manifest = Manifest(
            run_id=self.run_id,
            table_format=self._store.format.name,
            tables=self.tables,
            **facts,
        )
        self._store.swap(manifest)
        return manifest
