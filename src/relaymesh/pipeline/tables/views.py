"""`views.sql`: the published tables by name, for a DuckDB that is started in the warehouse.

A glob over a table's folder would also read the files of earlier runs, and so count rows twice. These views
read the files that the manifest names, and take no column from a path.
"""

from __future__ import annotations

from relaymesh.pipeline.tables.manifest import Manifest, PublishedTable

__all__ = ["VIEWS", "views_sql"]

VIEWS = "views.sql"

_TYPES = {
    "string": "VARCHAR",
    "integer": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "binary": "BLOB",
}
_HEAD = """\
-- The tables of run {run_id}. Start DuckDB in the warehouse: duckdb -init views.sql
-- From elsewhere, before this file: SET file_search_path = 'path of the warehouse';
SET TimeZone = 'UTC';
"""


def views_sql(manifest: Manifest) -> str:
    """A view for each table, also for one without rows, and `bronze` with the events they were made from."""
    lines = [f"{_view(table.name)} {_rows(table)};" for table in manifest.tables.values()]
    if manifest.bronze:
        lines.append(f"{_view('bronze')} {_events(manifest)};")
    return "\n".join([_HEAD.format(run_id=manifest.run_id).rstrip(), *lines]) + "\n"


def _view(name: str) -> str:
    return f"CREATE OR REPLACE VIEW {_name(name)} AS"


def _rows(table: PublishedTable) -> str:
    files = [file.path for part in table.parts for file in part.files]
    if files:
        return f"FROM {_parquet(files)}"
    fields = [f"{_nothing(each['type'])} AS {_name(each['name'])}" for each in table.schema["fields"]]
    return f"SELECT {', '.join(fields)} WHERE false"


def _nothing(kind: object) -> str:
    """A null of Spark's type; of a nested one, which is no text, a null of DuckDB's choice."""
    return f"NULL::{_TYPES[kind]}" if isinstance(kind, str) and kind in _TYPES else "NULL"


def _events(manifest: Manifest) -> str:
    """Files of bronze have every column but the day, which is in their path."""
    folders: dict[str, list[str]] = {}
    for piece in manifest.bronze:
        folders.setdefault(piece.day, []).append(f"{piece.folder}/event_date={piece.day}/*.parquet")
    days = [f"SELECT *, DATE '{day}' AS event_date FROM {_parquet(own)}" for day, own in folders.items()]
    return " UNION ALL BY NAME ".join(days)


def _parquet(paths: list[str]) -> str:
    return f"read_parquet([{', '.join(map(_text, paths))}], hive_partitioning = false)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
