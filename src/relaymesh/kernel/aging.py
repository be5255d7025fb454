"""Dead letters by age: which ones retention removes, and which of them a task still waits for."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.looks import Looked

__all__ = ["AgedLetters", "aged_letters", "letter_mailboxes", "old_letters"]


class AgedLetters(msgspec.Struct, frozen=True):
    """Old dead letters of one mailbox in numbers. `waiting`: those of them whose steps wait, in `tasks`."""

    count: int = 0
    bytes: int = 0
    oldest: int = 0
    newest: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    tasks: frozenset[str] = frozenset()


def letter_mailboxes(of: Looked) -> list[str]:
    """Mailboxes that have dead letters."""
    return of.state.letters.mailboxes()


def old_letters(
    before: int, mailbox: str | None, count: int, size: int, including_steps: bool, of: Looked
) -> list[DeadLetter]:
    """Letters that died before a time: at most `count`, about `size` bytes. Those of waiting steps only if
    `including_steps`: removing one fails its step.
    """
    kept = () if including_steps else of.state.board.letters
    return of.state.letters.older(before, count, size, mailbox, kept)


def aged_letters(mailbox: str, before: int, including_steps: bool, of: Looked) -> AgedLetters:
    """What `old_letters` finds in one mailbox, in numbers. `waiting` is counted in any case."""
    count = size = waiting = waiting_size = oldest = newest = 0
    tasks: set[str] = set()
    steps = of.state.board.letters
    for letter in of.state.letters.of(mailbox).letters.values():
        if letter.at >= before:
            break
        link = steps.get((mailbox, letter.dead_sequence))
        if link is not None:
            waiting += 1
            waiting_size += letter.size
            tasks.add(link.task.id)
            if not including_steps:
                continue
        count += 1
        size += letter.size
        oldest = oldest or letter.at
        newest = letter.at
    return AgedLetters(count, size, oldest, newest, waiting, waiting_size, frozenset(tasks))
