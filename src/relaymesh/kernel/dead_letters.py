"""Dead letters: settled entries kept apart, with the reason and every attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Failure

LetterStatus = Literal["pending", "redriven"]


class DeadLetter(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The original message and what became of it. Named by (mailbox, dead sequence)."""

    mailbox: str
    sequence: int
    dead_sequence: int
    at: int
    accepted_at: int
    reason: str
    envelope: Envelope
    attempts: int
    redrives: int
    failures: list[Failure]
    status: LetterStatus = "pending"

    @property
    def code(self) -> str:
        """The error code of the last failure, or the reason when nothing was ever tried."""
        return self.failures[-1].code if self.failures else self.reason


class DeadLetters:
    """All dead letters of one kernel, by mailbox and in the order in which they died."""

    __slots__ = ("_by_mailbox", "count")

    def __init__(self) -> None:
        self._by_mailbox: dict[str, dict[int, DeadLetter]] = {}
        self.count = 0

    def add(self, letter: DeadLetter) -> None:
        self._by_mailbox.setdefault(letter.mailbox, {})[letter.dead_sequence] = letter
        self.count += letter.status == "pending"

    def find(self, mailbox: str, dead_sequence: int) -> DeadLetter | None:
        return self._by_mailbox.get(mailbox, {}).get(dead_sequence)

    def mark_redriven(self, letter: DeadLetter) -> None:
        """A redriven letter stays, at its place, so that redriving it again finds it done."""
        self.count -= letter.status == "pending"
        redriven = msgspec.structs.replace(letter, status="redriven")
        self._by_mailbox[letter.mailbox][letter.dead_sequence] = redriven

    def remove(self, mailbox: str, dead_sequence: int) -> DeadLetter | None:
        letters = self._by_mailbox.get(mailbox, {})
        letter = letters.pop(dead_sequence, None)
        if letter is not None:
            self.count -= letter.status == "pending"
            if not letters:
                del self._by_mailbox[mailbox]
        return letter

    def pending_in(self, mailbox: str) -> int:
        return sum(1 for letter in self._by_mailbox.get(mailbox, {}).values() if letter.status == "pending")

    def __iter__(self) -> Iterator[DeadLetter]:
        for letters in self._by_mailbox.values():
            yield from letters.values()
