"""Where things lie in a data directory, and who holds it.

    lock          who runs here: `pid 1234`, one `key value` pair per line
    epoch         how often a node was started here
    mesh          which mesh this is, wherever the directory lies; see `identity.py`
    mark          how far the journal is synced
    journal/      segments, the newest one live
    archive/      segments behind the checkpoints, under the same names
    checkpoints/  the newest two
    payloads/     content over 64 KiB, a file for each; see `payloads.py`
    consumers/    how far readers have come that retention waits for; see `consumers.py`
    dead-letters/ dead letters that were purged by age; see `node/letter_archive.py`
    reports/      a report of dead letters for each day; see `node/letter_reports.py`
    mirror        where this directory's mirror lies; see `mirror.py`
    aside.jsonl   records that cannot be read and are passed over; see `aside.py`
    settings-history.json  when the settings were read, without values; see `node/tuning.py`
    incomplete    the directory is being filled from another one; it must not be used yet

A file whose name ends in `.new` was being made when a process died; it never counts.
"""

from __future__ import annotations

import re

from relaymesh.errors import DirectoryError, DirectoryInUse, JournalDamaged
from relaymesh.journal.disk import Disk, Lock
from relaymesh.kernel.payload import PAYLOADS

__all__ = [
    "ARCHIVE",
    "ASIDE",
    "CHECKPOINTS",
    "DEAD_LETTERS",
    "EPOCH",
    "INCOMPLETE",
    "JOURNAL",
    "LOCK",
    "MARK",
    "MESH",
    "MIRROR",
    "NEW",
    "REPORTS",
    "check_complete",
    "is_locked",
    "is_own_name",
    "pairs_in",
    "prepare",
    "read_owner",
    "take_lock",
]

JOURNAL = "journal"
ARCHIVE = "archive"
CHECKPOINTS = "checkpoints"
DEAD_LETTERS = "dead-letters"
REPORTS = "reports"
LOCK = "lock"
EPOCH = "epoch"
MARK = "mark"
MESH = "mesh"
MIRROR = "mirror"
INCOMPLETE = "incomplete"
ASIDE = "aside.jsonl"
NEW = ".new"

_OWN = re.compile(
    r"(?:set-aside-[0-9T]{15}/)?(?:"
    r"(?:lock|epoch|mark|mesh|mirror|incomplete|aside\.jsonl|settings-history\.json)(?:\.new)?"
    r"|journal|archive|checkpoints|consumers|dead-letters|reports|payloads"
    r"|(?:journal|archive)/[0-9]{12}-[0-9]{20}\.rmj(?:\.new)?"
    r"|journal/room\.new"
    r"|payloads/[0-9a-f]{2}(?:/[0-9a-f]{64}(?:\.new)?)?"
    r"|checkpoints/[0-9]{20}\.rmc(?:\.new)?"
    r"|dead-letters/[0-9]{4}-[0-9]{2}\.jsonl"
    r"|reports/dead-letters-[0-9]{4}-[0-9]{2}-[0-9]{2}\.(?:json|txt)(?:\.new)?"
    r"|consumers/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\.json(?:\.new)?"
    r")|set-aside-[0-9T]{15}"
)
_WHO_HOLDS = (
    "stop the other process, or give this one a directory of its own; if no such process runs,"
    " `fuser -v lock` in the directory (as root) names the one that holds the lock"
)
_WHOSE = "`ls -ld` of the directory and of its `lock` says whose they are: run as that user, or chown them"
_FILL_AGAIN = "a mirror is filled when its node starts, a data directory by `relaymesh journal restore`"


def prepare(disk: Disk) -> None:
    """Make the folders that are missing, durably. Sync the names of the segments too.

    An earlier start may have ended because it could not sync a name. A new segment says which one comes
    before it; if its name became durable first, a power loss would leave a hole between them.
    """
    for folder in (JOURNAL, ARCHIVE, CHECKPOINTS):
        disk.make_folder(folder)
    disk.sync_folder("")
    disk.sync_folder(JOURNAL)


def is_own_name(path: str) -> bool:
    """Whether a path in a data directory is one that the journal gives to a file or folder of its own."""
    return _OWN.fullmatch(path) is not None


def remove_unfinished(disk: Disk) -> None:
    """Remove what a dead process left half made. Needs the lock."""
    payloads = [f"{PAYLOADS}/{number:02x}" for number in range(256)] if disk.exists(PAYLOADS) else []
    for folder in ("", JOURNAL, CHECKPOINTS, *payloads):
        for name in disk.list(folder):
            if name.endswith(NEW):
                disk.remove(f"{folder}/{name}" if folder else name)


def is_locked(disk: Disk) -> bool:
    """Whether a process has the directory now: asked by taking it, since what its file says may be old."""
    try:
        disk.lock(LOCK).release()
    except BlockingIOError:
        return True
    return False


def take_lock(disk: Disk) -> Lock:
    """Take the directory for this process, or raise `DirectoryInUse` naming the one that has it."""
    try:
        lock = disk.lock(LOCK)
    except BlockingIOError as error:
        pid = read_owner(disk).get("pid")
        who = f"process {pid}" if pid else "another process"
        raise DirectoryInUse(f"{who} is using this data directory", hint=_WHO_HOLDS) from error
    except PermissionError as error:
        raise DirectoryError(f"the data directory cannot be locked: {error}", hint=_WHOSE) from error
    except OSError as error:
        raise DirectoryError(f"the data directory cannot be locked: {error}") from error
    try:
        lock.note(f"pid {disk.process_id()}\n".encode())
    except OSError as error:
        lock.release()
        raise DirectoryError(f"the lock file cannot be written: {error}") from error
    return lock


def read_owner(disk: Disk) -> dict[str, str]:
    """What the holder of the lock wrote about itself; empty when nothing can be read."""
    return pairs_in(disk, LOCK)


def pairs_in(disk: Disk, name: str) -> dict[str, str]:
    """The `key value` lines of a small text file; empty when nothing can be read."""
    try:
        file = disk.open(name, write=False)
    except OSError:
        return {}
    try:
        text = file.read_at(0, 4096).decode("utf-8", "replace")
    except OSError:
        return {}
    finally:
        file.close()
    pairs = (line.partition(" ") for line in text.splitlines())
    return {key: value for key, _, value in pairs if value}


def check_complete(disk: Disk) -> None:
    """Raise `JournalDamaged` when the directory was being filled from another one and that did not end."""
    if disk.exists(INCOMPLETE):
        why = pairs_in(disk, INCOMPLETE).get("why", "it was being filled from another directory")
        raise JournalDamaged(f"this data directory is not complete: {why}", hint=_FILL_AGAIN)
