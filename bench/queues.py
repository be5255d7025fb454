"""Other durable queues for one Python process, behind the three calls that are compared.

Each is set to lose nothing at a power loss, as far as it can be; `synced` says what it does. `put` and
`round_trip` use the plainest call it has, without its task or consumer layer, which only adds work.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

from bench.contents import text

FULL = 2


class Queue(Protocol):
    """A queue as the comparison sees it."""

    name: str
    synced: str
    durable: bool

    def put(self) -> None:
        """Put one message."""

    def round_trip(self) -> None:
        """Put one, get it, and mark it done."""

    def empty(self) -> None:
        """Take out what `put` left."""

    def close(self) -> None: ...


class Huey:
    """SqliteHuey's storage. A dequeue deletes: there is no lease and no ack, so it does one write less."""

    name = "huey (SQLite)"
    durable = True

    def __init__(self, place: Path, size: int) -> None:
        from huey import SqliteHuey

        self._huey = SqliteHuey(filename=str(place / "huey.db"), fsync=True)
        self._storage = self._huey.storage
        self._data = b"x" * size
        self.synced = f"fsync=True: {_pragmas(self._storage.conn)}; get deletes, there is no ack"
        assert _synchronous(self._storage.conn) == FULL

    def put(self) -> None:
        self._storage.enqueue(self._data)

    def round_trip(self) -> None:
        self._storage.enqueue(self._data)
        assert self._storage.dequeue() is not None

    def empty(self) -> None:
        self._storage.flush_queue()

    def close(self) -> None:
        self._storage.close()


class HueyFiles:
    """FileHuey's storage: one file a task, never synced. Beside the others, not compared with."""

    name = "huey (files)"
    durable = False
    synced = "never syncs, and cannot be told to; get deletes, there is no ack"

    def __init__(self, place: Path, size: int) -> None:
        from huey import FileHuey

        self._storage = FileHuey(path=str(place / "huey-files"), use_thread_lock=True).storage
        self._data = b"x" * size

    def put(self) -> None:
        self._storage.enqueue(self._data)

    def round_trip(self) -> None:
        self._storage.enqueue(self._data)
        assert self._storage.dequeue() is not None

    def empty(self) -> None:
        self._storage.flush_queue()

    def close(self) -> None:
        pass


class PersistQueueAck:
    """persist-queue's queue with acks; every call commits by itself."""

    name = "persist-queue (ack)"
    durable = True

    def __init__(self, place: Path, size: int) -> None:
        from persistqueue import SQLiteAckQueue

        path = str(place / "persist-ack")
        self._queue: Any = SQLiteAckQueue(path, multithreading=True, auto_commit=True)
        self._data = b"x" * size
        self.synced = f"auto_commit: {_set_full(self._queue)}"

    def put(self) -> None:
        self._queue.put(self._data)

    def round_trip(self) -> None:
        self._queue.put(self._data)
        self._queue.ack(self._queue.get(block=False))

    def empty(self) -> None:
        while self._queue.size > 0:
            self._queue.ack(self._queue.get(block=False))
        self._queue.clear_acked_data(max_delete=1_000_000, keep_latest=0)

    def close(self) -> None:
        self._queue.close()


class PersistQueueFifo(PersistQueueAck):
    """persist-queue's plain queue: a get deletes."""

    name = "persist-queue (FIFO)"

    def __init__(self, place: Path, size: int) -> None:
        from persistqueue import FIFOSQLiteQueue

        path = str(place / "persist-fifo")
        self._queue = FIFOSQLiteQueue(path, multithreading=True, auto_commit=True)
        self._data = b"x" * size
        self.synced = f"auto_commit: {_set_full(self._queue)}; get deletes, there is no ack"

    def round_trip(self) -> None:
        self._queue.put(self._data)
        self._queue.get(block=False)

    def empty(self) -> None:
        while self._queue.size > 0:
            self._queue.get(block=False)


class LiteQueue:
    """litequeue, which asks for synchronous=NORMAL; set to FULL here, or a power loss takes commits."""

    name = "litequeue"
    durable = True
    level = "FULL"

    def __init__(self, place: Path, size: int) -> None:
        from litequeue import LiteQueue as Queue

        self._queue = Queue(str(place / f"litequeue-{self.level}.db"))
        self._queue.conn.execute(f"PRAGMA synchronous = {self.level}")
        self._data = text(size)
        self.synced = f"{_pragmas(self._queue.conn)}; {self._note()}"

    def _note(self) -> str:
        assert _synchronous(self._queue.conn) == FULL
        return "its default is NORMAL"

    def put(self) -> None:
        self._queue.put(self._data)

    def round_trip(self) -> None:
        self._queue.put(self._data)
        message = self._queue.pop()
        assert message is not None
        self._queue.done(message.message_id)

    def empty(self) -> None:
        self._queue.conn.execute(f"DELETE FROM {self._queue.table}")

    def close(self) -> None:
        self._queue.conn.close()


class LiteQueueNormal(LiteQueue):
    """litequeue as it comes: syncs at checkpoints only. Beside the others, not compared with."""

    name = "litequeue (NORMAL)"
    durable = False
    level = "NORMAL"

    def _note(self) -> str:
        return "its default; a power loss takes the last commits"


PEERS: tuple[Any, ...] = (
    Huey,
    HueyFiles,
    PersistQueueAck,
    PersistQueueFifo,
    LiteQueue,
    LiteQueueNormal,
)


def open_peers(place: Path, size: int) -> tuple[list[Queue], list[str]]:
    """Those that are installed, and the names of those that are not."""
    found: list[Queue] = []
    missing: list[str] = []
    for kind in PEERS:
        try:
            found.append(kind(place, size))
        except ImportError:
            missing.append(kind.name)
    return found, missing


def _set_full(queue: Any) -> str:
    """persist-queue leaves the level to SQLite's build: say it, on both of its connections."""
    for connection in (queue._putter, queue._getter):
        connection.execute("PRAGMA synchronous = FULL")
        assert _synchronous(connection) == FULL
    return _pragmas(queue._putter)


def _synchronous(connection: sqlite3.Connection) -> int:
    level: int = connection.execute("PRAGMA synchronous").fetchone()[0]
    return level


def _pragmas(connection: sqlite3.Connection) -> str:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    level = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[_synchronous(connection)]
    return f"journal_mode={mode.upper()}, synchronous={level}"
