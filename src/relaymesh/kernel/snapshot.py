"""A snapshot: the durable state at one sequence, in pieces small enough not to block other work.

`Snapshot(state)` copies lists of references at once. `pieces()` then yields what they referred to at that
moment, however the state has changed since: an entry is kept before it changes. `restore(pieces)` returns a
state that, after the records from its sequence on, equals the live one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.dedup import Found, Seen, each_of
from relaymesh.kernel.entry import Entry, Grant, Lease
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.mailbox import Counters, Mailbox
from relaymesh.kernel.parcel import Parcel, Part
from relaymesh.kernel.pending import DELAYED, LEASED, READY
from relaymesh.kernel.piece import PIECE_BYTES, PIECE_SIZE, Piece
from relaymesh.kernel.records import Failure, failures_size
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.schedules.pieces import SchedulesPiece, schedule_pieces
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.pieces import (
    BoardPiece,
    KeysPiece,
    PlanPiece,
    WorkflowsPiece,
    owed_pieces,
    restore_board_piece,
    task_pieces,
    workflow_pieces,
)
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.kernel.tasks.task import Task

Grants = dict[tuple[str, str, int, int, bool], Grant]
"""The grants of a restored state: leases of one mailbox, holder, deadline, length and kind share one."""


class Head(Piece, tag=1, frozen=True):
    """Always the first piece."""

    sequence: int
    now: int
    epoch: int
    partition: int
    next_token: int
    unrouted: int
    horizon: int


class MailboxPiece(Piece, tag=2, frozen=True):
    """A mailbox without its messages."""

    address: str
    settings: MailboxSettings
    counters: Counters
    halted: list[tuple[int, str]]
    pattern: str | None = None
    owner: str = ""
    owner_budget: int = 0
    suspended: str | None = None
    """Why the subscription is suspended; None while it is not."""


class Held(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The lease of an entry."""

    token: int
    holder: str
    deadline: int
    remote: bool
    length: int = 0


class EntryPiece(msgspec.Struct, array_like=True, frozen=True, gc=False):
    envelope: Envelope
    sequence: int
    accepted_at: int
    due_at: int
    ready_at: int
    ready_sequence: int
    priority: int
    admitted: bool
    attempts: int = 0
    deferrals: int = 0
    redrives: int = 0
    completed: bool = False
    failures: list[Failure] | None = None
    held: Held | None = None
    waited_ms: int = 0
    topic: str | None = None


class EntriesPiece(Piece, tag=3, frozen=True):
    """The next messages of a mailbox, each with its attempts and its lease."""

    mailbox: str
    entries: list[EntryPiece]


class SeenPiece(Piece, tag=4, frozen=True):
    """Ids of settled messages: mailbox or topic, id, and what it led to."""

    ids: list[tuple[str, str, Seen]]


class LettersPiece(Piece, tag=5, frozen=True):
    """The next dead letters."""

    letters: list[DeadLetter]


class End(Piece, tag=6, frozen=True):
    """Always the last piece: without it the snapshot is incomplete."""

    pieces: int


class AgentsPiece(Piece, tag=7, frozen=True):
    """The next registered agents."""

    agents: list[Registration]


Kept = TypeVar("Kept", EntryPiece, DeadLetter)

AnyPiece = (
    Head
    | MailboxPiece
    | EntriesPiece
    | SeenPiece
    | LettersPiece
    | End
    | AgentsPiece
    | BoardPiece
    | WorkflowsPiece
    | SchedulesPiece
)


