"""Expectations: messages that are kept apart for the receiver that asks for their correlation id.

An expectation lasts from `Expect` to `Unexpect`. A receive by a correlation id that is not expected makes one
for as long as it waits. Both take what already waits in the mailbox: an answer may have arrived before the
receiver asked for it, or before it asked again after a restart, which forgets all expectations.

The search looks at the `SEARCH_MAX` newest messages of the mailbox, and happens only when an expectation is
made; a message that arrives later is looked up by its correlation id.
"""

from __future__ import annotations

from itertools import islice

from relaymesh.errors import OverBudget
from relaymesh.kernel.charges import expectation_size
from relaymesh.kernel.commands import Expect, Unexpect
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.pending import DELAYED, LEASED, READY

EXPECTATIONS_MAX = 10_000
"""Correlation ids that one mailbox may expect at a time."""
SEARCH_MAX = 10_000
"""How many messages, from the newest, are searched when an expectation is made."""


def expect(decision: Decision, command: Expect) -> None:
    mailbox, id = decision.mailbox(command.mailbox), command.correlation_id
    mailbox.while_asked.discard(id)
    if id not in mailbox.expected:
        _begin(decision, mailbox, id, command.budget, search=not command.minted)


def unexpect(decision: Decision, command: Unexpect) -> None:
    """Answers that arrived become ordinary messages, unless a receiver still waits for them."""
    mailbox, id = decision.mailbox(command.mailbox), command.correlation_id
    if id in mailbox.askers:
        mailbox.while_asked.add(id)
    elif id in mailbox.expected:
        _end(decision, mailbox, id)


def expect_while_asked(decision: Decision, mailbox: Mailbox, id: str) -> None:
    """A receive asks for this id: if nothing else expects it, the expectation ends with the receive."""
    if id not in mailbox.expected:
        _begin(decision, mailbox, id, 0, search=True)
        mailbox.while_asked.add(id)


def asked_no_longer(decision: Decision, mailbox: Mailbox, id: str) -> None:
    """A receive by this id has ended."""
    if id in mailbox.while_asked and id not in mailbox.askers:
        mailbox.while_asked.discard(id)
        _end(decision, mailbox, id)


def _begin(decision: Decision, mailbox: Mailbox, id: str, budget: int, *, search: bool) -> None:
    if len(mailbox.expected) >= EXPECTATIONS_MAX:
        raise OverBudget(
            f"{mailbox.address} already waits for {EXPECTATIONS_MAX} answers",
            hint="wait until some of them have come",
        )
    charges, size = decision.state.charges, expectation_size(id)
    charges.require(mailbox.address, size, budget)
    charges.add(mailbox.address, size)
    found = _waiting(mailbox, id) if search else []
    mailbox.expected[id] = mailbox.set_apart(found) if found else []
    if found:
        decision.state.want(mailbox)  # a lane that one of them held may continue


def _end(decision: Decision, mailbox: Mailbox, id: str) -> None:
    decision.state.charges.add(mailbox.address, -expectation_size(id))
    for entry in mailbox.expected.pop(id):
        if entry.state == READY:
            decision.state.offer(mailbox, entry)


def _waiting(mailbox: Mailbox, id: str) -> list[Entry]:
    """Messages with this correlation id that no receiver holds, in the order of acceptance."""
    found: list[int] = []
    for sequence, item in islice(reversed(mailbox.entries.by_sequence.items()), SEARCH_MAX):
        if isinstance(item, Entry):
            if item.envelope.correlation_id == id and item.state != LEASED:
                found.append(sequence)
        elif not item.leased and item.envelopes[sequence - item.first].correlation_id == id:
            found.append(sequence)
    waiting = [mailbox.entries.take_out(sequence) for sequence in reversed(found)]
    return [entry for entry in waiting if entry.state != DELAYED or entry.lane is not None]
