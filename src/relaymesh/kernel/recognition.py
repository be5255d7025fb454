"""Recognition: which messages of a command were sent before, and which of those are unchanged.

An id belongs to its sender: the same id from another sender is a conflict, whatever the content. The same id
from the same sender is a duplicate if the bytes are the same. If they differ, the step names the originals
(`Step.differing`) and the command is refused. The shell may then read the originals; if one is the same JSON
value in other bytes, the shell repeats the command and says so (`equal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from relaymesh.errors import Conflict
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.dedup import WINDOW_MS, Differing, Found, Seen, SeenParcel, content_digest
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.step import Receipt, Repeated

Known = Mapping[tuple[str, str], Seen] | None
"""By target and id: what the store knows of ids that memory may have forgotten."""

OTHER_SENDER_HINT = "each sender chooses its own ids: put your own name or something random into the id"


def all_unknown(decision: Decision, target: str, envelopes: Sequence[Envelope], known: Known) -> bool:
    """Whether none of these is known or repeated: the usual case. A wrong False only costs time."""
    ids = {envelope.id for envelope in envelopes}
    if known or len(ids) < len(envelopes):
        return False
    return decision.state.admitted.of(target).keys().isdisjoint(ids)


class Recognition:
    """Checks the messages of one command, target by target; then `require_same`, then `in_order`."""

    __slots__ = ("_decision", "_differing", "_equal", "_foreign", "_here", "_known", "_prior", "_repeated")

    def __init__(self, decision: Decision, known: Known, equal: frozenset[Differing]) -> None:
        self._decision = decision
        self._known = known
        self._equal = equal
        self._here: dict[tuple[str, str], tuple[Envelope, int]] = {}
        """New messages of this command so far, with their positions."""
        self._prior: dict[int, Receipt | int] = {}
        """By position: the receipt of a known message, or the position of its twin."""
        self._repeated: list[Repeated] = []
        self._foreign: tuple[str, str, str] | None = None
        """Target, id and sender of the first that another sender sent before."""
        self._differing: list[Differing] = []

    def new_of(self, target: str, envelopes: Sequence[Envelope], position: int) -> list[Envelope]:
        """Those that are new to this target; `position` is that of the first of them in the command."""
        decision, known = self._decision, self._known
        seen = decision.state.admitted.of(target)
        new: list[Envelope] = []
        for i, envelope in enumerate(envelopes, position):
            id = envelope.id
            found = _what_is_left(decision, target, id, seen.get(id))
            if found is None and known is not None:
                found = known.get((target, id))
            if found is not None and not _forgotten(found, decision.now):
                self._prior[i] = receipt = _receipt_again(id, found)
                sender = _sender_of(found)
                same = _same_bytes(envelope, found)
                self._compare(envelope, sender, same, Differing(i, target, id, receipt.sequence))
                continue
            first, place = self._here.setdefault((target, id), (envelope, i))
            if place == i:
                new.append(envelope)
                continue
            self._prior[i] = place
            same = _same_content(first, envelope)
            self._compare(envelope, first.sender, same, Differing(i, target, id, twin=place))
        return new

    def _compare(self, envelope: Envelope, sender: str, same: bool, differing: Differing) -> None:
        """`sender`: of the original; empty if not known."""
        self._repeated.append(Repeated(differing.target, differing.id, envelope.sender))
        if sender and sender != envelope.sender:
            self._foreign = self._foreign or (differing.target, differing.id, sender)
        elif not same:
            self._differing.append(differing)

    def require_same(self) -> None:
        """Raise `Conflict` if another sender sent one, or if bytes differ and were not found equal."""
        if self._foreign is not None:
            target, id, sender = self._foreign
            raise Conflict(f"id {id!r} was already sent to {target} by {sender}", hint=OTHER_SENDER_HINT)
        differing = [each for each in self._differing if each not in self._equal]
        if differing:
            self._decision.step.differing = differing
            first = differing[0]
            raise Conflict(f"id {first.id!r} was already sent to {first.target} with other content")

    def in_order(self, receipts: list[Receipt]) -> list[Receipt]:
        """The command is accepted: receipts of new and known messages, by position."""
        prior = self._prior
        if not prior:
            return receipts
        self._decision.state.duplicates += len(prior)
        for repeated in self._repeated:
            self._decision.sent(repeated)
        fresh = iter(receipts)
        merged: list[Receipt] = []
        for i in range(len(receipts) + len(prior)):
            answer = prior.get(i)
            if answer is None:
                merged.append(next(fresh))
            elif isinstance(answer, Receipt):
                merged.append(answer)
            else:
                merged.append(msgspec.structs.replace(merged[answer], duplicate=True))
        return merged


def _receipt_again(id: str, found: Entry | Seen) -> Receipt:
    """The receipt that the original got."""
    if isinstance(found, Seen):
        due, accepted_at, targets = found.due, found.at, found.targets
    else:
        due, accepted_at, targets = found.scheduled_at, found.accepted_at, 1
    return Receipt(id, found.sequence, True, targets, due if due > accepted_at else 0)


def _sender_of(found: Entry | Seen) -> str:
    return found.sender if isinstance(found, Seen) else found.envelope.sender


def _same_bytes(envelope: Envelope, found: Entry | Seen) -> bool:
    if isinstance(found, Seen):
        return found.digest == content_digest(envelope)
    return _same_content(found.envelope, envelope)


def _same_content(one: Envelope, other: Envelope) -> bool:
    """Whether the bytes are the same. Content that one of them has in a file is compared by its digest."""
    if one.encoding == other.encoding:
        return one.content == other.content
    return content_digest(one) == content_digest(other)


def _what_is_left(decision: Decision, target: str, id: str, found: Found | None) -> Entry | Seen | None:
    """For a message admitted under this id: its entry, or what is kept of it."""
    if isinstance(found, int):
        return decision.state.mailboxes[target].entries.look(found)
    return found[id] if isinstance(found, SeenParcel) else found


def _forgotten(found: Entry | Seen, now: int) -> bool:
    return isinstance(found, Seen) and found.at + WINDOW_MS <= now
