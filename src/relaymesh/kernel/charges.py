"""Charges: how many bytes of memory the mesh keeps, by payer.

Every message is charged from its acceptance until it is settled, and every dead letter until it is purged:
its content, its `extra`, the failures kept with it, and `MESSAGE_BYTES` for the rest. The sender pays, with
two exceptions. The copies in an agent's subscription are charged to the account of that agent's
subscriptions: the agent decides how many there are, and the publisher cannot know. A notice (`ack`, `nack`)
is charged to the mailbox that holds it: its sender had no choice. A mailbox, and each correlation id that it
expects, are charged as well.

Charges are volatile. They are counted when a replay ends, and updated from then on; before that every method
that charges does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from relaymesh.errors import OverBudget
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import CONTROL_TYPES, Envelope
from relaymesh.kernel.parcel import Parcel

if TYPE_CHECKING:
    from relaymesh.kernel.dead_letters import DeadLetter
    from relaymesh.kernel.mailbox import Mailbox

MESSAGE_BYTES = 512
"""Memory of a message beside its content: its fields, its table slots, its id in dedup."""
MAILBOX_BYTES = 4_096
"""Memory of a mailbox or a subscription."""
EXPECTATION_BYTES = 512
"""Memory of an expected correlation id beside its text, of 4 bytes a character."""


def expectation_size(correlation_id: str) -> int:
    return EXPECTATION_BYTES + 4 * len(correlation_id)


def subscriptions_of(owner: str) -> str:
    """The account of an agent's subscriptions. It cannot be mistaken for an address."""
    return f"subscriptions of {owner}"


class Charges:
    """Bytes by the address that pays for them. `sign`: 1 to charge, -1 to give back."""

    __slots__ = ("_by_payer", "_live")

    def __init__(self) -> None:
        self._by_payer: dict[str, int] = {}
        self._live = False

    def count(self, letters: Iterable[DeadLetter], mailboxes: Iterable[Mailbox]) -> None:
        """Count everything anew."""
        self._by_payer = {}
        self._live = True
        for letter in letters:
            self.letter(letter, 1)
        for mailbox in mailboxes:
            self.mailbox(mailbox, 1)

    def of(self, payer: str) -> int:
        return self._by_payer.get(payer, 0)

    def add(self, payer: str, size: int) -> None:
        """Charge `size` more; a negative one is given back. Live only."""
        left = self._by_payer.get(payer, 0) + size
        if left:
            self._by_payer[payer] = left
        else:
            self._by_payer.pop(payer, None)

    def mailbox(self, mailbox: Mailbox, sign: int) -> None:
        """A mailbox and everything in it, expectations too."""
        if self._live:
            self.add(mailbox.payer or mailbox.address, sign * MAILBOX_BYTES)
            entries: list[Entry] = []
            size = mailbox.bytes
            for part in mailbox.entries.parts():
                if isinstance(part, Parcel):
                    self.parcel(mailbox, part, sign)
                    size -= part.bytes
                else:
                    entries.append(part)
            self.entries(mailbox, entries, size, sign)
            for correlation_id in mailbox.expected:
                self.add(mailbox.address, sign * expectation_size(correlation_id))

    def entries(self, mailbox: Mailbox, entries: Sequence[Entry], size: int, sign: int) -> None:
        """Entries of a mailbox, together of this size. Live only."""
        payer: str | None = mailbox.payer
        if not payer:
            if len(entries) == 1:
                envelope = entries[0].envelope
                payer = mailbox.address if envelope.type in CONTROL_TYPES else envelope.sender
            else:
                payer = one_sender(entries)
        if payer is not None:
            by_payer = self._by_payer
            left = by_payer.get(payer, 0) + sign * (size + len(entries) * MESSAGE_BYTES)
            if left:
                by_payer[payer] = left
            else:
                by_payer.pop(payer, None)
            return
        for entry in entries:
            payer = payer_of(entry.envelope, mailbox.address, "")
            self.add(payer, sign * (entry.size + MESSAGE_BYTES))

    def parcel(self, mailbox: Mailbox, parcel: Parcel, sign: int) -> None:
        """A parcel that enters a mailbox, or is settled. Live only."""
        payer = mailbox.payer or parcel.sender
        if payer is not None:
            self.add(payer, sign * (parcel.bytes + parcel.count * MESSAGE_BYTES))
            return
        for envelope in parcel.envelopes:
            self.add(envelope.sender, sign * (envelope.size + MESSAGE_BYTES))

    def failure(self, mailbox: Mailbox, entry: Entry, more: int) -> None:
        if self._live:
            self.add(payer_of(entry.envelope, mailbox.address, mailbox.payer), more)

    def letter(self, letter: DeadLetter, sign: int) -> None:
        if self._live:
            self.add(letter.payer or letter.envelope.sender, sign * (letter.size + MESSAGE_BYTES))

    def require(self, payer: str, size: int, budget: int) -> None:
        """Raise unless `size` more bytes fit into the payer's budget; 0: no budget."""
        if budget and size and self.of(payer) + size > budget:
            raise OverBudget(
                f"the mesh keeps {self.of(payer)} bytes for {payer}, and {size} more were asked for;"
                f" the budget is {budget}"
            )

    def all(self) -> dict[str, int]:
        """A copy."""
        return dict(self._by_payer)

    def greatest(self, count: int) -> dict[str, int]:
        """The payers with the most bytes, the largest first."""
        return dict(nlargest(count, self._by_payer.items(), key=itemgetter(1)))


def payer_of(envelope: Envelope, mailbox: str, account: str) -> str:
    """The payer of a message in this mailbox. `account`: of the owner's subscriptions, if it is one."""
    if account:
        return account
    return mailbox if envelope.type in CONTROL_TYPES else envelope.sender


def one_sender(entries: Sequence[Entry]) -> str | None:
    """The payer of all of these: mostly their common sender. None when they differ."""
    senders = {entry.envelope.sender for entry in entries}
    if len(senders) != 1 or not CONTROL_TYPES.isdisjoint({entry.envelope.type for entry in entries}):
        return None
    return senders.pop()
