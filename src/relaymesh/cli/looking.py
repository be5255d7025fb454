"""Looking into a mesh without taking it: what the journal says up to the last sync, or what a node answers.

Of a directory nothing is locked and nothing is written, so this works beside a running process, and a look
does not count as a start: leases stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from relaymesh.cli.options import Call
from relaymesh.errors import JournalDamaged
from relaymesh.journal import read_frames
from relaymesh.journal.aside import read_aside
from relaymesh.journal.checkpoint import checkpoint_chunks, list_checkpoints, read_checkpoint
from relaymesh.journal.frame import BadFrame
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.pending import DELAYED, READY, STATE_NAMES
from relaymesh.kernel.snapshot import restore
from relaymesh.kernel.state import State
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import first_state, replay
from relaymesh.sdk.agent import Inbox
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.names import Names
from relaymesh.wire.snapshot import decode_piece

TRIES = 3


@dataclass(frozen=True, slots=True)
class Box:
    """One mailbox in numbers."""

    pending: int
    leased: int
    dead_letters: int
    delivery_semantics: str


class View(Protocol):
    """What can be seen of a mesh."""

    @property
    def now(self) -> int:
        """The time it was looked at (ms)."""

    @property
    def names(self) -> Names:
        """Where plain names lie."""

    def mailboxes(self) -> Mapping[str, Box]: ...

    def pending(self, mailbox: str, limit: int) -> Sequence[Entry]:
        """The first entries of a mailbox that is there, in the order of acceptance."""

    def letters(self) -> Iterable[DeadLetter]: ...

    def state_name(self, entry: Entry) -> str:
        """The entry's state now."""


@contextmanager
def look(call: Call) -> Iterator[View]:
    """At the node that is named, or at the directory."""
    if not call.remote:
        yield look_into(call.existing())
        return
    with call.mesh() as mesh:
        yield Asked(mesh, mesh._session.now())


@dataclass(frozen=True, slots=True)
class Look:
    """A directory: the state as it is synced, and the time it was looked at (ms)."""

    state: State
    now: int
    names = Names()

    def mailboxes(self) -> Mapping[str, Box]:
        letters = self.state.letters
        return {
            address: Box(
                len(box.entries), box.leased, letters.of(address).pending, box.settings.delivery_semantics
            )
            for address, box in self.state.mailboxes.items()
        }

    def pending(self, mailbox: str, limit: int) -> Sequence[Entry]:
        return list(islice(self.state.mailboxes[mailbox].entries.values(), limit))

    def letters(self) -> Iterable[DeadLetter]:
        return self.state.letters

    def state_name(self, entry: Entry) -> str:
        """Time goes on, also when no process is there to say so."""
        state = entry.state
        if state in (DELAYED, READY) and 0 < entry.expires_at <= self.now:
            return "expired"
        if state == DELAYED and entry.ready_at <= self.now:
            return STATE_NAMES[READY]
        return STATE_NAMES[state]


@dataclass(frozen=True, slots=True)
class Asked:
    """A node, which says how it is."""

    mesh: Mesh
    now: int

    @property
    def names(self) -> Names:
        return self.mesh._names

    def mailboxes(self) -> Mapping[str, Box]:
        return {
            address: Box(box.pending, box.leased, box.dead_letters, box.delivery_semantics)
            for address, box in self.mesh.stats().mailboxes.items()
        }

    def pending(self, mailbox: str, limit: int) -> Sequence[Entry]:
        return Inbox(self.mesh, mailbox).peek(limit)

    def letters(self) -> Iterable[DeadLetter]:
        return [letter.letter for letter in self.mesh.dead_letters(status=None)]

    def state_name(self, entry: Entry) -> str:
        return STATE_NAMES[entry.state]


def look_into(path: Path) -> Look:
    """Replay the journal of `path`. Raises `JournalDamaged` where it does not read back."""
    disk = RealDisk(path)
    for _ in range(TRIES - 1):
        try:
            return _look(disk)
        except FileNotFoundError:  # a running process archived or dropped what was about to be read
            continue
    return _look(disk)


def _look(disk: RealDisk) -> Look:
    state = newest_state(disk)
    for _ in replay(state, read_frames(disk, state.sequence), read_aside(disk)):
        pass
    return Look(state, max(time.time_ns() // 1_000_000, state.now))


def newest_state(disk: RealDisk) -> State:
    """The newest checkpoint that reads back; a bad one is passed over, and left as it is."""
    for sequence in list_checkpoints(disk):
        try:
            checkpoint = read_checkpoint(disk, sequence)
            return restore(map(decode_piece, checkpoint_chunks(disk, checkpoint)))
        except (BadFrame, JournalDamaged):
            continue
    return first_state()
