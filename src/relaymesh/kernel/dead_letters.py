"""Dead letters: settled entries kept apart, with the reason and every attempt."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal

import msgspec

from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Failure, failures_size, with_failure
from relaymesh.kernel.settings import MailboxSettings

LetterStatus = Literal["pending", "redriven"]


class DeadLetter(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The original message and its failures. Named by (mailbox, dead sequence)."""

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
    payer: str = ""
    """The payer; empty for its sender."""
    redriven_as: str = ""
    """The id of the edited message that was redriven in its place; empty if there was none."""
    topic: str | None = None
    """The topic that it was published to, if it died in a subscription."""

    @property
    def code(self) -> str:
        """The error code of the last failure, or the reason when nothing was ever tried."""
        return self.failures[-1].code if self.failures else self.reason

    @property
    def size(self) -> int:
        """Its size against the mailbox's budget for dead letters."""
        return self.envelope.size + failures_size(self.failures)


def letter_of(
    mailbox: str,
    entry: Entry,
    failure: Failure | None,
    reason: str,
    dead_sequence: int,
    at: int,
    payer: str,
) -> DeadLetter:
    """The dead letter of an entry that dies, of this failure if there was one."""
    failures = entry.failures or []
    return DeadLetter(
        mailbox=mailbox,
        sequence=entry.sequence,
        dead_sequence=dead_sequence,
        at=at,
        accepted_at=entry.accepted_at,
        reason=reason,
        envelope=entry.envelope,
        attempts=entry.attempts,
        redrives=entry.redrives,
        failures=list(failures) if failure is None else with_failure(failures, failure),
        payer="" if payer == entry.envelope.sender else payer,
        topic=entry.topic,
    )


class Shelf:
    """The dead letters of one mailbox, in the order in which they died, and their totals."""

    __slots__ = ("letters", "pending", "pending_bytes", "redriven", "redriven_bytes")

    def __init__(self) -> None:
        self.letters: dict[int, DeadLetter] = {}
        self.pending = 0
        self.pending_bytes = 0
        self.redriven = 0
        self.redriven_bytes = 0

    def count(self, letter: DeadLetter, sign: int) -> None:
        if letter.status == "pending":
            self.pending += sign
            self.pending_bytes += sign * letter.size
        else:
            self.redriven += sign
            self.redriven_bytes += sign * letter.size

    def room_for(self, letters: int, size: int, settings: MailboxSettings) -> bool:
        """Whether so many more may be pending. Redriven letters do not count: they make room."""
        return (
            self.pending + letters <= settings.dead_letters_max
            and self.pending_bytes + size <= settings.dead_letter_bytes_max
        )

    def full(self, settings: MailboxSettings) -> bool:
        return (
            self.pending >= settings.dead_letters_max or self.pending_bytes >= settings.dead_letter_bytes_max
        )

    def surplus(self, settings: MailboxSettings) -> list[int]:
        """The oldest redriven letters that must be removed so that the rest fits the budget."""
        count = self.pending + self.redriven - settings.dead_letters_max
        size = self.pending_bytes + self.redriven_bytes - settings.dead_letter_bytes_max
        gone: list[int] = []
        if not self.redriven or (count <= 0 and size <= 0):
            return gone
        for letter in self.letters.values():
            if count <= 0 and size <= 0:
                break
            if letter.status == "redriven":
                gone.append(letter.dead_sequence)
                count -= 1
                size -= letter.size
        return gone


_NONE = Shelf()


class DeadLetters:
    """All dead letters of one kernel, by mailbox and in the order in which they died."""

    __slots__ = ("_by_mailbox", "count")

    def __init__(self) -> None:
        self._by_mailbox: dict[str, Shelf] = {}
        self.count = 0

    def add(self, letter: DeadLetter) -> None:
        shelf = self._by_mailbox.get(letter.mailbox)
        if shelf is None:
            shelf = self._by_mailbox[letter.mailbox] = Shelf()
        shelf.letters[letter.dead_sequence] = letter
        shelf.count(letter, 1)
        self.count += letter.status == "pending"

    def of(self, mailbox: str) -> Shelf:
        """The letters of one mailbox, read only."""
        return self._by_mailbox.get(mailbox, _NONE)

    def find(self, mailbox: str, dead_sequence: int) -> DeadLetter | None:
        return self.of(mailbox).letters.get(dead_sequence)

    def older(
        self,
        before: int,
        count: int,
        size: int,
        mailbox: str | None = None,
        kept: Container[tuple[str, int]] = (),
    ) -> list[DeadLetter]:
        """Letters that died before this time, mailbox by mailbox: at most `count`, and about `size` bytes.

        `mailbox`: only there. `kept`: letters, by name, that are passed over.
        """
        found: list[DeadLetter] = []
        for shelf in self._by_mailbox.values() if mailbox is None else (self.of(mailbox),):
            for letter in shelf.letters.values():
                if letter.at >= before:
                    break  # they are in the order in which they died
                if len(found) >= count or size <= 0:
                    return found
                if (letter.mailbox, letter.dead_sequence) not in kept:
                    found.append(letter)
                    size -= letter.size
        return found

    def mailboxes(self) -> list[str]:
        """Those that have dead letters."""
        return list(self._by_mailbox)

    def mark_redriven(self, letter: DeadLetter, id: str) -> None:
        """A redriven letter stays in its place, so that a second redrive finds it done.

        `id`: the id under which its message was redriven.
        """
        self.count -= letter.status == "pending"
        redriven = msgspec.structs.replace(
            letter, status="redriven", redriven_as="" if id == letter.envelope.id else id
        )
        shelf = self._by_mailbox[letter.mailbox]
        shelf.letters[letter.dead_sequence] = redriven
        shelf.count(letter, -1)
        shelf.count(redriven, 1)

    def remove(self, mailbox: str, dead_sequence: int) -> DeadLetter | None:
        shelf = self.of(mailbox)
        letter = shelf.letters.pop(dead_sequence, None)
        if letter is not None:
            shelf.count(letter, -1)
            self.count -= letter.status == "pending"
            if not shelf.letters:
                del self._by_mailbox[mailbox]
        return letter

    def __iter__(self) -> Iterator[DeadLetter]:
        for shelf in self._by_mailbox.values():
            yield from shelf.letters.values()
