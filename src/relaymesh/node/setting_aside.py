"""What becomes of the messages that unreadable records named, once those records are set aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from relaymesh.journal.verify import UnreadableAt
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.records import Acked, DeadLettered, Dropped, Granted, Returned
from relaymesh.kernel.state import State
from relaymesh.wire.named import Named, named_by
from relaymesh.wire.records import RECORDS_BY_OPERATION

__all__ = ["Fate", "fates"]

_MOVED = (Granted, Returned)
_SETTLED = (Acked, Dropped, DeadLettered)


@dataclass(frozen=True, slots=True)
class Fate:
    """One message that a record named, or the record alone when nothing in it can be read."""

    sequence: int
    count: int
    operation: int
    segment: str
    offset: int
    record: int
    name: str
    mailbox: str | None
    message_sequence: int | None
    message_id: str | None
    fate: str


def fates(found: Sequence[UnreadableAt], state: State, checkpoint: int) -> Iterator[Fate]:
    """Each message of each record. `state`: the journal replayed with all of them set aside, from a
    checkpoint at sequence `checkpoint`."""
    for each in found:
        named = named_by(each.record)
        told = False
        for sequence, id, fate in _of(each, named, state, checkpoint):
            told = True
            yield _fate(each, named.mailbox, sequence, id, fate)
        if not told:
            yield _fate(each, named.mailbox, None, None, _alone(named))


def _fate(each: UnreadableAt, mailbox: str | None, sequence: int | None, id: str | None, fate: str) -> Fate:
    line = each.line
    name = RECORDS_BY_OPERATION[line.operation].__name__
    where = (line.sequence, line.count, line.operation, line.segment, line.offset, line.record)
    return Fate(*where, name, mailbox, sequence, id, fate)


def _of(
    each: UnreadableAt, named: Named, state: State, checkpoint: int
) -> Iterator[tuple[int | None, str | None, str]]:
    behind = each.line.sequence < checkpoint
    kept = "stays as it was: a checkpoint holds what the record did"
    for i, id in enumerate(named.ids):
        yield each.line.sequence + i, id, kept if behind else "is not there: only this record brought it in"
    for sequence in named.sequences:
        entry = _entry(state, named.mailbox, sequence)
        name = None if entry is None else entry.envelope.id
        yield sequence, name, kept if behind else _fate_of(each, entry, state, sequence)
    for dead in named.dead_sequences:
        letter = state.letters.find(named.source or named.mailbox or "", dead)
        name = None if letter is None else letter.envelope.id
        fate = "stays a dead letter" if letter else "is no dead letter any more"
        yield dead, name, kept if behind else fate


def _fate_of(each: UnreadableAt, entry: Entry | None, state: State, sequence: int) -> str:
    kind = RECORDS_BY_OPERATION[each.line.operation]
    if entry is not None:
        if kind in _SETTLED:
            return "is pending again, and may be delivered a second time"
        return "is pending again" if kind in _MOVED else "is pending as it was"
    if any(letter.sequence == sequence for letter in state.letters):
        return "is a dead letter, as a later record says"
    return "is settled, as another record says"


def _entry(state: State, mailbox: str | None, sequence: int) -> Entry | None:
    boxes: Iterable[str] = state.mailboxes if mailbox is None else (mailbox,)
    for address in boxes:
        box = state.mailboxes.get(address)
        entry = None if box is None else box.entries.look(sequence)
        if entry is not None:
            return entry
    return None


def _alone(named: Named) -> str:
    if named.opens is not None:
        return "the mailbox exists, with the settings it had before or else the defaults"
    return "it names no message that can be read; nothing that it said has happened"
