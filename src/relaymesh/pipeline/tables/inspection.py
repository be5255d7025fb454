"""Checks that the files are unchanged: compares them with the log of bronze and with the manifest, without
Spark.

A file must be there, with its bytes, and its footer must tell the rows and sequences that were noted when it
was written. One whose size, time of change or inode is another is read whole for its checksum; `whole` does
that with every file: it finds also an edit that put the time back. A file that was good is not opened again
while its size, time and inode stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from relaymesh.errors import MeshError
from relaymesh.pipeline.bronze.snapshot import Batch, BronzeSnapshot, Generation
from relaymesh.pipeline.tables.footer import Footer, checksum, read_footer
from relaymesh.pipeline.tables.manifest import BronzeFile, Manifest, Piece, PublishedTable
from relaymesh.pipeline.tables.seen import Facts, Seen

__all__ = ["Finding", "Inspection", "WarehouseDamaged"]


class Finding(msgspec.Struct, frozen=True):
    """One difference: the path, relative to the warehouse, and what differs."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class WarehouseDamaged(MeshError):
    """Files of the warehouse have changed, or bronze differs from the journals."""

    code = "WAREHOUSE_DAMAGED"

    def __init__(self, found: list[Finding], *, hint: str) -> None:
        more = f" (and {len(found) - 1} more: relaymesh pipeline verify)" if len(found) > 1 else ""
        super().__init__(f"{found[0]}{more}; nothing was published", hint=hint)
        self.found = found


class _Expected(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    rows: int
    sha256: str
    mtime_ns: int
    inode: int
    first: int | None = None
    last: int | None = None


class Inspection:
    """Looks at the files of one warehouse, as often as it is asked.

    What it has found good is not opened again while its size, time and inode stay, also by a later run:
    `keep` writes it down, see seen.py.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = Seen(root)

    def keep(self) -> None:
        """Let the next run skip good files. Call it when every file of bronze and tables was checked."""
        self._seen.keep()

    def bronze(self, snapshot: BronzeSnapshot, *, whole: bool = False) -> list[Finding]:
        """Every file of bronze with the log, and every part of the log with the rows of its files."""
        found: list[Finding] = []
        expected = snapshot.generation.through_batch + 1
        for batch in snapshot.batches:
            if batch.batch != expected:
                found.append(_missing_entries(expected, batch.batch - 1))
            expected = batch.batch + 1
            found += self._entry(batch, f"bronze/log/{batch.batch:08}.json", whole=whole)
        generation = "bronze/generation.json"
        for piece in snapshot.generation.kept:
            found += self._piece(piece, generation, whole=whole)
        return [*found, *self._entry(snapshot.generation, generation, whole=whole)]

    def table(self, table: PublishedTable, *, whole: bool = False) -> list[Finding]:
        """Every file of a published table with the manifest."""
        files = (file for part in table.parts for file in part.files)
        expected = (
            _Expected(each.path, each.bytes, each.rows, each.sha256, each.mtime_ns, each.inode)
            for each in files
        )
        return [finding for each in expected if (finding := self._file(each, whole=whole)) is not None]

    def tables(self, manifest: Manifest, *, whole: bool = False) -> dict[str, list[Finding]]:
        """By table, those that are damaged."""
        looked = {name: self.table(table, whole=whole) for name, table in manifest.tables.items()}
        return {name: found for name, found in looked.items() if found}

    def _entry(self, entry: Batch | Generation, path: str, *, whole: bool) -> list[Finding]:
        found = [finding for piece in entry.pieces for finding in self._piece(piece, path, whole=whole)]
        if found:
            return found
        noted: Counter[str] = Counter()
        for stretch in entry.stretches:
            noted[stretch.day] += stretch.rows
        held: Counter[str] = Counter()
        for piece in entry.pieces:
            held[piece.day] += self._rows(piece)
        return [
            Finding(path, f"it names {noted[day]} events of {day}, and its files hold {held[day]}")
            for day in sorted(noted | held)
            if noted[day] != held[day]
        ]

    def _piece(self, piece: Piece, entry: str, *, whole: bool) -> Iterable[Finding]:
        there = {path.name: path for path in (self._root / piece.path).glob("*.parquet") if _counts(path)}
        if not piece.contents:  # written by a version that noted no single files
            yield from self._older(piece, there)
            return
        if piece.files != len(piece.contents) or piece.bytes != sum(file.bytes for file in piece.contents):
            yield Finding(entry, f"its numbers about {piece.path} contradict each other")
        for name in sorted(there.keys() - {file.name for file in piece.contents}):
            yield Finding(f"{piece.path}/{name}", f"the file is unknown: {entry} does not name it")
        for file in piece.contents:
            finding = self._file(_expected(piece, file), whole=whole)
            if finding is not None:
                yield finding

    def _older(self, piece: Piece, there: dict[str, Path]) -> Iterable[Finding]:
        size = sum(path.stat().st_size for path in there.values())
        if (len(there), size) != (piece.files, piece.bytes):
            noted = f"{piece.files} files with {piece.bytes} bytes"
            yield Finding(piece.path, f"{noted} were written, and {len(there)} with {size} are there")
            return
        for name, path in there.items():
            footer = read_footer(path)
            if isinstance(footer, str):
                yield Finding(f"{piece.path}/{name}", footer)

    def _rows(self, piece: Piece) -> int:
        if piece.contents:
            return sum(file.rows for file in piece.contents)
        paths = (path for path in (self._root / piece.path).glob("*.parquet") if _counts(path))
        return sum(footer.rows for path in paths if isinstance(footer := read_footer(path), Footer))

    def _file(self, expected: _Expected, *, whole: bool) -> Finding | None:
        path = self._root / expected.path
        try:
            stat = path.stat()
        except OSError as error:
            missing = "it is missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
            return Finding(expected.path, missing)
        seen = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        facts = Facts(*seen, expected.bytes, expected.rows, expected.sha256, expected.first, expected.last)
        if not whole and self._seen.has(expected.path, facts):
            return None
        why = _wrong(path, expected, seen, whole=whole)
        if why is not None:
            return Finding(expected.path, why)
        self._seen.add(expected.path, facts)
        return None


def _wrong(path: Path, expected: _Expected, seen: tuple[int, int, int], *, whole: bool) -> str | None:
    if seen[0] != expected.bytes:
        return f"it has {seen[0]} bytes, and {expected.bytes} were written"
    unchanged = seen[1:] == (expected.mtime_ns, expected.inode)
    if expected.sha256 and (whole or not unchanged) and checksum(path) != expected.sha256:
        # before its footer is read: a harmed one can abort the process in the Parquet library
        return "its content was changed: the checksum is another"
    footer = read_footer(path)
    if isinstance(footer, str):
        return footer
    if footer.rows != expected.rows:
        return f"it holds {footer.rows} rows, and {expected.rows} were written"
    if expected.first is not None and (footer.first, footer.last) != (expected.first, expected.last):
        noted = f"{expected.first} to {expected.last}"
        return f"it holds events {footer.first} to {footer.last}, and {noted} were written"
    return None


def _expected(piece: Piece, file: BronzeFile) -> _Expected:
    return _Expected(
        f"{piece.path}/{file.name}",
        file.bytes,
        file.rows,
        file.sha256,
        file.mtime_ns,
        file.inode,
        file.first,
        file.last,
    )


def _missing_entries(first: int, last: int) -> Finding:
    names = f"bronze/log/{first:08}.json" + (f" to {last:08}.json" if last > first else "")
    return Finding(names, "it is missing" if last == first else "they are missing")


def _counts(path: Path) -> bool:
    return not path.name.startswith((".", "_"))
