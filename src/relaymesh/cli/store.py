"""store: the tables beside the journal, which can always be rebuilt from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from relaymesh.cli.commands import directory_command
from relaymesh.cli.options import Call
from relaymesh.journal.layout import take_lock
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import STORE_FILE, rebuild_store

app = typer.Typer(help="The SQLite tables that are projected from the journal.")


@app.command("rebuild")
@directory_command
def rebuild(call: Call) -> None:
    """Rebuild the store from the journal. Needs the directory; the journal is not changed."""
    path = call.existing()
    with _held(path) as disk:
        began = time.monotonic()
        applied = rebuild_store(disk, path / STORE_FILE)
    call.output.record(
        {
            "store": str(path / STORE_FILE),
            "applied": applied,
            "bytes": (path / STORE_FILE).stat().st_size,
            "seconds": round(time.monotonic() - began, 3),
        }
    )


@contextmanager
def _held(path: Path) -> Iterator[RealDisk]:
    """The directory, for this process alone: a running one has the old store open. No epoch is used up."""
    disk = RealDisk(path)
    lock = take_lock(disk)
    try:
        yield disk
    finally:
        lock.release()
