"""The same four gold tables in Spark, DuckDB and Polars, from the same published files of silver.

Each engine reads the files, computes, and answers with rows. The answers must be the same: percentiles are
the value at rank ceil(p · n), which is what all three can say exactly.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipeline.spent import Spent, spent_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relaymesh.pipeline.tables.store import TableStore

__all__ = ["QUERIES", "Engine", "beside_each_other"]

QUERIES = ("latency", "throughput", "failure_rates", "backlog")
DIGITS = 9

Rows = list[dict[str, Any]]
Files = Mapping[str, list[str]]
Engine = Callable[[str], Rows]


def beside_each_other(spark: SparkSession, store: TableStore, *, rounds: int = 3) -> dict[str, Any]:
    """For each query and engine the best of some rounds, and whether all answers are the same."""
    files = {name: [str(path) for path in store.files(name)] for name in ("messages", "attempts", "agents")}
    engines: dict[str, Engine] = {"spark": spark_engine(spark, store), "duckdb": duckdb_engine(files)}
    missing: dict[str, str] = {}
    try:
        engines["polars"] = polars_engine(files)
    except ImportError:
        missing["polars"] = "the package polars is not installed (requirements/bench.txt has it)"
    found: dict[str, Any] = {}
    for query in QUERIES:
        told = {name: _best(engine, query, rounds) for name, engine in engines.items()}
        answers = {name: compared(rows) for name, (rows, _) in told.items()}
        found[query] = {
            "rows": len(answers["spark"]),
            "same": all(answer == answers["spark"] for answer in answers.values()),
            **{
                name: {"wall_s": round(spent.wall_s, 3), "cpu_s": round(spent.cpu_s, 3)}
                for name, (_, spent) in told.items()
            },
        }
    return {"queries": found, "missing": missing, "rounds": rounds}


def _best(engine: Engine, query: str, rounds: int) -> tuple[Rows, Spent]:
    runs = [spent_by(lambda: engine(query)) for _ in range(rounds)]
    return min(runs, key=lambda run: run[1].wall_s)


def compared(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Rows so that equal ones are equal: columns by name, rows in order, fractions to nine digits."""
    return sorted(tuple(f"{name}={_plain(row[name])}" for name in sorted(row)) for row in rows)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}" if math.isfinite(value) else "none"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    return "none" if value is None else f"{value:g}" if isinstance(value, int) and value < 1e6 else str(value)


# -- Spark: the pipeline's own functions


def spark_engine(spark: SparkSession, store: TableStore) -> Engine:
    from relaymesh.pipeline import catalog

    def ask(query: str) -> Rows:
        table = catalog.table(query)
        df = table.build(**{name: store.current(spark, name) for name in table.inputs})
        return [row.asDict() for row in df.collect()]

    return ask


# -- DuckDB


def duckdb_engine(files: Files) -> Engine:
    import duckdb

    here = Path(__file__).parent / "queries"

    def ask(query: str) -> Rows:
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            for name, paths in files.items():
                duck.read_parquet(paths, hive_partitioning=False).create_view(name)
            asked = duck.execute((here / f"{query}.sql").read_text(encoding="utf-8"))
            columns = [each[0] for each in asked.description or ()]
            return [dict(zip(columns, row, strict=True)) for row in asked.fetchall()]

    return ask


# -- Polars


def polars_engine(files: Files) -> Engine:
    import polars  # type: ignore[import-not-found, unused-ignore]

    from bench.pipeline import polars_queries

    def ask(query: str) -> Rows:
        tables = {name: polars.scan_parquet(paths, hive_partitioning=False) for name, paths in files.items()}
        rows: Rows = getattr(polars_queries, query)(**tables).collect().to_dicts()
        return rows

    return ask
