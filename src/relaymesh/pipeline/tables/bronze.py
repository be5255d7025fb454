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
from relaymesh.pipeline.tables.durable import swap_file, sync_files
from relaymesh.pipeline.tables.footer import described
from relaymesh.pipeline.tables.manifest import ROWS_PER_FILE, Input, Piece, encode
from relaymesh.pipeline.tables.seal import is_broken, sealed
from relaymesh.pipeline.tables.sources import earlier_names, known_sources, under_its_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Arrived",
    "Batch",
    "Bronze",
    "BronzeSnapshot",
    "Forgotten",
    "Gap",
    "Generation",
    "Piece",
    "SegmentRead",
    "Stretch",
    "furthest",
    "joined",
    "merged",
]

FOLDER = "bronze"
INCOMING = "_incoming"
_ENTRY = re.compile(r"[0-9]{8,}")
_T = TypeVar("_T")


class Stretch(msgspec.Struct, frozen=True):
    """Events of one partition of one source on one day: `rows` of them, between these sequences."""

    source: str
    partition: int
    day: str
    first: int
    last: int
    rows: int


class Gap(msgspec.Struct, frozen=True):
    """Events of one partition that did not read back: `first` to `last`, both missing."""

    source: str
    partition: int
    first: int
    last: int
    why: str

    @property
    def events(self) -> int:
        return self.last - self.first + 1


class SegmentRead(msgspec.Struct, frozen=True):
    """How far a segment was read: up to before the event `sequence`, whose frame begins at `offset`.

    The salt is the segment's own, in hexadecimal: it tells a copy that went its own way.
    """

    source: str
    segment: str
    salt: str
    offset: int
    sequence: int


class Forgotten(msgspec.Struct, frozen=True):
    """Events of one partition that bronze had, and retention removed: `first` to `last`, up to this day."""

    source: str
    partition: int
    first: int
    last: int
    day: str

    @property
    def events(self) -> int:
        return self.last - self.first + 1


class Arrived(msgspec.Struct, frozen=True):
    """A file that a task of the ingest has written, and what it holds."""

    path: str
    stretch: Stretch


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A log entry: one batch of the stream, durable."""

    batch: int
    run_id: str
    committed_at: str
    pieces: list[Piece]
    stretches: list[Stretch]
    gaps: list[Gap] = []
    segments: list[SegmentRead] = []
    content: bool = True
    """Whether its rows hold the content of messages."""

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Batches 0 to `through_batch`, as compaction left them."""

    generation: int = 0
    through_batch: int = -1
    run_id: str = ""
    pieces: list[Piece] = []
    stretches: list[Stretch] = []
    gaps: list[Gap] = []
    segments: list[SegmentRead] = []
    content: bool = True
    """Whether any of its rows hold the content of messages."""
    kept: list[Piece] = []
    """Of the days that were forgotten: events that later ones are judged by, see runs/retention.py."""
    forgotten: list[Forgotten] = []


