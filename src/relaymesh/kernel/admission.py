"""Sending and publishing: which messages are accepted, known already, or refused.

A command is admitted whole or not at all: everything is checked before anything is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import MailboxFull
from relaymesh.kernel.charges import MESSAGE_BYTES
from relaymesh.kernel.commands import Publish, Send, Settle
from relaymesh.kernel.contract import MAILBOX_FULL
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.dedup import topic_target
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.failures import bury
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.recognition import Recognition, all_unknown
from relaymesh.kernel.records import Accepted, Published
from relaymesh.kernel.step import Receipt, Scheduled
from relaymesh.kernel.suspension import Look, dead_letters_full, resume, suspend


def accept(decision: Decision, command: Send | Settle) -> list[Receipt]:
    """Accept messages into mailboxes. Returns receipts in the order given."""
    groups, known, minted = command.groups, command.known, command.minted
    if minted and len(groups) == 1:
        return _accept_new(decision, command, *groups[0])
    fresh: list[tuple[Mailbox, list[Envelope]]] = []
    recognition: Recognition | None = None
    position = 0
    once = not minted and len({address for address, _ in groups}) == len(groups)
    for address, envelopes in groups:
        mailbox = decision.mailbox(address)
        if minted or (once and all_unknown(decision, address, envelopes, known)):
            new = list(envelopes)
        else:
            if recognition is None:
                recognition = Recognition(decision, known, command.equal)
            new = recognition.new_of(address, envelopes, position)
        position += len(envelopes)
        if new:
            fresh.append((mailbox, new))
    if recognition is not None:
        recognition.require_same()
    all_new = len(fresh) == 1 and len(fresh[0][1]) == position
    asked: dict[Mailbox, list[int]] = {}
    for mailbox, new in fresh:
        sums = asked.setdefault(mailbox, [0, 0])
        sums[0] += len(new)
        sums[1] += command.size if all_new else size_of(new)
    for mailbox, (messages, size) in asked.items():
        _require_room(decision, mailbox, messages, size)
    if command.budget:
        _require_budget(decision, [new for _, new in fresh], command.budget)
    receipts: list[Receipt] = []
    for mailbox, new in fresh:
        receipts += _emit(decision, mailbox.address, new)
    decision.after_sync()
    return receipts if recognition is None else recognition.in_order(receipts)


def _accept_new(
    decision: Decision, command: Send | Settle, address: str, envelopes: Sequence[Envelope]
) -> list[Receipt]:
    """The same for one mailbox and ids that were made here: the common case, and the shortest way."""
    mailbox = decision.mailbox(address)
    receipts: list[Receipt] = []
    if envelopes:
        new = list(envelopes)
        _require_room(decision, mailbox, len(new), command.size)
        if command.budget:
            _require_budget(decision, [new], command.budget)
        receipts = _emit(decision, address, new)
    decision.after_sync()
    return receipts


def _emit(decision: Decision, address: str, new: list[Envelope]) -> list[Receipt]:
    base = decision.state.sequence
    decision.emit(Accepted(len(new), decision.now, address, new))
    return _receipts(decision, address, new, base, 1)


def _receipts(decision: Decision, target: str, new: list[Envelope], base: int, targets: int) -> list[Receipt]:
    receipts: list[Receipt] = []
    for sequence, envelope in enumerate(new, base):
        due, delay = 0, envelope.delay_ms
        if delay > 0:
            due = decision.now + delay
            decision.sent(Scheduled(target, envelope.id, envelope.sender, delay, due))
        receipts.append(Receipt(envelope.id, sequence, False, targets, due))
    return receipts


def _require_room(decision: Decision, mailbox: Mailbox, messages: int, size: int) -> None:
    """`messages` and `size`: all that the command asks of this mailbox, in however many groups."""
    if not mailbox.room_for(messages, size):
        raise _full(mailbox, messages)
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
    """For every sender of these messages: all bytes that would be kept for it. `copies`: of each message."""
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


def publish(decision: Decision, command: Publish) -> list[Receipt]:
    """Emit one record, whatever the fan-out. A full subscription refuses the publish whole or dead-letters
    its own copy; if its dead letters are full too, it is suspended and skipped."""
    state = decision.state
    recognition: Recognition | None = None
    target = topic_target(command.topic)
    if command.minted or all_unknown(decision, target, command.envelopes, command.known):
        new = list(command.envelopes)
    else:
        recognition = Recognition(decision, command.known, command.equal)
        new = recognition.new_of(target, command.envelopes, 0)
        recognition.require_same()
    receipts: list[Receipt] = []
    if new:
        fitting = _reach(decision, command.topic, new, command.budget)
        base = state.sequence
        decision.emit(Published(len(new), decision.now, command.topic, len(fitting), new))
        receipts = _receipts(decision, target, new, base, len(fitting))
        for mailbox, fit in fitting:
            if fit < len(new):
                overflowing = [mailbox.entries.take_out(base + i) for i in range(fit, len(new))]
                bury(decision, mailbox, overflowing, MAILBOX_FULL, alert=True)
    decision.after_sync()
    return receipts if recognition is None else recognition.in_order(receipts)


def _reach(decision: Decision, topic: str, new: list[Envelope], budget: int) -> list[tuple[Mailbox, int]]:
    """The mailboxes that these go to, and how many of the messages, from the first, find room in each.

    A subscription that can take none is suspended; a suspended one that can take some again is resumed.
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
