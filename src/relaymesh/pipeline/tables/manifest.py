"""The manifest: what is published, by which run, from which events. One JSON file, read by every reader.

Everything a reader needs is in it: for each table its schema and the exact files that hold its rows. Paths
are relative to the warehouse, so a warehouse may be copied or mounted elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh import __version__
from relaymesh.errors import FormatTooNew, JournalDamaged

__all__ = [
    "MANIFEST_FORMAT",
    "ROWS_PER_FILE",
    "BronzeFile",
    "File",
    "Input",
    "Manifest",
    "Part",
    "Piece",
    "PublishedTable",
    "decode_manifest",
    "encode",
    "files_for",
]

MANIFEST_FORMAT = 1

ROWS_PER_FILE = 4_000_000
"""Rows of one file at most. A day is written by one task, into as few files as that allows."""


class File(msgspec.Struct, frozen=True):
    """One Parquet file. It holds every column, the day too: nothing is to be read from its path."""

    path: str
    rows: int
    bytes: int
    sha256: str = ""
    """Of the whole file; empty where an older version wrote it."""
    mtime_ns: int = 0
    inode: int = 0


class Part(msgspec.Struct, frozen=True):
    """The rows of one day, or all rows of a table that is not kept by day (`day` is None)."""

    day: str | None
    run_id: str
    files: list[File]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class BronzeFile(msgspec.Struct, frozen=True):
    """One file of bronze as it was when it was written: what it is compared with before every publish."""

    name: str
    bytes: int
    rows: int
    first: int
    """The lowest sequence in it."""
    last: int
    """The highest sequence in it."""
    sha256: str
    mtime_ns: int
    inode: int


class Piece(msgspec.Struct, frozen=True):
    """Bronze: the files of one day in one folder, `<folder>/event_date=<day>`."""

    folder: str
    day: str
    files: int
    bytes: int
    contents: list[BronzeFile] = []
    """In the log, not in the manifest; empty also where an older version wrote it."""

    @property
    def path(self) -> str:
        return f"{self.folder}/event_date={self.day}"


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table. With `parquet` its files are in `parts`; else `snapshot` names a version of the format."""

    name: str
    layer: str
    version: int
    rows: int
    day_column: str | None
    schema: Any
    """Spark's JSON of the schema."""
    parts: list[Part] = []
    location: str | None = None
    snapshot: str | None = None


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables were made from: for each partition of each source, the events they hold."""

    source: str
    partition: int
    first_sequence: int
    through_sequence: int
    events: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One publish."""

    manifest_format: int = MANIFEST_FORMAT
    table_format: str = "parquet"
    run_id: str
    kind: str = "run"
    """run, follow, backfill or compact."""
    code_version: str = __version__
    started_at: str = ""
    ended_at: str = ""
    through_batch: int = -1
    """The last bronze batch these tables hold; -1 before the first."""
    generation: int = 0
    bronze: list[Piece] = []
    """The bronze files these tables were made from, for readers that want the events."""
    inputs: list[Input] = []
    days_refreshed: list[str] = []
    reconciliation: dict[str, Any] = {}
    tables: dict[str, PublishedTable]


def files_for(rows: int) -> int:
    """How many files so many rows need."""
    return max(1, -(-rows // ROWS_PER_FILE))


def encode(value: Any) -> bytes:
    """JSON for programs and for people who look: indented."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode_manifest(data: bytes, where: str) -> Manifest:
    try:
        probe = msgspec.json.decode(data)
        if probe["manifest_format"] > MANIFEST_FORMAT:
            raise FormatTooNew(f"{where} has format {probe['manifest_format']}, not {MANIFEST_FORMAT}")
        return msgspec.convert(probe, Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise JournalDamaged(
            f"{where} is no manifest: {error}",
            hint="copy the newest file of manifests/ over it; or remove it, then relaymesh pipeline run",
        ) from error
