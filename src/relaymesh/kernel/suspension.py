"""Suspension: a subscription whose dead letters are full gets nothing until they are redriven or purged.

The publish that it could not take suspends it, by a record, so that a replay routes as the live mesh did. The
first publish that finds it relieved resumes it: its pending dead letters are at most half of their budget,
and so is what its owner pays for. No timer is needed: before that publish there was nothing to get. Changing
a subscription resumes it as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import DeadLettersFull
from relaymesh.kernel.address import name_of
from relaymesh.kernel.charges import MESSAGE_BYTES
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import Resumed, Suspended
from relaymesh.kernel.state import State
from relaymesh.kernel.step import SubscriptionMoved

DEAD_LETTERS_FULL = "dead_letters_full"
OVER_BUDGET = "over_budget"


class Look:
    """Checks, one subscription after the other, whether each can take these messages."""

    def __init__(self, state: State, new: Sequence[Envelope]) -> None:
        self._state = state
        self._new = new
        self._asked: dict[str, int] = {}
        """What the subscriptions checked so far will cost, by payer."""
        self.size = size_of(new)

    def obstacle(self, mailbox: Mailbox) -> str:
        """Why it must be suspended; empty if it need not be. Raises for a subscription that rejects."""
        if mailbox.payer and mailbox.owner_budget:
            asked = self._asked.get(mailbox.payer, 0) + self.size + len(self._new) * MESSAGE_BYTES
            if self._state.charges.of(mailbox.payer) + asked > mailbox.owner_budget:
                return OVER_BUDGET
            self._asked[mailbox.payer] = asked
        if self._state.letters.count and self._state.letters.of(mailbox.address).full(mailbox.settings):
            if mailbox.settings.overflow == "reject":
                raise dead_letters_full(mailbox)
            return DEAD_LETTERS_FULL
        return "" if mailbox.room_for(len(self._new), self.size) else self._overflow(mailbox)

    def _overflow(self, mailbox: Mailbox) -> str:
        """It is full. If it dead-letters what it cannot take, the dead letters must find room."""
        if mailbox.settings.overflow == "reject":
            return ""
        over = self._new[mailbox.fit(self._new) :]
        letters = self._state.letters.of(mailbox.address)
        return "" if letters.room_for(len(over), size_of(over), mailbox.settings) else DEAD_LETTERS_FULL

    def relieved(self, mailbox: Mailbox) -> bool:
        settings, letters = mailbox.settings, self._state.letters.of(mailbox.address)
        paid = self._state.charges.of(mailbox.payer) if mailbox.payer and mailbox.owner_budget else 0
        return (
            2 * paid <= mailbox.owner_budget
            and 2 * letters.pending <= settings.dead_letters_max
            and 2 * letters.pending_bytes <= settings.dead_letter_bytes_max
        )


def suspend(decision: Decision, mailbox: Mailbox, reason: str) -> None:
    decision.emit(Suspended(1, decision.now, mailbox.address, reason))
    _tell(decision, SubscriptionMoved(mailbox.address, reason))


def resume(decision: Decision, mailbox: Mailbox) -> None:
    decision.emit(Resumed(1, decision.now, mailbox.address))
    _tell(decision, SubscriptionMoved(mailbox.address, ""))


def _tell(decision: Decision, moved: SubscriptionMoved) -> None:
    if decision.step.moved is None:
        decision.step.moved = []
    decision.step.moved.append(moved)


def dead_letters_full(mailbox: Mailbox) -> DeadLettersFull:
    settings = mailbox.settings
    return DeadLettersFull(
        f"mailbox {mailbox.address} has as many dead letters as it may keep:"
        f" {settings.dead_letters_max}, or {settings.dead_letter_bytes_max} bytes",
        hint=f"look at them: relaymesh dlq list --receiver {name_of(mailbox.address)}; then"
        " relaymesh dlq redrive or dlq purge, or raise dead_letters_max or dead_letter_bytes_max",
    )
