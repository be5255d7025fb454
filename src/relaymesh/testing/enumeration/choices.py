"""What may have become of one file's unsynced changes: byte prefixes, and pages in any order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from relaymesh.testing.enumeration.platter import Change, after, overlaid
from relaymesh.testing.enumeration.recording import Resized

__all__ = ["boundaries", "paged", "torn"]

PAGE_CHOICES_MAX = 256
"""Up to so many combinations of a file's pages all are tried; of more, the telling ones and a sample."""


def boundaries(content: bytes, changes: Sequence[Change]) -> list[bytes]:
    """The file after none of the changes, the first one, the first two …, all of them."""
    versions = [content]
    for change in changes:
        versions.append(after(versions[-1], [change]))
    return versions


def torn(
    content: bytes, changes: Sequence[Change], stride: int = 1, stale_frames: bytes = b""
) -> Iterator[bytes]:
    """All changes but the last, and of that each byte prefix; with the space allocated ahead, and without it.

    The file's size is written apart from its bytes: the last byte may be there and the size still short. And
    where nothing of the change arrived, whole frames of another file may lie, if its blocks were used again.
    """
    last = changes[-1]
    if isinstance(last, Resized):
        return
    before = after(content, changes[:-1])
    if stale_frames:
        yield overlaid(before, last.offset, stale_frames)
    for length in range(0, len(last.data), stride):
        part = overlaid(before, last.offset, last.data[:length])
        yield part
        yield part[: max(len(content), last.offset + length)]


def paged(
    content: bytes, changes: Sequence[Change], page_bytes: int, stale: bytes, rng: random.Random
) -> Iterator[bytes]:
    """Each page as it was after any of the changes, whatever the others are: the disk chose the order.

    A page that was never synced may also hold what lay in its blocks before: `stale`.
    """
    versions = boundaries(content, changes)
    size = len(versions[-1])
    pages = [
        _versions_of_page([each[at : at + page_bytes] for each in versions], page_bytes, size - at)
        for at in range(0, size, page_bytes)
    ]
    for at, page in enumerate(pages):
        place = at * page_bytes
        if place >= len(content) and len(page) > 1:
            page.insert(1, (stale * (1 + page_bytes // max(1, len(stale))))[: len(page[0])])
    for chosen in _combinations([len(page) for page in pages], rng):
        yield b"".join([page[choice] for page, choice in zip(pages, chosen, strict=True)])


def _versions_of_page(pages: list[bytes], page_bytes: int, left: int) -> list[bytes]:
    size = min(page_bytes, left)
    return list(dict.fromkeys(page.ljust(size, b"\0")[:size] for page in pages))


def _combinations(counts: Sequence[int], rng: random.Random) -> Iterator[tuple[int, ...]]:
    total = 1
    for count in counts:
        total *= count
    if total <= PAGE_CHOICES_MAX:
        yield from itertools.product(*(range(count) for count in counts))
        return
    yield from _telling(counts)
    for _ in range(PAGE_CHOICES_MAX // 2):
        yield tuple(rng.randrange(count) for count in counts)


def _telling(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """One page missing, one page there alone, and the later pages there without the earlier ones."""
    newest = [count - 1 for count in counts]
    for at, count in enumerate(counts):
        if count == 1:
            continue
        yield (*newest[:at], 0, *newest[at + 1 :])
        yield tuple(newest[i] if i == at else 0 for i in range(len(counts)))
        yield tuple(0 if i <= at else newest[i] for i in range(len(counts)))
        yield tuple(newest[i] if i <= at else 0 for i in range(len(counts)))
