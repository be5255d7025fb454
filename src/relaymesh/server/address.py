"""The address file: where the node of a data directory can be reached.

`server/address.json` is written once the socket listens and removed at the end. After a crash it is stale,
and `read_address` ignores it: it counts only while its process lives and is the one named in the directory's
lock.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from relaymesh.client.discovery import ADDRESS_FILE, SERVER_DIRECTORY
from relaymesh.journal.layout import is_locked, read_owner
from relaymesh.node.disk import RealDisk
from relaymesh.server.security.secretfile import make_private_folder, write_private


class NodeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    url: str
    pid: int
    started: str
    """ISO 8601."""
    protocol: str


def server_folder(directory: Path) -> Path:
    """Where the server keeps its own files: tokens, audit log, address."""
    return directory / SERVER_DIRECTORY


def write_address(directory: Path, address: NodeAddress) -> None:
    """Write the file atomically, readable by its owner only."""
    folder = server_folder(directory)
    make_private_folder(folder)
    write_private(folder / ADDRESS_FILE, msgspec.json.format(msgspec.json.encode(address)) + b"\n")


def remove_address(directory: Path, pid: int) -> None:
    """Remove the file if it is this process's: a successor may have written its own."""
    path = server_folder(directory) / ADDRESS_FILE
    address = _parsed(path)
    if address is not None and address.pid == pid:
        path.unlink(missing_ok=True)


def read_address(directory: Path, *, system: str = os.name) -> NodeAddress | None:
    """The address of the node that runs here now; None when there is none, or the file is stale."""
    address = _parsed(server_folder(directory) / ADDRESS_FILE)
    if address is None:
        return None
    disk = RealDisk(directory)
    if read_owner(disk).get("pid") != str(address.pid):
        return None
    # Windows cannot be asked whether a process lives without ending it: who holds the lock?
    runs = is_locked(disk) if system == "nt" else alive(address.pid)
    return address if runs else None


def _parsed(path: Path) -> NodeAddress | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeAddress)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
