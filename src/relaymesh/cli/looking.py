"""Looking into a mesh without taking it: what the journal says up to the last sync, or what a node answers.

Of a directory nothing is locked and nothing is written, so this works beside a running process, and a look
does not count as a start: leases stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from relaymesh.cli.options import Call
from relaymesh.journal import read_frames
from relaymesh.journal.aside import read_aside
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.looks import Looked, counts_of, first_pending
from relaymesh.kernel.pending import DELAYED, READY, STATE_NAMES, Pending
from relaymesh.node.disk import RealDisk
from relaymesh.node.filling import fill
from relaymesh.node.opening import Replayed, newest_state, replay
from relaymesh.node.payloads import Payloads
from relaymesh.sdk.agent import Inbox
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.names import Names

TRIES = 3
Seen = TypeVar("Seen")


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

    def pending(self, mailbox: str, limit: int) -> Sequence[Pending]:
        """The first entries of a mailbox that is there, in the order of acceptance."""

    def letters(self) -> Iterable[DeadLetter]: ...

    def state_name(self, entry: Pending) -> str:
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

    replayed: Replayed
    now: int
    payloads: Payloads
    names = Names()

    def read(self, look: Callable[[Looked], Seen]) -> Seen:
        """What a function sees in the state."""
        return look(self.replayed)

    def mailboxes(self) -> Mapping[str, Box]:
        return {
            address: Box(box.pending, box.leased, box.dead_letters, box.delivery_semantics)
            for address, box in counts_of(None, self.now, self.replayed).items()
        }

    def pending(self, mailbox: str, limit: int) -> Sequence[Pending]:
        pending: list[Pending] = fill(first_pending(mailbox, limit, self.replayed), self.payloads)
        return pending

    def letters(self) -> Iterable[DeadLetter]:
        letters: list[DeadLetter] = fill(list(self.replayed.state.letters), self.payloads)
        return letters

    def state_name(self, entry: Pending) -> str:
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

    def pending(self, mailbox: str, limit: int) -> Sequence[Pending]:
        return Inbox(self.mesh, mailbox).peek(limit)

    def letters(self) -> Iterable[DeadLetter]:
        return [letter.letter for letter in self.mesh.dead_letters(status=None)]

    def state_name(self, entry: Pending) -> str:
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
    return Look(Replayed(state), max(time.time_ns() // 1_000_000, state.now), Payloads(disk, _takes_nothing))


def _takes_nothing(_size: int) -> None:
    """A look writes nothing."""
