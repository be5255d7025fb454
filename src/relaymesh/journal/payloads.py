"""Payload files: large content, one file for each, named by the SHA-256 of its bytes.

    payloads/ab/ab12…   the content whose SHA-256 begins with ab12

A file gets its name when its bytes are durable, and never changes. It is written before the record that names
it. What names a file is a reference (`kernel/payload.py`) in the bytes of a segment or of a checkpoint: these
are searched, not decoded, so too many names may be found, and never too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from relaymesh.errors import JournalDamaged
from relaymesh.journal.checkpoint import checkpoint_path, list_checkpoints
from relaymesh.journal.copying import copy_file
from relaymesh.journal.disk import Disk, File
from relaymesh.journal.layout import NEW
from relaymesh.journal.segment import list_segments, open_segment
from relaymesh.kernel.payload import PAYLOADS, REFERENCE_BYTES_MAX, REFERENCE_MARK, Reference, payload_path

__all__ = [
    "PayloadNames",
    "check_payload",
    "copy_payloads",
    "list_payloads",
    "make_payload_folder",
    "payload_folders",
    "read_payload",
    "write_payload",
]

_BLOCK_BYTES = 1 << 20
_NAMED = re.compile(re.escape(REFERENCE_MARK) + rb"([0-9a-f]{64}) ")
_NAME = re.compile(r"[0-9a-f]{64}")
_HINT = (
    "relaymesh journal verify names every payload file that is missing or damaged;"
    " relaymesh journal restore --from MIRROR brings them back"
)


def _folder_of(sha256: str) -> str:
    return payload_path(sha256).rpartition("/")[0]


def payload_folders(disk: Disk) -> list[str]:
    """The folders that may hold payload files; none if there never was one."""
    return [f"{PAYLOADS}/{number:02x}" for number in range(256)] if disk.exists(PAYLOADS) else []


def list_payloads(disk: Disk) -> list[str]:
    """The SHA-256 of each payload file, sorted."""
    names = [name for folder in payload_folders(disk) for name in disk.list(folder)]
    return [name for name in names if _NAME.fullmatch(name)]


def write_payload(disk: Disk, sha256: str, content: bytes, *, new_folder: bool = True) -> None:
    """Write a payload file; returns when it is durable. Raises `OSError`, and leaves nothing then.

    `new_folder`: its folder may not be there, or not be durable yet. One thread at a time for one file.
    """
    path, folder = payload_path(sha256), _folder_of(sha256)
    if new_folder:
        make_payload_folder(disk, folder)
    file = disk.open(path + NEW, create=True)
    try:
        try:
            file.write_at(content, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(path + NEW, path)
    except OSError:
        _remove_unfinished(disk, path + NEW)
        raise
    disk.sync_folder(folder)


def make_payload_folder(disk: Disk, folder: str) -> None:
    """Make one of the folders, durably; no error when it is there."""
    disk.make_folder(folder)
    disk.sync_folder("")
    disk.sync_folder(PAYLOADS)


def _remove_unfinished(disk: Disk, name: str) -> None:
    try:
        disk.remove(name)
    except OSError:
        return  # the next start removes it


def read_payload(disk: Disk, reference: Reference) -> bytes:
    """The content of a payload file. Raises `JournalDamaged` for one that is missing or not whole."""
    try:
        file = disk.open(reference.path, write=False)
        try:
            content = file.read_at(0, reference.size + 1)
        finally:
            file.close()
    except FileNotFoundError:
        raise _damaged(reference, "it is missing") from None
    except OSError as error:
        raise _damaged(reference, f"it cannot be read: {error}") from error
    if len(content) != reference.size:
        size = "more" if len(content) > reference.size else f"{len(content)}"
        raise _damaged(reference, f"it has {size} bytes, not {reference.size}")
    if sha256(content).hexdigest() != reference.sha256:
        raise _damaged(reference, "its bytes are not those that its name stands for")
    return content


def copy_payloads(source: Disk, target: Disk, *, check: bool = False) -> int:
    """Copy the payload files that the target lacks; returns their bytes.

    `check`: also those that are there and are not whole. What only the target has stays: a sweep removes it.
    """
    there = set(list_payloads(target))
    copied = 0
    made: set[str] = set()
    for name in list_payloads(source):
        if name in there and not (check and not _is_whole(target, name)):
            continue
        folder = _folder_of(name)
        if folder not in made:
            make_payload_folder(target, folder)
            made.add(folder)
        copied += copy_file(source, payload_path(name), target)
    return copied


def _is_whole(disk: Disk, name: str) -> bool:
    file = disk.open(payload_path(name), write=False)
    try:
        return sha256(file.read_at(0, file.size())).hexdigest() == name
    except OSError:
        return False
    finally:
        file.close()


def check_payload(disk: Disk, reference: Reference) -> str:
    """What is wrong with a payload file; empty: nothing."""
    try:
        read_payload(disk, reference)
    except JournalDamaged as error:
        return error.message.partition(": ")[2]
    return ""


def _damaged(reference: Reference, why: str) -> JournalDamaged:
    return JournalDamaged(f"{reference.path} is damaged: {why}", hint=_HINT)


class PayloadNames:
    """Which payload files the segments and checkpoints of a directory name. Reads a sealed segment once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sealed: dict[str, frozenset[str]] = {}

    def read(self) -> set[str]:
        """The SHA-256 of every payload file that is named. Raises `OSError`."""
        segments = list_segments(self._disk)
        seen = {f"checkpoint {sequence}" for sequence in list_checkpoints(self._disk)}
        for sequence in list_checkpoints(self._disk):
            self._keep(f"checkpoint {sequence}", self._disk.open(checkpoint_path(sequence), write=False))
        for segment in segments[:-1]:
            seen.add(segment.name.file)
            if segment.name.file not in self._sealed:
                self._keep(segment.name.file, open_segment(self._disk, segment))
        self._sealed = {name: found for name, found in self._sealed.items() if name in seen}
        named = set().union(*self._sealed.values())
        for segment in segments[-1:]:
            named |= _names_in(open_segment(self._disk, segment))
        return named

    def _keep(self, name: str, file: File) -> None:
        if name in self._sealed:
            file.close()
        else:
            self._sealed[name] = frozenset(_names_in(file))


def _names_in(file: File) -> set[str]:
    try:
        return {name for block in _blocks(file) for name in _found(block)}
    finally:
        file.close()


def _found(block: bytes) -> Iterator[str]:
    if REFERENCE_MARK in block:
        for found in _NAMED.finditer(block):
            yield found[1].decode()


def _blocks(file: File) -> Iterator[bytes]:
    """The bytes of a file. A reference lies in one block or in two: they overlap."""
    at, before = 0, b""
    while block := file.read_at(at, _BLOCK_BYTES):
        at += len(block)
        yield before + block
        before = block[-REFERENCE_BYTES_MAX:]
