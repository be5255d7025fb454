"""The published tables behind SQL: what one manifest names, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.report.beside import rows_beside
from relaymesh.pipeline.runs.record import load_records
from relaymesh.pipeline.tables.manifest import Manifest, PublishedTable
from relaymesh.pipeline.tables.store import TableStore

__all__ = ["Answer", "Published", "Row"]

Row = tuple[Any, ...]

_TYPES = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


@dataclass(frozen=True)
class Answer:
    """Rows of a query, the first so many; `total` counts all there are."""

    columns: tuple[str, ...]
    rows: list[Row]
    total: int

    @property
    def more(self) -> int:
        return self.total - len(self.rows)

    def column(self, name: str) -> list[Any]:
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Published:
    """The tables of one manifest. Its files stay while its run is kept, so a reader sees all of it.

    A query reads these tables only: DuckDB has no file system and no network here, and takes one statement at
    a time, which must only read.
    """

    def __init__(self, warehouse: Path, *, unpublished: bool = False) -> None:
        """`unpublished`: also where runs have failed and none has published, to ask what they left."""
        store = TableStore.open(warehouse)
        self.root = store.root
        self.manifest: Manifest = _of_failed_runs(self.root) if unpublished else store.published()
        if self.manifest.table_format != "parquet":
            raise InvalidSettings(
                f"the tables in {warehouse} are {self.manifest.table_format}, and reports read Parquet",
                hint="relaymesh pipeline run --format parquet --warehouse PATH, and report from there",
            )
        self._check_files()
        self._duck = duckdb.connect(
            ":memory:", config={"enable_external_access": "false", "python_enable_replacements": "false"}
        )
        self._duck.execute("SET TimeZone = 'UTC'")
        for table in self.manifest.tables.values():
            self._duck.register(table.name, self._rows_of(table))
        self.beside = rows_beside(self.root, self.manifest)
        """What is no published table, and can be asked too."""
        for name, rows in self.beside.items():
            self._duck.register(name, rows)
        self._duck.execute("SET lock_configuration = true")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._duck.close()

    def _check_files(self) -> None:
        """Every file that the manifest names must be there; a sweep removes only files of older runs."""
        for table in self.manifest.tables.values():
            for file in (file for part in table.parts for file in part.files):
                if not (self.root / file.path).is_file():
                    raise NotFound(
                        f"the published file {self.root / file.path} of {table.name} is gone",
                        hint="restore it from a copy, or move manifest.json of the warehouse away and run"
                        " relaymesh pipeline run: it makes the tables anew from bronze",
                    )

    def _rows_of(self, table: PublishedTable) -> Any:
        """Read as it is needed: nothing is loaded that no query asks for."""
        files = [str(self.root / file.path) for part in table.parts for file in part.files]
        schema = arrow_schema(table)
        return ds.dataset(files, schema=schema, format="parquet") if files else schema.empty_table()

    def has(self, *names: str) -> bool:
        """Whether these tables are published."""
        return self.manifest.tables.keys() >= set(names)

    def tables_in(self, sql: str) -> set[str]:
        """The tables a query reads."""
        return set(self._duck.get_table_names(sql))

    def span(self) -> tuple[datetime | None, datetime | None]:
        """The first and the last minute in which anything happened; None where nothing is published."""
        if not self.has("throughput"):
            return None, None
        [(first, last)] = self.ask("SELECT min(minute), max(minute) FROM throughput", 1).rows
        return first, last

    def ask(self, sql: str, limit: int) -> Answer:
        """The first `limit` rows of one reading statement; `InvalidSettings` says what is wrong with it."""
        try:
            statements = self._duck.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _READS:
                raise InvalidSettings("that is not one statement that reads", hint="SELECT … FROM …")
            self._duck.execute(statements[0])
            columns = tuple(each[0] for each in self._duck.description or ())
            rows = self._duck.fetchmany(limit)
            return Answer(columns, rows, len(rows) + self._count_the_rest())
        except duckdb.Error as error:
            raise InvalidSettings(
                " ".join(str(error).split())[:500], hint="relaymesh report tables lists what there is"
            ) from error

    def _count_the_rest(self) -> int:
        rest = 0
        while chunk := self._duck.fetchmany(10_000):
            rest += len(chunk)
        return rest


def _of_failed_runs(root: Path) -> Manifest:
    """What is published; where nothing is and runs have failed, no tables, and bronze as it is."""
    store = TableStore.open(root)
    found = store.manifest()
    if found is None and load_records(root, 1):
        return Manifest(run_id="", tables={}, bronze=Bronze(root).snapshot().pieces)
    return store.published()


def arrow_schema(table: PublishedTable) -> pa.Schema:
    """From Spark's JSON. Columns of other types are no part of any table here."""
    return pa.schema([(each["name"], _TYPES[each["type"]]) for each in columns_of(table)])


def columns_of(table: PublishedTable) -> Sequence[dict[str, Any]]:
    """Name, type and metadata of each column."""
    fields: list[dict[str, Any]] = table.schema["fields"]
    return fields
