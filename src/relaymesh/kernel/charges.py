"""Charges: how many bytes of memory the mesh keeps for whom.

Every message is charged from its acceptance until it is settled, and every dead letter until it is purged:
its content, its `extra`, the failures kept with it, and `MESSAGE_BYTES` for the rest. The sender pays, with
two exceptions. The copies in an agent's subscription are charged to the account of that agent's
subscriptions: it alone decides how many there are, and no publisher could know. A notice (`ack`, `nack`) is
charged to the mailbox it lies in: its sender had no choice. A mailbox, and each correlation id that it
expects, are charged as well.

The ledger is volatile. It is made anew from the state when a replay is over, and counts nothing before.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import OverBudget
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import CONTROL_TYPES, Envelope

MESSAGE_BYTES = 512
"""What a message takes beside its content: its fields, its places in tables, its id in dedup."""
MAILBOX_BYTES = 4_096
"""What a mailbox or a subscription takes."""
EXPECTATION_BYTES = 512
"""What an expected correlation id takes beside its text, of 4 bytes a character."""


def expectation_size(correlation_id: str) -> int:
    return EXPECTATION_BYTES + 4 * len(correlation_id)


def subscriptions_of(owner: str) -> str:
    """The account of an agent's subscriptions. No address looks like it."""
    return f"subscriptions of {owner}"


class Charges:
    """Bytes by the address that pays for them."""

    __slots__ = ("_by_payer",)

    def __init__(self) -> None:
        self._by_payer: dict[str, int] = {}

    def of(self, payer: str) -> int:
        return self._by_payer.get(payer, 0)

    def add(self, payer: str, size: int) -> None:
        """Charge `size` more; a negative one is given back."""
        left = self._by_payer.get(payer, 0) + size
        if left:
            self._by_payer[payer] = left
        else:
            self._by_payer.pop(payer, None)

    def require(self, payer: str, size: int, budget: int) -> None:
        """Raise unless `size` more fit into the payer's budget; 0 is no budget."""
        if budget and self.of(payer) + size > budget:
            raise OverBudget(
                f"the mesh keeps {self.of(payer)} bytes for {payer}, and {size} more were asked for;"
                f" the budget is {budget}"
            )

    def all(self) -> dict[str, int]:
        """A copy, the greatest first."""
        return dict(sorted(self._by_payer.items(), key=lambda row: (-row[1], row[0])))


def payer_of(envelope: Envelope, mailbox: str, account: str) -> str:
    """Who pays for a message in this mailbox. `account`: of the owner's subscriptions, if it is one."""
    if account:
        return account
    return mailbox if envelope.type in CONTROL_TYPES else envelope.sender


def one_sender(entries: Sequence[Entry]) -> str | None:
    """Who pays for all of these, as it mostly is: their sender. None when they must be asked one by one."""
    senders = {entry.envelope.sender for entry in entries}
    if len(senders) != 1 or not CONTROL_TYPES.isdisjoint({entry.envelope.type for entry in entries}):
        return None
    return senders.pop()
