"""Sending and publishing: what is let in, what was there already, what is refused.

A command is admitted whole or not at all: everything is checked before anything is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from relaymesh.errors import Conflict, MailboxFull
from relaymesh.kernel.charges import MESSAGE_BYTES
from relaymesh.kernel.commands import Publish, Send
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.dedup import WINDOW_MS, Found, Seen, SeenParcel, digest_of
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.exits import MAILBOX_FULL, bury
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import Accepted, Published
from relaymesh.kernel.state import topic_target
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.suspension import Look, dead_letters_full, resume, suspend

Groups = Sequence[tuple[str, Sequence[Envelope]]]
Known = Mapping[tuple[str, str], Seen] | None
Prior = dict[int, Receipt | int]
"""By position in the command: the receipt of a message known before, or the position of its twin."""


def send(decision: Decision, command: Send) -> list[Receipt]:
    """Accept messages into mailboxes. Receipts in the order given."""
    return accept(decision, command.groups, command.known, command.minted, command.budget)


def accept(
    decision: Decision, groups: Groups, known: Known = None, minted: bool = False, budget: int = 0
) -> list[Receipt]:
    fresh: list[tuple[str, list[Envelope]]] = []
    prior: Prior = {}
    position = 0
    asked: dict[str, list[int]] = {}
    here: dict[tuple[str, str], tuple[Envelope, int]] = {}
    once = not minted and len({address for address, _ in groups}) == len(groups)
    for address, envelopes in groups:
        mailbox = decision.mailbox(address)
        if minted or (once and _all_unknown(decision, address, envelopes, known)):
            new = list(envelopes)
        else:
            new = _unknown_only(decision, address, envelopes, known, prior, here, position)
        position += len(envelopes)
        if new:
            fresh.append((address, new))
            _require_room(decision, mailbox, new, asked.setdefault(address, [0, 0]))
    if budget:
        _require_budget(decision, [new for _, new in fresh], budget)
    receipts: list[Receipt] = []
    for address, new in fresh:
        base = decision.state.sequence
        decision.emit(Accepted(len(new), decision.now, address, new))
        receipts += _receipts(new, base, decision.now, 1)
    decision.after_sync()
    return _in_order(receipts, prior) if prior else receipts


def _receipts(new: list[Envelope], base: int, now: int, targets: int) -> list[Receipt]:
    receipts: list[Receipt] = []
    for sequence, envelope in enumerate(new, base):
        delay = envelope.delay_ms
        receipts.append(Receipt(envelope.id, sequence, False, targets, now + delay if delay > 0 else 0))
    return receipts


def _require_room(decision: Decision, mailbox: Mailbox, new: Sequence[Envelope], asked: list[int]) -> None:
    """`asked` is what this command already wants of the mailbox: messages, bytes."""
    asked[0] += len(new)
    asked[1] += size_of(new)
    if not mailbox.room_for(asked[0], asked[1]):
        raise _full(mailbox, asked[0])
    letters = decision.state.letters
    if letters.count and letters.of(mailbox.address).full(mailbox.settings):
        raise dead_letters_full(mailbox)


def _full(mailbox: Mailbox, more: int) -> MailboxFull:
    settings = mailbox.settings
    return MailboxFull(
        f"mailbox {mailbox.address} is full:"
        f" it holds {len(mailbox.entries)} of {settings.capacity} messages"
        f" and {mailbox.bytes} of {settings.capacity_bytes} bytes; {more} more were sent"
    )


def _require_budget(
    decision: Decision, batches: Sequence[Sequence[Envelope]], budget: int, copies: int = 1
) -> None:
    """Of every sender among these: all that would be kept for it. `copies`: of each message."""
    if len(batches) == 1 and len(batches[0]) == 1:
        one = batches[0][0]
        decision.state.charges.require(one.sender, (one.size + MESSAGE_BYTES) * copies, budget)
        return
    asked: dict[str, int] = {}
    for batch in batches:
        senders = {envelope.sender for envelope in batch}
        for sender in senders:
            mine = batch if len(senders) == 1 else [each for each in batch if each.sender == sender]
            asked[sender] = asked.get(sender, 0) + size_of(mine) + len(mine) * MESSAGE_BYTES
    for sender, size in asked.items():
        decision.state.charges.require(sender, size * copies, budget)


def _all_unknown(decision: Decision, target: str, envelopes: Sequence[Envelope], known: Known) -> bool:
    """Whether none of these is known or given twice, as it nearly always is. A wrong no costs time only."""
    ids = {envelope.id for envelope in envelopes}
    if known or len(ids) < len(envelopes):
        return False
    return decision.state.admitted.of(target).keys().isdisjoint(ids)


def _unknown_only(
    decision: Decision,
    target: str,
    envelopes: Sequence[Envelope],
    known: Known,
    prior: Prior,
    here: dict[tuple[str, str], tuple[Envelope, int]],
    position: int,
) -> list[Envelope]:
    """The envelopes this target has not seen; what is to be answered for the others goes into `prior`.

    `here` is what this command itself brings so far, with its position.
    """
    seen = decision.state.admitted.of(target)
    new: list[Envelope] = []
    for i, envelope in enumerate(envelopes, position):
        id = envelope.id
        found = _what_is_left(decision, target, id, seen.get(id))
        if found is None and known is not None:
            found = known.get((target, id))
        if found is not None and not _forgotten(found, decision.now):
            prior[i] = _same_again(target, envelope, found)
            continue
        first = here.setdefault((target, id), (envelope, i))
        if first[1] == i:
            new.append(envelope)
        elif first[0].content != envelope.content:
            raise _conflict(target, id)
        else:
            prior[i] = first[1]
    return new


def _what_is_left(decision: Decision, target: str, id: str, found: Found | None) -> Entry | Seen | None:
    """Of a message that was admitted under this id: its entry, or its traces."""
    if isinstance(found, int):
        return decision.state.mailboxes[target].entries.look(found)
    return found[id] if isinstance(found, SeenParcel) else found


def _forgotten(found: Entry | Seen, now: int) -> bool:
    return isinstance(found, Seen) and found.at + WINDOW_MS <= now


def _same_again(target: str, envelope: Envelope, found: Entry | Seen) -> Receipt:
    """The receipt of the original, or a conflict when the content differs."""
    if isinstance(found, Seen):
        if found.digest != digest_of(envelope.content):
            raise _conflict(target, envelope.id)
        due, accepted_at, targets = found.due, found.at, found.targets
    else:
        if found.envelope.content != envelope.content:
            raise _conflict(target, envelope.id)
        due, accepted_at, targets = found.scheduled_at, found.accepted_at, 1
    return Receipt(envelope.id, found.sequence, True, targets, due if due > accepted_at else 0)


def _conflict(target: str, id: str) -> Conflict:
    return Conflict(f"id {id!r} was already sent to {target} with other content")


def _in_order(receipts: list[Receipt], prior: Prior) -> list[Receipt]:
    """Merge receipts of new messages with those of known ones, by position in the command."""
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


def publish(decision: Decision, command: Publish) -> list[Receipt]:
    """One record, whatever the fan-out. A full subscription refuses it whole, dead-letters its own copy,
    or is suspended and skipped when its dead letters are full too."""
    state = decision.state
    prior: Prior = {}
    target = topic_target(command.topic)
    if command.minted or _all_unknown(decision, target, command.envelopes, command.known):
        new = list(command.envelopes)
    else:
        new = _unknown_only(decision, target, command.envelopes, command.known, prior, {}, 0)
    receipts: list[Receipt] = []
    if new:
        fitting = _reach(decision, command.topic, new, command.budget)
        base = state.sequence
        decision.emit(Published(len(new), decision.now, command.topic, len(fitting), new))
        receipts = _receipts(new, base, decision.now, len(fitting))
        for mailbox, fit in fitting:
            if fit < len(new):
                overflowing = [mailbox.entries[base + i] for i in range(fit, len(new))]
                bury(decision, mailbox, overflowing, MAILBOX_FULL, alert=True)
    decision.after_sync()
    return _in_order(receipts, prior) if prior else receipts


def _reach(decision: Decision, topic: str, new: list[Envelope], budget: int) -> list[tuple[Mailbox, int]]:
    """The mailboxes that these go to, and how many of them, from the first, find room in each.

    Subscriptions that can take none are suspended, and suspended ones that can again are resumed.
    """
    state = decision.state
    look = Look(state, new)
    reached = [state.mailboxes[address] for address in state.subscriptions.route(topic)]
    closed = {mailbox: reason for mailbox in reached if (reason := look.obstacle(mailbox))}
    back = [
        mailbox
        for mailbox in [state.mailboxes[address] for address in state.subscriptions.skipped(topic)]
        if look.relieved(mailbox) and not look.obstacle(mailbox)
    ]
    fitting = {box: _that_fit(box, new, look.size) for box in [*reached, *back] if box not in closed}
    if budget:
        copies = sum(not mailbox.payer for mailbox in fitting)
        _require_budget(decision, [new], budget, copies)
    for mailbox, reason in closed.items():
        suspend(decision, mailbox, reason)
    for mailbox in back:
        resume(decision, mailbox)
    if back:  # in the order in which they subscribed
        fitting = {
            box: fitting[box] for box in [state.mailboxes[a] for a in state.subscriptions.route(topic)]
        }
    return list(fitting.items())


def _that_fit(mailbox: Mailbox, new: Sequence[Envelope], size: int) -> int:
    """How many of these, from the first, find room; a mailbox that rejects takes all or raises."""
    if mailbox.room_for(len(new), size):
        return len(new)
    if mailbox.settings.overflow == "reject":
        raise _full(mailbox, len(new))
    return mailbox.fit(new)
