"""Running attempts, recorded on disk for the next supervisor, in case this one is killed.

A record is written and synced before the adapter of its attempt is started, and removed after the attempt
is settled. So every process of an agent that may run has a record, and the record has the token that its
successor abandons.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from relaymesh.modes import create_file

__all__ = ["RunRecord", "RunRecords"]

log = logging.getLogger("relaymesh.agents")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt under way."""

    run: str
    """Also the mark of its processes."""
    agent: str
    token: int
    message_id: str
    attempt: int
    started_ms: int
    task: str | None = None
    step: str | None = None


_decoder = msgspec.json.Decoder(RunRecord)


class RunRecords:
    """A folder with a file for each. The name of the file is the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, record: RunRecord) -> None:
        """Durable when it returns."""
        path = self._folder / f"{record.run}.json"
        descriptor = create_file(path, os.O_WRONLY | os.O_EXCL)
        try:
            os.write(descriptor, msgspec.json.encode(record))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._sync()

    def remove(self, run: str) -> None:
        """Not synced: if a crash brings the record back, it has a stale token, and abandoning that has no
        effect."""
        (self._folder / f"{run}.json").unlink(missing_ok=True)

    def read(self) -> list[RunRecord]:
        """All records. A record that a crash cut off is removed: its adapter was never started."""
        found: list[RunRecord] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(_decoder.decode(path.read_bytes()))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                log.warning(
                    "the record %s cannot be read and is removed: nothing was started for it", path.name
                )
                path.unlink(missing_ok=True)
        return found

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
