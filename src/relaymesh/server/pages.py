"""Long lists, shown a page at a time: bounded in rows and in bytes. The rest comes with the next page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import pending_rows
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.records import Failure

PAGE_ROWS_MAX = 1_000
PAGE_BYTES_MAX = 2_097_152
"""2 MiB. A single row always fits."""
ENTRIES_SEEN_MAX = 10_000
"""How many entries of a mailbox, from its first, can be peeked at."""
TURN = 5_000
"""Rows that are looked through without a pause."""

T = TypeVar("T")


def page(
    rows: Iterable[T],
    size: Callable[[T], int],
    *,
    rows_max: int = PAGE_ROWS_MAX,
    bytes_max: int = PAGE_BYTES_MAX,
) -> tuple[list[T], bool]:
    """The first rows, as many as fit into one page, and whether there are more."""
    taken: list[T] = []
    total = 0
    for row in rows:
        total += size(row)
        if len(taken) >= rows_max or (taken and total > bytes_max):
            return taken, True
        taken.append(row)
    return taken, False


def pending_page(mailbox: str, limit: int, after: int, kernel: Kernel) -> tuple[list[Pending], bool]:
    """Pending messages of a mailbox behind the sequence `after`, in the order of acceptance."""
    rows = pending_rows(mailbox, ENTRIES_SEEN_MAX, after, kernel)
    return page(islice(rows, limit), pending_size)


async def letters_after(
    letters: Sequence[DeadLetter], after: tuple[int, str], sees: Callable[[str], bool]
) -> list[DeadLetter]:
    """The visible dead letters after `after`, in their order. It checks them in several turns of the loop."""
    found: list[DeadLetter] = []
    seen: dict[str, bool] = {}
    for start in range(0, len(letters), TURN):
        for letter in letters[start : start + TURN]:
            mailbox = letter.mailbox
            visible = seen.get(mailbox)
            if visible is None:
                visible = seen[mailbox] = sees(mailbox)
            if visible and (letter.dead_sequence, mailbox) > after:
                found.append(letter)
        await asyncio.sleep(0)
    found.sort(key=lambda letter: (letter.dead_sequence, letter.mailbox))
    return found


def pending_size(row: Pending) -> int:
    """About how many bytes it is shown with."""
    return row.envelope.size + _failures_size(row.failures or ())


def letter_size(letter: DeadLetter) -> int:
    return letter.envelope.size + _failures_size(letter.failures)


def _failures_size(failures: Iterable[Failure]) -> int:
    return sum([len(each.reason) + len(each.stack) for each in failures])
