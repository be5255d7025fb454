"""The footer of a Parquet file, and the checksum of the file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from relaymesh.pipeline.tables.manifest import BronzeFile

__all__ = ["Footer", "checksum", "described", "read_footer"]


class Footer(msgspec.Struct, frozen=True):
    """Rows, and the lowest and highest `sequence` where the file has that column with statistics."""

    rows: int
    first: int | None = None
    last: int | None = None


def read_footer(path: Path) -> Footer | str:
    """The footer, or why there is none. Does not read the rows."""
    import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - `pipeline status` needs no pyarrow
    import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415

    try:
        footer = pq.read_metadata(path)
        spans = [
            column.statistics
            for group in (footer.row_group(number) for number in range(footer.num_row_groups))
            for column in (group.column(index) for index in range(group.num_columns))
            if column.path_in_schema == "sequence"
        ]
    except (pa.ArrowException, OSError) as error:
        return f"its footer does not read back: {str(error).splitlines()[0]}"
    if not spans or any(each is None or not each.has_min_max for each in spans):
        return Footer(footer.num_rows)
    return Footer(footer.num_rows, min(each.min for each in spans), max(each.max for each in spans))


def checksum(path: Path) -> str:
    """SHA-256 of the whole file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def described(path: Path) -> BronzeFile:
    """A file of bronze that has just been written."""
    footer = read_footer(path)
    if isinstance(footer, str) or footer.first is None or footer.last is None:
        raise ValueError(f"{path} is no file of bronze: {footer}")
    stat = path.stat()
    return BronzeFile(
        path.name,
        stat.st_size,
        footer.rows,
        footer.first,
        footer.last,
        checksum(path),
        stat.st_mtime_ns,
        stat.st_ino,
    )
