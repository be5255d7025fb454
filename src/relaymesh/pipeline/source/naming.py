"""The name of a data directory that does not depend on its path: its mesh id.

A directory that was not started since meshes have ids has none yet, and may be one that is only read. Until
then its name is `journal-` and the salt of its oldest segment, which is also random, and the same in every
copy. Its next start gives it an id; readers then recognize it by the salts of its segments (see history.py).
"""

from __future__ import annotations

import re

from relaymesh.journal.disk import Disk
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.segment import SegmentHead, list_segments
from relaymesh.journal.verdict import read_head

__all__ = ["is_mesh_id", "name_of"]

_MESH_ID = re.compile(r"[0-9a-f]{32}")


def name_of(disk: Disk) -> str | None:
    """The mesh id, or else the name by the oldest segment; None when there is no segment either."""
    mesh = read_mesh_id(disk)
    if mesh is not None:
        return mesh
    head = next((read_head(disk, each) for each in list_segments(disk)), None)
    return f"journal-{head.salt:016x}" if isinstance(head, SegmentHead) else None


def is_mesh_id(name: str) -> bool:
    return _MESH_ID.fullmatch(name) is not None
