"""Harm any one file of a warehouse between two runs, and look at what the next run does.

It repairs what was harmed, or refuses and names it. When it ends well, the tables must hold the same rows as
before, and bronze every event of the journal, once: "It adds up" over a hole is what this looks for.

    python -m tests.pipeline.runs.any_file        every file, every harm, with and without new events
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from relaymesh.errors import MeshError
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.runs.pipeline import Pipeline
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.verify import verify_warehouse
from relaymesh.pipeline.tables.store import TableStore
from tests.pipeline.runs.tiny import tiny_catalog
from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import bronze_sequences, journal_sequences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HARMS", "Harm", "OnTrial", "Verdict"]

Harm = Callable[[Path], None]
Verdict = str
"""`untouched`, `repaired` or `refused: …`."""


def removed(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    _rewrite(path, lambda data: data[: len(data) // 2])


def emptied(path: Path) -> None:
    _rewrite(path, lambda data: b"")


def renamed(path: Path) -> None:
    path.rename(path.with_name(f"was-{path.name}"))


def doubled(path: Path) -> None:
    shutil.copy2(path, path.with_name(f"copy-of-{path.name}"))


def renumbered(path: Path) -> None:
    """Under the next number that is free, where names are numbers."""
    path.rename(_next(path))


def doubled_under_the_next_number(path: Path) -> None:
    shutil.copy2(path, _next(path))


def flipped_at(place: float) -> Harm:
    def flipped(path: Path) -> None:
        def turned(data: bytes) -> bytes:
            changed = bytearray(data)
            if changed:
                changed[int((len(changed) - 1) * place)] ^= 1
            return bytes(changed)

        _rewrite(path, turned)

    flipped.__name__ = f"flipped_at_{place}"
    return flipped


def digits_changed(path: Path) -> None:
    """A number of a JSON file is another, and it reads back as before."""
    _rewrite(
        path, lambda data: re.sub(rb'(": )(\d+)', lambda m: m[1] + b"%d" % (int(m[2]) + 1), data, count=3)
    )


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """In place: the inode stays."""
    data = change(path.read_bytes())
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def _next(path: Path) -> Path:
    number, width = int(path.stem), len(path.stem)
    while True:
        number += 1
        free = path.with_name(f"{number:0{width}}{path.suffix}")
        if not free.exists():
            return free


HARMS: tuple[Harm, ...] = (
    removed,
    truncated,
    emptied,
    renamed,
    doubled,
    *(flipped_at(place) for place in (0.0, 0.2, 0.5, 0.8, 0.97)),
)
OF_NUMBERS: tuple[Harm, ...] = (renumbered, doubled_under_the_next_number)
OF_JSON: tuple[Harm, ...] = (digits_changed,)


class OnTrial:
    """A tiny warehouse with everything in it: batches, a compaction, batches behind it, several publishes."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self._path = spark, path
        self.data, self.root = path / "data", path / "tables"
        traffic = Traffic(self.data)
        traffic.day(2)
        self.pipeline().run()
        self.pipeline().compact()
        traffic.day(2)
        traffic.close()
        self.pipeline().run()
        shutil.copytree(self.data, path / "data-before")
        shutil.copytree(self.root, path / "pristine")
        traffic.reopen()
        traffic.day(2)
        traffic.close()
        self.data.rename(path / "data-after")
        self._rows = {False: self.rows()}

    def pipeline(self) -> Pipeline:
        settings = PipelineSettings(directories=(self.data,), warehouse=self.root, batch_events=20)
        return Pipeline(self._spark, settings, tables=tiny_catalog())

    def expected(self, *, more: bool) -> dict[str, Counter[str]]:
        """The rows that the tables have when nothing was harmed."""
        if more not in self._rows:
            self.restore(more=more)
            self.pipeline().run()
            self._rows[more] = self.rows()
            assert self._rows[False] != self._rows[True]
        return self._rows[more]

    def restore(self, *, more: bool = False) -> None:
        """As it was; with `more`, events have come that no run has seen."""
        for path, kept in ((self.root, "pristine"), (self.data, "data-after" if more else "data-before")):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self._path / kept, path)

    def files(self) -> list[str]:
        """Every file of the warehouse that is no lock, relative to it."""
        found = (path for path in (self._path / "pristine").rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self._path / "pristine")) for path in found if path.name != "lock")

    def files_published(self) -> list[str]:
        """Those of the tables that the manifest names."""
        tables = TableStore.open(self._path / "pristine").published().tables.values()
        return sorted(file.path for table in tables for part in table.parts for file in part.files)

    def files_of_bronze(self) -> list[str]:
        """Those that the log and the generation name."""
        pieces = Bronze(self._path / "pristine").snapshot().pieces
        return sorted(f"{piece.path}/{file.name}" for piece in pieces for file in piece.contents)

    @staticmethod
    def harms(file: str) -> tuple[Harm, ...]:
        """Tables are built anew, which takes seconds: fewer for them, and one for what Spark left beside."""
        if file.startswith("tables/"):
            return (removed, truncated, flipped_at(0.5)) if file.endswith(".parquet") else (removed,)
        numbers = OF_NUMBERS if Path(file).stem.isdecimal() else ()
        return HARMS + numbers + (OF_JSON if file.endswith(".json") else ())

    def rows(self) -> dict[str, Counter[str]]:
        """What a reader of the published tables gets, without Spark and without our own reading."""
        tables = TableStore.open(self.root).published().tables
        return {
            name: Counter(
                json.dumps(row, default=str, sort_keys=True)
                for part in table.parts
                for file in part.files
                for row in pq.ParquetFile(self.root / file.path).read().to_pylist()
            )
            for name, table in tables.items()
            if name in ("entries", "operations", "audit_violations")
        }

    def tried(self, file: str, harm: Harm, *, more: bool = False) -> Verdict:
        """Harm it and run. Raises `AssertionError` at a hole, and at a refusal that does not name it."""
        expected = self.expected(more=more)
        self.restore(more=more)
        before = TableStore.open(self.root).published()
        harm(self.root / file)
        try:
            record = self.pipeline().run()
        except MeshError as error:
            said = f"{error.message} | {error.hint}"
            assert _names(said, file), f"it does not name {file}: {said}"
            assert "\n" not in said
            self._put_back_the_manifest(file)
            assert TableStore.open(self.root).published() == before, "published all the same"
            return f"refused: {said}"
        assert self.rows() == expected, f"{record.status}: other rows"
        found = [sequence for _, sequence in bronze_sequences(TableStore.open(self.root))]
        assert found == journal_sequences(self.data), f"{record.status}: other events"
        assert verify_warehouse(self.root).found == []
        return "repaired" if record.status == "published" and not more else "untouched"

    def _put_back_the_manifest(self, file: str) -> None:
        if file.endswith("manifest.json"):
            shutil.copy2(self._path / "pristine" / file, self.root / file)

    def edited_behind_its_time(self, file: str, place: float) -> Verdict:
        """Flip a bit and put the time of change back: a run may believe it, `pipeline verify` may not."""
        path = self.root / file
        stat, kept = path.stat(), path.read_bytes()
        flipped_at(place)(path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        try:
            found = [str(each) for each in verify_warehouse(self.root).found]
        except MeshError as error:
            found = [error.message]
        _rewrite(path, lambda _: kept)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert any(_names(each, file) for each in found), f"verify does not name {file}: {found}"
        return f"refused: {found[0]}"


def _names(said: str, file: str) -> bool:
    """By its name or its folder. For Spark's checkpoint, that it is the one that is harmed is enough."""
    path = Path(file)
    names = [path.name, path.parent.name]
    if path.name == "generation.json" or path.parent.name == "log":
        names = [path.name, "bronze/log"]
    if file.startswith("checkpoints/"):
        names = ["checkpoints/bronze", str(path.parent)]
    return any(name in said for name in names)


def tried_all(
    trial: OnTrial, files: Iterable[str], *, more: bool
) -> Iterator[tuple[str, str, Verdict | None, str]]:
    """File, harm, verdict, and what was wrong with it."""
    for file in files:
        for harm in trial.harms(file):
            try:
                yield file, harm.__name__, trial.tried(file, harm, more=more), ""
            except Exception as hole:
                yield file, harm.__name__, None, f"{type(hole).__name__}: {hole}"[:600]


def wanted(trial: OnTrial) -> list[str]:
    """The files that a word on the command line is part of; all, without one."""
    return [file for file in trial.files() if not sys.argv[1:] or any(word in file for word in sys.argv[1:])]


def main() -> int:
    from relaymesh.pipeline.spark import spark_session
    from tests.pipeline.conftest import SETTINGS

    logging.disable(logging.WARNING)
    holes = 0
    with tempfile.TemporaryDirectory() as path:
        spark = spark_session(master="local[2]", app="any file", settings=SETTINGS)
        trial = OnTrial(spark, Path(path))
        for more in (False, True):
            counts: Counter[str] = Counter()
            for file, harm, verdict, hole in tried_all(trial, wanted(trial), more=more):
                counts["holes" if verdict is None else verdict.partition(":")[0]] += 1
                holes += verdict is None
                told = f"HOLE {hole}" if verdict is None else verdict
                sys.stdout.write(f"{file} {harm}: {told}\n")
                sys.stdout.flush()
            sys.stdout.write(json.dumps({"new_events": more, **counts}) + "\n")
        spark.stop()
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
