"""Journals and disks that do as a test says, under a real mesh."""

from __future__ import annotations

import threading
import time
from typing import Any

from relaymesh import Mesh, MeshSettings
from relaymesh.journal import Disk, JournalSettings
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from tests.node.inside import node_of

LIGHT = JournalSettings(allocate_bytes=10_000, checkpoint_reserve_bytes=1_000)


def mesh_on(disk: Disk, **settings: Any) -> Mesh:
    """A real, threaded mesh on any disk."""
    mesh = Mesh.__new__(Mesh)
    chosen = MeshSettings(**{"journal": LIGHT, **settings})
    mesh._start(LocalSession(Node(None, chosen, disk=disk)), (2, 4))
    return mesh


class GatedJournal:
    """Stands before a journal; its syncs wait for the gate, and are counted."""

    def __init__(self, inner: Any, sync_s: float = 0.0) -> None:
        self._inner = inner
        self._sync_s = sync_s
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.syncs = 0
        self.appends = 0
        self.appended_by: set[int] = set()
        """The threads that appended."""

    def append(self, payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None:
        self.appends += 1
        self.appended_by.add(threading.get_ident())
        self._inner.append(payload, events, now_ns, before)

    def sync(self) -> int:
        if not self.gate.is_set():
            self.waiting.set()
            assert self.gate.wait(10)
        if self._sync_s:
            time.sleep(self._sync_s)
        self.syncs += 1
        synced: int = self._inner.sync()
        return synced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def gated(mesh: Any, sync_s: float = 0.0) -> GatedJournal:
    """Put a gate before the journal of an open mesh."""
    core = node_of(mesh).core
    core.journal = gate = GatedJournal(core.journal, sync_s)
    return gate
