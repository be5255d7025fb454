"""Connections to SQLite whose settings are known to have taken.

SQLite ignores a PRAGMA it does not know, and a file system may refuse WAL. So each setting is read
back, and a connection that does not have what it asked for is not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from relaymesh.errors import StoreMisconfigured
from relaymesh.modes import create_file

SYNCHRONOUS = {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}
IN_MEMORY = (":memory:", ".")
"""Names that SQLite, or `Path("")`, gives to a database without a file of its own."""
BUSY_TIMEOUT_MS = 5_000
CACHE_KIB = 4_096
"""SQLite's own copy of pages. The writer appends, so a few megabytes hold all it touches again."""
WAL_PAGES_MAX = 1_000
"""Pages in the WAL (4 MB) before they are copied into the database and synced. The journal shares the disk
and its syncs wait meanwhile: with 8,000 pages the slowest in a hundred receipts came twice as late."""


def connect_writer(path: Path, synchronous: str) -> apsw.Connection:
    """The one connection that writes. Creates the file."""
    if synchronous not in SYNCHRONOUS:
        raise StoreMisconfigured(
            f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}",
            hint="NORMAL is enough: what power loss takes from the store, the journal gives back",
        )
    if str(path) in IN_MEMORY:
        raise StoreMisconfigured(
            f"{str(path)!r} is no file, and the store is one",
            hint="give it a path; a mesh in memory has no store",
        )
    with _naming(path):
        _make_private(path)
        connection = apsw.Connection(str(path))
        wanted: dict[str, int | str] = {
            "busy_timeout": BUSY_TIMEOUT_MS,
            "journal_mode": "wal",
            "synchronous": SYNCHRONOUS[synchronous],
            "foreign_keys": 1,
            "cache_size": -CACHE_KIB,
            "wal_autocheckpoint": WAL_PAGES_MAX,
            "journal_size_limit": 2 * WAL_PAGES_MAX * 4_096,
        }
        return _with(connection, path, wanted)


def connect_reader(path: Path) -> apsw.Connection:
    """A connection that cannot write."""
    with _naming(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        wanted: dict[str, int | str] = {
            "busy_timeout": BUSY_TIMEOUT_MS,
            "journal_mode": "wal",
            "foreign_keys": 1,
            "query_only": 1,
        }
        return _with(connection, path, wanted)


def read_back(connection: apsw.Connection, name: str) -> object:
    """What the database says a setting is."""
    return connection.pragma(name)


def _make_private(path: Path) -> None:
    """SQLite makes a database as the umask says, and gives its mode to `-wal` and `-shm`: be first."""
    try:
        os.close(create_file(path, os.O_RDWR))
    except OSError:
        return  # SQLite says why, in its own words


def _with(connection: apsw.Connection, path: Path, wanted: dict[str, int | str]) -> apsw.Connection:
    try:
        for name, value in wanted.items():
            connection.pragma(name, value)
        for name, value in wanted.items():
            found = read_back(connection, name)
            if found != value:
                raise StoreMisconfigured(f"{path}: PRAGMA {name} is {found!r} after it was set to {value!r}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Says which file it was when SQLite cannot use it."""
    try:
        yield
    except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise StoreMisconfigured(
            f"{path} cannot be used as a database: {error}",
            hint="the journal still has everything: run relaymesh store rebuild",
        ) from error
