"""The archive of dead letters: a letter is appended to a file before it is purged for its age.

    dead-letters/2026-11.jsonl    a line for each letter, as `GET /v1/dead-letters` shows it; a file a month

Lines are synced before the letters are purged. After a crash in between, the letters are still in the mailbox
and are archived again: the archive may hold a letter twice, but never misses one. The next append removes a
line that a crash cut off. RelayMesh never deletes these files. They are not part of the mirror.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from relaymesh.journal import Disk, File, MirroredDisk
from relaymesh.journal.layout import DEAD_LETTERS
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.wire.letter import letter_body
from relaymesh.wire.payload import Get, no_payloads, shown_whole

__all__ = ["LetterArchive"]

BLOCK_BYTES = 65_536


class LetterArchive:
    """Appends to the files of one data directory; None for a mesh in memory. One thread at a time."""

    def __init__(self, disk: Disk | None, get: Get = no_payloads) -> None:
        """`get`: reads payload files; the archive holds the content itself."""
        self._get = get
        self._disk = disk.primary if isinstance(disk, MirroredDisk) else disk

    def append(self, letters: Sequence[DeadLetter], wall_ms: int) -> str | None:
        """Append the lines and sync them; returns the name of the file. Raises `OSError`."""
        if self._disk is None:
            return None
        name = f"{DEAD_LETTERS}/{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m}.jsonl"
        data = b"".join([self._line(letter) for letter in letters])
        new = not self._disk.exists(name)
        if new:
            self._disk.make_folder(DEAD_LETTERS)
            self._disk.sync_folder("")
        file = self._disk.open(name, create=new)
        try:
            file.write_at(data, _end_of_lines(file))
            file.sync()
        finally:
            file.close()
        # Even if the folder existed: the crash may have come just before its sync.
        self._disk.sync_folder(DEAD_LETTERS)
        return name

    def _line(self, letter: DeadLetter) -> bytes:
        shown = msgspec.structs.replace(letter, envelope=shown_whole(letter.envelope, self._get))
        return msgspec.json.encode(letter_body(shown)) + b"\n"


def _end_of_lines(file: File) -> int:
    """The offset after the last whole line; the bytes after it are cut off."""
    size = end = file.size()
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        newline = file.read_at(start, end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        file.truncate(end)
    return end