class Snapshot:
    """Taken under the kernel's lock; each piece is drawn under it too. Encode them outside."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.sequence = state.sequence
        self._kept: dict[tuple[str, int], EntryPiece] = {}
        self._head = Head(
            state.sequence,
            state.now,
            state.epoch,
            state.partition,
            state.next_token,
            state.unrouted,
            state.admitted.horizon,
        )
        self._mailboxes = [
            MailboxPiece(
                box.address,
                box.settings,
                msgspec.structs.replace(box.counters),
                list(box.halted.items()),
                state.subscriptions.pattern_of(box.address),
                box.owner,
                box.owner_budget,
                state.subscriptions.suspended(box.address),
            )
            for box in state.mailboxes.values()
        ]
        self._entries = [(box, list(box.entries)) for box in state.mailboxes.values() if box.entries]
        self._seen = state.admitted.remembered()
        self._letters = list(state.letters)
        self._agents = list(state.agents.values())
        board = state.board
        self._plans = {plan: number for number, plan in enumerate(board.shapes)}
        self._tasks = list(board.tasks.values())
        self._kept_tasks: dict[str, list[AnyPiece]] = {}
        self._keys, self._keys_forgotten = board.keys.ended(), board.keys.forgotten
        self._owed = board.owed.all()
        self._workflows, self._numbers = list(state.workflows), state.workflows.numbers.rows()
        self._schedules = list(state.schedules)
        state.keep = self._keep
        board.keep = self._keep_task

    def _keep(self, mailbox: Mailbox, part: Part) -> None:
        known = self._state.admitted.of(mailbox.address)
        for sequence in part.sequences:
            key = mailbox.address, sequence
            if sequence < self.sequence and key not in self._kept:
                self._kept[key] = _piece_of(part, sequence, known)

    def _keep_task(self, task: Task) -> None:
        if task.sequence < self.sequence and task.id not in self._kept_tasks:
            self._kept_tasks[task.id] = list(task_pieces(task, self._plans[task.plan]))

    def pieces(self) -> Iterator[AnyPiece]:
        count = 0
        for piece in self._pieces():
            count += 1
            yield piece
        yield End(count)

    def _pieces(self) -> Iterator[AnyPiece]:
        yield self._head
        yield from self._mailboxes
        for mailbox, sequences in self._entries:
            for start in range(0, len(sequences), PIECE_SIZE):
                entries = self._as_they_were(mailbox, sequences[start : start + PIECE_SIZE])
                for portion in _portions(entries):
                    yield EntriesPiece(mailbox.address, portion)
        seen = each_of(self._seen)
        while ids := list(islice(seen, PIECE_SIZE)):
            yield SeenPiece(ids)
        for start in range(0, len(self._letters), PIECE_SIZE):
            for letters in _portions(self._letters[start : start + PIECE_SIZE]):
                yield LettersPiece(letters)
        for start in range(0, len(self._agents), PIECE_SIZE):
            yield AgentsPiece(self._agents[start : start + PIECE_SIZE])
        for plan in self._plans:
            yield PlanPiece(plan)
        for task in self._tasks:
            yield from self._task_as_it_was(task)
            self._kept_tasks[task.id] = []  # drawn: a change from here on need not keep it
        for start in range(0, len(self._keys) or 1, PIECE_SIZE):
            if self._keys or self._keys_forgotten:
                yield KeysPiece(self._keys[start : start + PIECE_SIZE], self._keys_forgotten)
        yield from owed_pieces(self._owed)
        yield from workflow_pieces(self._workflows, self._numbers)
        yield from schedule_pieces(self._schedules)

    def _task_as_it_was(self, task: Task) -> Iterator[AnyPiece]:
        """Piece by piece while it does not change; from then on what was kept before."""
        pieces = task_pieces(task, self._plans[task.plan])
        drawn = 0
        while (kept := self._kept_tasks.get(task.id)) is None:
            piece = next(pieces, None)
            if piece is None:
                return
            drawn += 1
            yield piece
        yield from kept[drawn:]

    def _as_they_were(self, mailbox: Mailbox, sequences: list[int]) -> list[EntryPiece]:
        known = self._state.admitted.of(mailbox.address)
        entries, address = mailbox.entries, mailbox.address
        if not self._kept:
            return [_piece_of(entries[sequence], sequence, known) for sequence in sequences]
        kept = [self._kept.pop((address, sequence), None) for sequence in sequences]
        return [
            _piece_of(entries[sequence], sequence, known) if piece is None else piece
            for sequence, piece in zip(sequences, kept, strict=True)
        ]

    def close(self) -> None:
        """Done, or given up: the state need not keep old entries any more."""
        if self._state.keep == self._keep:
            self._state.keep = None
        if self._state.board.keep == self._keep_task:
            self._state.board.keep = None


def _piece_of(part: Part, sequence: int, known: Mapping[str, Found]) -> EntryPiece:
    """One message of a mailbox. `known`: what the ids of its mailbox lead to."""
    if isinstance(part, Parcel):
        if not part.leased:
            return _waiting_piece(part, sequence, known)
        entry = part.look(sequence)
    else:
        entry = part
    envelope, lease = entry.envelope, entry.lease
    held = None
    if lease is not None:
        grant = lease.grant
        held = Held(lease.token, grant.holder, lease.deadline, grant.remote, grant.length)
    return EntryPiece(
        envelope,
        sequence,
        entry.accepted_at,
        entry.due_at,
        entry.ready_at,
        entry.ready_sequence,
        entry.priority,
        known.get(envelope.id) == sequence,
        entry.attempts,
        entry.deferrals,
        entry.redrives,
        entry.completed,
        entry.failures,
        held,
        entry.waited_ms,
        entry.topic,
    )


def _waiting_piece(parcel: Parcel, sequence: int, known: Mapping[str, Found]) -> EntryPiece:
    """One message of a parcel that waits: no entry is made for it."""
    envelope, at = parcel.envelopes[sequence - parcel.first], parcel.accepted_at
    admitted = known.get(envelope.id) == sequence
    return EntryPiece(envelope, sequence, at, at, at, sequence, parcel.priority, admitted, topic=parcel.topic)


def _portions(parts: list[Kept]) -> Iterator[list[Kept]]:
    """The parts of one piece; several portions, each of about `PIECE_BYTES`, if they are large."""
    failures = sum([failures_size(part.failures) for part in parts if part.failures])
    if size_of([part.envelope for part in parts]) + failures <= PIECE_BYTES:
        yield parts
        return
    portion: list[Kept] = []
    size = 0
    for part in parts:
        portion.append(part)
        size += part.envelope.size + failures_size(part.failures)
        if size >= PIECE_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def restore(pieces: Iterable[AnyPiece]) -> State:
    """The state that a snapshot was taken of. Raises `JournalDamaged` when the snapshot is incomplete."""
    state = State()
    grants: Grants = {}
    plans: list[Plan] = []
    count = 0
    for piece in pieces:
        if isinstance(piece, End):
            if piece.pieces != count:
                break
            for task in state.board.tasks.values():
                state.board.restored(task)
            return state
        count += 1
        _restore_piece(state, piece, grants, plans)
    raise JournalDamaged(f"a checkpoint is incomplete: it ends after {count} pieces")


def _restore_piece(state: State, piece: AnyPiece, grants: Grants, plans: list[Plan]) -> None:
    match piece:
        case Head():
            state.sequence, state.now, state.epoch = piece.sequence, piece.now, piece.epoch
            state.partition, state.next_token = piece.partition, piece.next_token
            state.unrouted, state.admitted.horizon = piece.unrouted, piece.horizon
        case MailboxPiece():
            mailbox = state.mailboxes[piece.address] = Mailbox(piece.address, piece.settings)
            mailbox.counters = msgspec.structs.replace(piece.counters)
            mailbox.halted = dict(piece.halted)
            mailbox.owned_by(piece.owner, piece.owner_budget)
            if piece.pattern is not None:
                state.subscriptions.add(piece.address, piece.pattern)
            if piece.suspended is not None:
                state.subscriptions.suspend(piece.address, piece.suspended)
        case EntriesPiece():
            _restore_entries(state, state.mailboxes[piece.mailbox], piece.entries, grants)
        case SeenPiece():
            shared = state.admitted.senders.shared
            for target, id, seen in piece.ids:
                one = msgspec.structs.replace(seen, sender=shared(seen.sender))
                state.admitted.remember(target, id, one)
        case LettersPiece():
            for letter in piece.letters:
                state.letters.add(letter)
        case AgentsPiece():
            state.agents.update((agent.agent, agent) for agent in piece.agents)
        case WorkflowsPiece() | SchedulesPiece():
            _restore_stored(state, piece)
        case _:
            assert not isinstance(piece, End), "the end is no piece of the state"
            restore_board_piece(state.board, piece, plans)


def _restore_stored(state: State, piece: WorkflowsPiece | SchedulesPiece) -> None:
    if isinstance(piece, WorkflowsPiece):
        state.workflows.restore(piece.workflows)
        state.workflows.numbers.restore(piece.numbers)
    else:
        state.schedules.restore(piece.schedules)


def _restore_entries(
    state: State,
    mailbox: Mailbox,
    pieces: list[EntryPiece],
    grants: Grants,
) -> None:
    known = state.admitted.of(mailbox.address)
    topics: dict[str | None, str | None] = {}
    for piece in pieces:
        entry = Entry(
            piece.envelope,
            piece.sequence,
            piece.accepted_at,
            piece.due_at,
            piece.ready_at,
            piece.ready_sequence,
            piece.priority,
            READY if piece.ready_at <= state.now else DELAYED,
            piece.attempts,
            piece.deferrals,
            piece.redrives,
            piece.completed,
            piece.failures,
            waited_ms=piece.waited_ms,
            topic=topics.setdefault(piece.topic, piece.topic),  # one string for all
        )
        if piece.held is not None:
            _restore_lease(mailbox, entry, piece.held, grants)
        mailbox.entries[entry.sequence] = entry
        mailbox.bytes += entry.size
        mailbox.by_priority[entry.priority] += 1
        if entry.state == DELAYED and entry.ready_at == entry.due_at:
            mailbox.delayed += 1
        if piece.admitted:
            known[entry.envelope.id] = entry.sequence


def _restore_lease(mailbox: Mailbox, entry: Entry, held: Held, grants: Grants) -> None:
    key = (mailbox.address, held.holder, held.deadline, held.length, held.remote)
    grant = grants.get(key)
    if grant is None:
        grant = grants[key] = Grant(mailbox.address, held.holder, held.deadline, held.length, held.remote)
    entry.state = LEASED
    entry.lease = Lease(held.token, entry, entry.attempts, held.deadline, grant)
    mailbox.leased += 1
