"""How much goes into one answer. The rest comes with the next."""

from __future__ import annotations

from collections.abc import Iterable

ANSWER_BYTES_MAX = 8_388_608
"""Content of messages in one answer (8 MiB). A single message always fits."""


def portion(sizes: Iterable[int], most: int = ANSWER_BYTES_MAX) -> int:
    """How many of these, from the first, go into one answer: at least one if there are any."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count
