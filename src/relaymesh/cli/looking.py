"""Looking into a directory without taking it: what its journal says up to the last sync.

Nothing is locked and nothing is written, so this works beside a running process, and a look does not
count as a start: leases stay as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from relaymesh.errors import JournalDamaged
from relaymesh.journal import read_frames
from relaymesh.journal.checkpoint import checkpoint_chunks, list_checkpoints, read_checkpoint
from relaymesh.journal.frame import BadFrame
from relaymesh.kernel.entry import DELAYED, READY, STATE_NAMES, Entry
from relaymesh.kernel.snapshot import restore
from relaymesh.kernel.state import State
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import first_state, replay
from relaymesh.wire.snapshot import decode_piece

TRIES = 3


@dataclass(frozen=True, slots=True)
class Look:
    """The state as it is synced, and the time it was looked at (ms)."""

    state: State
    now: int

    def state_name(self, entry: Entry) -> str:
        """The entry's state now: time goes on, also when no process is there to say so."""
        state = entry.state
        if state in (DELAYED, READY) and 0 < entry.expires_at <= self.now:
            return "expired"
        if state == DELAYED and entry.ready_at <= self.now:
            return STATE_NAMES[READY]
        return STATE_NAMES[state]


def look(path: Path) -> Look:
    """Replay the journal of `path`. Raises `JournalDamaged` where it does not read back."""
    disk = RealDisk(path)
    for _ in range(TRIES - 1):
        try:
            return _look(disk)
        except FileNotFoundError:  # a running process archived or dropped what was about to be read
            continue
    return _look(disk)


def _look(disk: RealDisk) -> Look:
    state = _newest_state(disk)
    for _ in replay(state, read_frames(disk, state.sequence)):
        pass
    return Look(state, max(time.time_ns() // 1_000_000, state.now))


def _newest_state(disk: RealDisk) -> State:
    """The newest checkpoint that reads back; a bad one is passed over, and left as it is."""
    for sequence in list_checkpoints(disk):
        try:
            checkpoint = read_checkpoint(disk, sequence)
            return restore(map(decode_piece, checkpoint_chunks(disk, checkpoint)))
        except (BadFrame, JournalDamaged):
            continue
    return first_state()
