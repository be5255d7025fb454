"""The record of a run: what it did and how it ended, in `runs/<run_id>.json`, updated during the run."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from relaymesh import __version__
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.manifest import encode

__all__ = ["RunRecord", "load_records", "new_run_id", "now_iso", "prune_records"]

FOLDER = "runs"


def now_iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_run_id() -> str:
    """Sorts by time; two made in one millisecond differ."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"[:-3] + f"Z-{secrets.token_hex(2)}"


class RunRecord(msgspec.Struct, kw_only=True):
    """A record that still says `running` while no run holds the lock belongs to a killed run."""

    run_id: str
    kind: str
    status: str = "running"
    """running, published, nothing new, or failed."""
    code_version: str = __version__
    pid: int = msgspec.field(default_factory=os.getpid)
    host: str = msgspec.field(default_factory=socket.gethostname)
    started_at: str = msgspec.field(default_factory=now_iso)
    ended_at: str | None = None
    events: int = 0
    """Ingested by this run."""
    batches: list[int] = []
    days: list[str] = []
    """Refreshed."""
    seconds: dict[str, float] = {}
    """By stage."""
    progress: list[dict[str, Any]] = []
    """What Spark's StreamingQueryListener said about each batch of the ingest."""
    expectations: list[dict[str, Any]] = []
    """Those that were not met."""
    error: str | None = None

    def save(self, warehouse: Path) -> None:
        swap_file(warehouse / FOLDER / f"{self.run_id}.json", encode(self))

    def end(self, warehouse: Path, status: str, error: str | None = None) -> None:
        self.status, self.error, self.ended_at = status, error, now_iso()
        self.save(warehouse)


def prune_records(warehouse: Path, keep: int) -> None:
    """Remove all records except the last ones."""
    for path in sorted((warehouse / FOLDER).glob("*.json"))[:-keep]:
        path.unlink()


def load_records(warehouse: Path, last: int) -> list[RunRecord]:
    """The last runs, the newest first. A record that cannot be read is left out: it is not data."""
    found: list[RunRecord] = []
    for path in sorted((warehouse / FOLDER).glob("*.json"), reverse=True)[:last]:
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=RunRecord))
        except (msgspec.DecodeError, FileNotFoundError):
            continue
    return found
