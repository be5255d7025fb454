"""Consumers: readers that retention waits for. Each says in a file of its own how far it has come.

    consumers/<name>.json    {"name": "bronze", "sequence": 4711}

`sequence` is the next event the consumer has not got durably; archived segments that hold it, or later
ones, are kept for it. The file is replaced in one step. Deleting it ends the waiting. A file that does not
read back means a consumer that has nothing yet: the journal is never deleted on the word of such a file.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.journal.disk import Disk
from relaymesh.journal.layout import NEW

__all__ = ["CONSUMERS", "Consumer", "list_consumers", "remove_consumer", "write_consumer"]

log = logging.getLogger("relaymesh.journal")

CONSUMERS = "consumers"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_SUFFIX = ".json"
_BYTES_MAX = 4096


class Consumer(NamedTuple):
    """Who reads this journal, and the next event it has not got."""

    name: str
    sequence: int


def write_consumer(disk: Disk, name: str, sequence: int) -> None:
    """Say durably that everything before `sequence` is with the consumer. Never moves it back."""
    path = _path(name)
    known = _read(disk, name)
    if known is not None and known.sequence >= sequence and disk.exists(path):
        return
    disk.make_folder(CONSUMERS)
    disk.sync_folder("")
    file = disk.open(path + NEW, create=True)
    try:
        file.write_at(msgspec.json.encode(Consumer(name, sequence)._asdict()), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(path + NEW, path)
    disk.sync_folder(CONSUMERS)


def list_consumers(disk: Disk) -> list[Consumer]:
    """All registered consumers, by name."""
    names = [file.removesuffix(_SUFFIX) for file in disk.list(CONSUMERS) if file.endswith(_SUFFIX)]
    return [_read(disk, name) or Consumer(name, 0) for name in names]


def remove_consumer(disk: Disk, name: str) -> bool:
    """Let retention go on without it; whether it was there."""
    path = _path(name)
    if not disk.exists(path):
        return False
    disk.remove(path)
    disk.sync_folder(CONSUMERS)
    return True


def _path(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise InvalidSettings(
            f"{name!r:.80} is no name for a consumer", hint="use up to 64 letters, digits, _, - and ."
        )
    return f"{CONSUMERS}/{name}{_SUFFIX}"


def _read(disk: Disk, name: str) -> Consumer | None:
    path = f"{CONSUMERS}/{name}{_SUFFIX}"
    try:
        file = disk.open(path, write=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s cannot be read (%s): nothing is dropped before it can", path, error)
        return None
    try:
        stored = msgspec.json.decode(file.read_at(0, _BYTES_MAX), type=dict[str, object])
        sequence = stored.get("sequence")
        return Consumer(name, sequence) if isinstance(sequence, int) else None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s does not read back (%s): nothing is dropped before it does", path, error)
        return None
    finally:
        file.close()
