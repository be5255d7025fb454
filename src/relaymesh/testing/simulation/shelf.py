"""Where the store's files lie: a private folder, and what a dead process leaves in it.

SQLite writes to a real file system, in memory where there is one. A killed process leaves its database
and write-ahead log as they are; the shelf copies both aside before the connections are closed, since
closing them would tidy up as no killed process does.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from relaymesh.node.node import Node
from relaymesh.node.opening import STORE_FILE
from relaymesh.store import SqliteStore

Files = dict[str, bytes]

_ENDS = ("", "-wal")


class StoreShelf:
    """The files of one run's store, and one older copy of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.older: Files = {}
        template = folder.parent / "template.db"
        if not template.exists():
            SqliteStore(template).close()
        folder.mkdir()
        shutil.copyfile(template, folder / STORE_FILE)

    def bury(self, node: Node) -> None:
        """The process died: what its files held at that moment is what the next one finds."""
        files = self.read()
        if node.store is not None:
            node.store.close()
        self.write(files)

    def read(self) -> Files:
        found: Files = {}
        for end in _ENDS:
            path = self.folder / f"{STORE_FILE}{end}"
            if path.exists():
                found[end] = path.read_bytes()
        return found

    def write(self, files: Files) -> None:
        for path in self.folder.glob(f"{STORE_FILE}*"):
            path.unlink()
        for end, data in files.items():
            (self.folder / f"{STORE_FILE}{end}").write_bytes(data)

    def damage(self, garbage: bytes) -> bool:
        """Write over the beginning of the database. False when there is none."""
        files = self.read()
        if not files.get(""):
            return False
        self.write({"": garbage + files[""][len(garbage) :]})
        return True

    def keep_older(self) -> None:
        self.older = self.read()

    def applied(self) -> int:
        """How far the store on the shelf is; -1 when it cannot be read."""
        try:
            connection = apsw.Connection(str(self.folder / STORE_FILE), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error:
            return -1
        try:
            return int(connection.execute("SELECT applied FROM projection").get)
        except apsw.Error:
            return -1
        finally:
            connection.close()
