"""Bronze on disk: the batches of the ingest, each a folder of its own, and the log that says which count.

    bronze/log/00000017.json                                     batch 17 counts, and this is its folder
    bronze/batch=00000017-<run>/event_date=2026-11-16/….parquet  its rows
    bronze/_incoming/<run>/….parquet                             files of tasks, before they are in a batch
    bronze/generation.json                                       what compaction made of batches 0 to n
    bronze/batch=k-<run>/event_date=2026-11-16/….parquet         what was kept of days that were forgotten

Exactly once: Spark gives a batch the same events after a crash as before it. Each try writes a folder of its
own, and the log entry, swapped in by a rename, makes one of them count. A batch that the log has is not
written again. A folder that nothing names was left by a crash, and `sweep` removes it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import structs

from relaymesh.errors import JournalDamaged
from relaymesh.modes import make_folder
from relaymesh.pipeline.bronze.snapshot import Batch, BronzeSnapshot, Generation
from relaymesh.pipeline.bronze.spans import Arrived, Stretch, merged
from relaymesh.pipeline.tables.durable import swap_file, sync_files
from relaymesh.pipeline.tables.footer import described
from relaymesh.pipeline.tables.manifest import ROWS_PER_FILE, Piece, encode
from relaymesh.pipeline.tables.seal import is_broken, sealed
from relaymesh.pipeline.tables.sources import earlier_names, known_sources, under_its_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FOLDER", "INCOMING", "Bronze"]

FOLDER = "bronze"
INCOMING = "_incoming"
_ENTRY = re.compile(r"[0-9]{8,}")
_T = TypeVar("_T")


class Bronze:
    """The bronze folder of one warehouse."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER
        self._log = self.folder / "log"
        self._generation = self.folder / "generation.json"

    # -- what counts

    def snapshot(self) -> BronzeSnapshot:
        """The current state; it reads again if a compaction switched meanwhile."""
        names = earlier_names(known_sources(self.root).values())
        while True:
            generation = self._read_generation()
            paths = [path for path in self._entries() if int(path.stem) > generation.through_batch]
            batches = [self._batch_in(path) for path in paths]
            if None not in batches and self._read_generation().generation == generation.generation:
                counted = [_renamed(batch, names) for batch in batches if batch is not None]
                return BronzeSnapshot(_renamed(generation, names), counted)

    def _read_generation(self) -> Generation:
        return _decoded(self._generation, Generation) or Generation()

    def has(self, batch: int) -> bool:
        return batch <= self._read_generation().through_batch or self._entry(batch).exists()

    def _entries(self) -> list[Path]:
        found = (path for path in self._log.glob("[0-9]*.json") if _ENTRY.fullmatch(path.stem))
        return sorted(found, key=lambda path: int(path.stem))

    def _batch_in(self, path: Path) -> Batch | None:
        batch = _decoded(path, Batch)
        if batch is not None and batch.batch != int(path.stem):
            raise JournalDamaged(
                f"{path} is the log entry of batch {batch.batch}, under another name",
                hint="give it its name back; if that is there too, remove the copy",
            )
        return batch

    def _entry(self, batch: int) -> Path:
        return self._log / f"{batch:08}.json"

    # -- reading

    def read(
        self, spark: SparkSession, pieces: Sequence[Piece], days: Iterable[str] | None = None
    ) -> DataFrame:
        """The rows of these pieces, with the columns of the bronze schema."""
        from relaymesh.pipeline.schema.bronze import EVENTS  # noqa: PLC0415 - `status` must not need pyspark

        wanted = None if days is None else set(days)
        paths = [str(self.root / piece.path) for piece in pieces if wanted is None or piece.day in wanted]
        if not paths:
            return spark.createDataFrame([], EVENTS)
        found = spark.read.schema(EVENTS).option("basePath", str(self.folder)).parquet(*paths)
        names = earlier_names(known_sources(self.root).values())
        for name, id in names.items():
            found = found.replace(name, id, subset=["source"])
        return found.select(*EVENTS.names)

    # -- writing

    def incoming(self, run_id: str) -> Path:
        """Where the tasks of a run put files. They never count where they are."""
        return self.folder / INCOMING / run_id

    def take(self, files: Iterable[Arrived], name: str) -> str:
        """Move files into a new folder, by day. Nothing counts yet. Returns the folder."""
        folder = f"{FOLDER}/batch={name}"
        shutil.rmtree(self.root / folder, ignore_errors=True)  # an earlier try of the same run
        for number, file in enumerate(files):
            day = self.root / folder / f"event_date={file.stretch.day}"
            make_folder(day)
            Path(file.path).rename(day / f"part-{number:05}.parquet")
        return folder

    def write(self, df: DataFrame, name: str) -> str:
        """Write rows into a new folder, by day. Nothing counts yet. Returns the folder."""
        folder = f"{FOLDER}/batch={name}"
        writer = df.write.mode("overwrite").partitionBy("event_date")
        writer.option("maxRecordsPerFile", ROWS_PER_FILE).parquet(str(self.root / folder))
        return folder

    def pieces(self, folder: str) -> list[Piece]:
        """What was written there, made durable."""
        found = []
        for path in sorted((self.root / folder).glob("event_date=*")):
            files = sorted(path.glob("*.parquet"))
            sync_files(files)
            contents = [described(file) for file in files]
            size = sum(file.bytes for file in contents)
            found.append(Piece(folder, path.name.partition("=")[2], len(files), size, contents))
        return found

    def measure(self, spark: SparkSession, pieces: Sequence[Piece]) -> list[Stretch]:
        """Read the sequences of the files, so that the log entry of a batch describes its files."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        day = f.col("event_date").cast("string")
        numbers = (f.min("sequence"), f.max("sequence"), f.count("*"))
        rows = self.read(spark, pieces).groupBy("source", "partition", day).agg(*numbers).collect()
        return merged(Stretch(*row) for row in rows)

    def commit(self, batch: Batch) -> None:
        """Make the batch count, also after a power loss."""
        swap_file(self._entry(batch.batch), sealed(encode(batch)))

    def switch(self, generation: Generation) -> None:
        """From now on readers see the compacted files instead of those of the batches."""
        swap_file(self._generation, sealed(encode(generation)))
        for path in self._entries():
            if int(path.stem) <= generation.through_batch:
                path.unlink()


_Entry = TypeVar("_Entry", Batch, Generation)


def _renamed(entry: _Entry, names: Mapping[str, str]) -> _Entry:
    """The entry with each source's id in place of a name that it had before."""
    if not names:
        return entry
    return structs.replace(
        entry,
        stretches=[under_its_id(each, names) for each in entry.stretches],
        gaps=[under_its_id(each, names) for each in entry.gaps],
        segments=[under_its_id(each, names) for each in entry.segments],
    )


def _decoded(path: Path, kind: type[_T]) -> _T | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    hint = "restore it from a copy; or move bronze and checkpoints away, then relaymesh pipeline run"
    if is_broken(text):
        raise JournalDamaged(f"{path} was changed: its checksum is another", hint=hint)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise JournalDamaged(f"{path} does not read back: {error}", hint=hint) from error
