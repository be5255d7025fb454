"""What happens to the messages in unreadable records when those records are set aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaymesh.journal.verify import UnreadableAt
from relaymesh.kernel.looks import Looked, pending_at
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.records import Acked, DeadLettered, Dropped, Granted, Returned
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


def fates(found: Sequence[UnreadableAt], replayed: Looked, checkpoint: int) -> Iterator[Fate]:
    """Each message of each record. `replayed`: the journal with all of them set aside, from a
    checkpoint at sequence `checkpoint`."""
    for each in found:
        named = named_by(each.record)
        told = False
        for sequence, id, fate in _of(each, named, replayed, checkpoint):
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
    each: UnreadableAt, named: Named, replayed: Looked, checkpoint: int
) -> Iterator[tuple[int | None, str | None, str]]:
    behind = each.line.sequence < checkpoint
    kept = "stays as it was: a checkpoint holds the effect of the record"
    for i, id in enumerate(named.ids):
        yield each.line.sequence + i, id, kept if behind else "is not there: only this record brought it in"
    for sequence in named.sequences:
        pending = pending_at(named.mailbox, sequence, replayed)
        name = None if pending is None else pending.envelope.id
        yield sequence, name, kept if behind else _fate_of(each, pending, replayed, sequence)
    for dead in named.dead_sequences:
        letter = replayed.state.letters.find(named.source or named.mailbox or "", dead)
        name = None if letter is None else letter.envelope.id
        fate = "stays a dead letter" if letter else "is no dead letter any more"
        yield dead, name, kept if behind else fate


def _fate_of(each: UnreadableAt, pending: Pending | None, replayed: Looked, sequence: int) -> str:
    kind = RECORDS_BY_OPERATION[each.line.operation]
    if pending is not None:
        if kind in _SETTLED:
            return "is pending again, and may be delivered a second time"
        return "is pending again" if kind in _MOVED else "is pending as it was"
    if any(letter.sequence == sequence for letter in replayed.state.letters):
        return "is a dead letter, as a later record says"
    return "is settled, as another record says"


def _alone(named: Named) -> str:
    if named.opens is not None:
        return "the mailbox exists, with the settings it had before or else the defaults"
    return "it names no message that can be read; the record has no effect"
