"""The mesh id: which mesh a data directory holds, wherever it lies. Written once, at the first start.

    mesh      id 0f3c…   32 hexadecimal digits, random
              crc 9ae2…  CRC-32C of those digits, 8 hexadecimal digits

A path is no identity: directories are moved, copied and named in several ways. A mirror, a backup and what is
restored from them have the same id, because they hold the same mesh. A directory of before gets its id at
its next start.
"""

from __future__ import annotations

import logging
import re

from crc32c import crc32c

from relaymesh.journal.disk import Disk
from relaymesh.journal.layout import MESH, NEW, pairs_in

__all__ = ["read_mesh_id", "settle_mesh_id"]

log = logging.getLogger("relaymesh.journal")

_ID = re.compile(r"[0-9a-f]{32}")


def read_mesh_id(disk: Disk) -> str | None:
    """The id, or None when the directory has none, or none that reads back."""
    pairs = pairs_in(disk, MESH)
    found = pairs.get("id", "")
    return found if _ID.fullmatch(found) and pairs.get("crc") == _crc(found) else None


def settle_mesh_id(disk: Disk, known: str | None = None) -> str:
    """The id of a directory that this process holds; made durable when it has none.

    `known`: what its mirror says; else a new one is made.
    """
    found = read_mesh_id(disk)
    if found is not None:
        return found
    if disk.exists(MESH):
        log.warning("the file mesh is damaged; %s", "its mirror's is taken" if known else "a new id is made")
    made = known or f"{disk.salt():016x}{disk.salt():016x}"
    file = disk.open(MESH + NEW, create=True)
    try:
        file.write_at(f"id {made}\ncrc {_crc(made)}\n".encode(), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(MESH + NEW, MESH)
    disk.sync_folder("")
    return made


def _crc(text: str) -> str:
    return f"{crc32c(text.encode()):08x}"