class BronzeSnapshot(msgspec.Struct, frozen=True):
    """What bronze held at one moment. Its files stay while a kept manifest or the log names them."""

    generation: Generation
    batches: list[Batch]

    @property
    def through_batch(self) -> int:
        return self.batches[-1].batch if self.batches else self.generation.through_batch

    @property
    def pieces(self) -> list[Piece]:
        """Everything there is to read."""
        return [*self.generation.kept, *self.of_events]

    @property
    def of_events(self) -> list[Piece]:
        """Without what was kept of days that were forgotten."""
        return [*self.generation.pieces, *(piece for batch in self.batches for piece in batch.pieces)]

    @property
    def forgotten(self) -> list[Forgotten]:
        return self.generation.forgotten

    @property
    def stretches(self) -> list[Stretch]:
        """One for each source, partition and day, in order."""
        return merged([*self.generation.stretches, *(own for each in self.batches for own in each.stretches)])

    @property
    def gaps(self) -> list[Gap]:
        """What is known to be missing, in order; neighbours are one."""
        return joined([*self.generation.gaps, *(gap for batch in self.batches for gap in batch.gaps)])

    @property
    def segments(self) -> list[SegmentRead]:
        """How far each segment of each source was read; not those that older versions read."""
        own = [*self.generation.segments, *(read for batch in self.batches for read in batch.segments)]
        return furthest(own)

    @property
    def content(self) -> bool:
        """Whether rows of it hold the content of messages."""
        entries: list[Generation | Batch] = [self.generation, *self.batches]
        return any(each.content and each.pieces for each in entries)

    @property
    def days(self) -> list[str]:
        return sorted({piece.day for piece in self.of_events})

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)

    def through(self, batch: int) -> BronzeSnapshot:
        """As it was when `batch` was the last."""
        return BronzeSnapshot(self.generation, [each for each in self.batches if each.batch <= batch])

    def after(self, batch: int) -> list[Batch]:
        return [each for each in self.batches if each.batch > batch]

    def inputs(self) -> list[Input]:
        """How far each partition of each source has been read; also where nothing of it is there: in known
        gaps, and in days that were forgotten."""
        found: dict[tuple[str, int], list[Stretch]] = {}
        without: list[Gap | Forgotten] = [*self.gaps, *self.forgotten]
        empty = [Stretch(each.source, each.partition, "", each.first, each.last, 0) for each in without]
        for stretch in [*self.stretches, *empty]:
            found.setdefault((stretch.source, stretch.partition), []).append(stretch)
        return [
            Input(
                source=source,
                partition=partition,
                first_sequence=min(each.first for each in own),
                through_sequence=max(each.last for each in own),
                events=sum(each.rows for each in own),
            )
            for (source, partition), own in sorted(found.items())
        ]


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """One stretch for each source, partition and day."""
    found: dict[tuple[str, int, str], Stretch] = {}
    for each in stretches:
        key = (each.source, each.partition, each.day)
        known = found.get(key)
        if known is None:
            found[key] = each
        else:
            first, last = min(known.first, each.first), max(known.last, each.last)
            found[key] = Stretch(*key, first, last, known.rows + each.rows)
    return [found[key] for key in sorted(found)]


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps that lie side by side, as one."""
    found: list[Gap] = []
    for each in sorted(gaps, key=lambda gap: (gap.source, gap.partition, gap.first)):
        last = found[-1] if found else None
        if last and (last.source, last.partition, last.last + 1) == (each.source, each.partition, each.first):
            found[-1] = Gap(each.source, each.partition, last.first, each.last, last.why)
        else:
            found.append(each)
    return found


def furthest(reads: Iterable[SegmentRead]) -> list[SegmentRead]:
    """One for each segment of each source: the one that came furthest."""
    found: dict[tuple[str, str], SegmentRead] = {}
    for each in reads:
        known = found.get((each.source, each.segment))
        if known is None or known.sequence < each.sequence:
            found[each.source, each.segment] = each
    return [found[key] for key in sorted(found)]


class Bronze:
    """The bronze folder of one warehouse."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER
        self._log = self.folder / "log"
        self._generation = self.folder / "generation.json"

    # -- what counts

    def snapshot(self) -> BronzeSnapshot:
        """What is there now; looks again when a compaction switched meanwhile."""
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
        """Read the sequences back: what the log says about a batch is what its files hold."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        day = f.col("event_date").cast("string")
        numbers = (f.min("sequence"), f.max("sequence"), f.count("*"))
        rows = self.read(spark, pieces).groupBy("source", "partition", day).agg(*numbers).collect()
        return merged(Stretch(*row) for row in rows)

    def commit(self, batch: Batch) -> None:
        """From here on the batch counts, also after power loss."""
        swap_file(self._entry(batch.batch), sealed(encode(batch)))

    def switch(self, generation: Generation) -> None:
        """Readers that look from here on see the compacted files in place of the batches'."""
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
