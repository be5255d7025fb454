"""Numbers of versions: each is given once, also after the version that had it was removed.

A task says which version it runs, and a finished one says it for as long as it is kept. So a number must not
be given to a second document.
"""

from __future__ import annotations

from collections.abc import Iterable

DIGITS_MAX = 15
"""A longer version is no number to count on from."""
GONE_MAX = 1_000
"""Removed workflows of one namespace whose numbers are kept apart. The oldest of more join the floor."""
NUMBER_MAX = 10**DIGITS_MAX - 1

NumberRow = tuple[str, str, int]
"""A namespace, a workflow and the largest number it has used; no workflow: the floor of the namespace."""


def number_of(version: str) -> int:
    """The number that a version is; 0: it is none."""
    is_number = len(version) <= DIGITS_MAX and version.isascii() and version.isdigit()
    return int(version) if is_number else 0


class Numbers:
    """The largest number that each workflow has used. A workflow that is gone is remembered, too."""

    def __init__(self) -> None:
        self._largest: dict[tuple[str, str], int] = {}
        self._gone: dict[str, dict[str, int]] = {}
        """By namespace, then by name, in the order of the removals."""
        self._floors: dict[str, int] = {}
        """By namespace: what no workflow goes below that is remembered no more."""

    def next(self, namespace: str, name: str) -> int:
        """The number of the next version; above `NUMBER_MAX`: none is left."""
        return self._used(namespace, name) + 1

    def _used(self, namespace: str, name: str) -> int:
        used = self._largest.get((namespace, name))
        if used is None:
            used = self._gone.get(namespace, {}).get(name)
        return self._floors.get(namespace, 0) if used is None else used

    def put(self, namespace: str, name: str, version: str) -> None:
        """A version is put: its workflow is there."""
        self._largest[namespace, name] = max(self._used(namespace, name), number_of(version))
        self._forget(namespace, name)

    def gone(self, namespace: str, name: str) -> None:
        """The last version of a workflow is removed."""
        used = self._largest.pop((namespace, name))
        if not used:
            return
        gone = self._gone.setdefault(namespace, {})
        gone[name] = used
        if len(gone) > GONE_MAX:
            oldest = next(iter(gone))
            self._floors[namespace] = max(self._floors.get(namespace, 0), gone.pop(oldest))

    def _forget(self, namespace: str, name: str) -> None:
        gone = self._gone.get(namespace)
        if gone is not None and gone.pop(name, None) is not None and not gone:
            del self._gone[namespace]

    # -- in a snapshot

    def rows(self) -> list[NumberRow]:
        """What a snapshot keeps."""
        rows = [(namespace, "", floor) for namespace, floor in self._floors.items()]
        rows += [(namespace, name, used) for (namespace, name), used in self._largest.items() if used]
        rows += [(space, name, used) for space, gone in self._gone.items() for name, used in gone.items()]
        return rows

    def restore(self, rows: Iterable[NumberRow]) -> None:
        """Behind the versions: a workflow without one is gone."""
        for namespace, name, used in rows:
            if not name:
                self._floors[namespace] = used
            elif (namespace, name) in self._largest:
                self._largest[namespace, name] = max(self._largest[namespace, name], used)
            else:
                self._gone.setdefault(namespace, {})[name] = used
