"""Which idempotency keys the store may have: most submits bring a new one, and need not ask SQLite.

A Bloom filter: a no is certain, a yes is looked up. With 100,000 keys one new key in 400 is looked up in
vain, with a million nearly every second one; it is then as slow as without the filter, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

BITS = 21
"""Each key sets three bits of 2 ** 21: 256 KiB of memory."""
_LOW = (1 << BITS) - 1


class KeyFilter:
    """Keys with their namespaces. One thread adds; any thread may ask."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray(1 << BITS >> 3)

    def add(self, keys: Iterable[tuple[str, str]]) -> None:
        bits = self._bits
        for name in keys:
            for place in _places(name):
                bits[place >> 3] |= 1 << (place & 7)

    def may_have(self, namespace: str, key: str) -> bool:
        bits = self._bits
        return all([bits[place >> 3] >> (place & 7) & 1 for place in _places((namespace, key))])  # noqa: C419


def _places(name: tuple[str, str]) -> tuple[int, int, int]:
    mixed = hash(name)
    return mixed & _LOW, mixed >> BITS & _LOW, mixed >> 2 * BITS & _LOW
