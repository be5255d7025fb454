"""The unsettled messages of one mailbox: entries, and parcels of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from relaymesh.kernel.entry import Entry
from relaymesh.kernel.parcel import CUT_MIN, Parcel, Part


class Entries:
    """By sequence, in the order of arrival. Reading unpacks nothing; `take_out` does."""

    __slots__ = ("__weakref__", "by_sequence")

    def __init__(self) -> None:
        self.by_sequence: dict[int, Part] = {}
        """A parcel is listed here once for each of its messages."""

    def __len__(self) -> int:
        return len(self.by_sequence)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self.by_sequence

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_sequence)

    # -- looking ------------------------------------------------------------------------------

    def __getitem__(self, sequence: int) -> Part:
        return self.by_sequence[sequence]

    def get(self, sequence: int) -> Part | None:
        return self.by_sequence.get(sequence)

    def alone(self, sequence: int) -> Entry | None:
        """The entry, if it exists and is in no parcel."""
        item = self.by_sequence.get(sequence)
        return item if isinstance(item, Entry) else None

    def look(self, sequence: int) -> Entry | None:
        """An entry, read only."""
        item = self.by_sequence.get(sequence)
        return item.look(sequence) if isinstance(item, Parcel) else item

    def values(self) -> Iterator[Entry]:
        """All entries, read only, one after the other."""
        for sequence, item in self.by_sequence.items():
            yield item if isinstance(item, Entry) else item.look(sequence)

    def every(self) -> list[Entry]:
        """All entries at once, read only."""
        if self._holds_parcels():
            return list(self.values())
        return cast("list[Entry]", list(self.by_sequence.values()))

    def parts(self) -> list[Part]:
        """Entries and parcels, in the order of arrival, each once."""
        parts = self.by_sequence.values()
        return list(dict.fromkeys(parts) if self._holds_parcels() else parts)

    def _holds_parcels(self) -> bool:
        return Parcel in set(map(type, self.by_sequence.values()))

    # -- coming and going ---------------------------------------------------------------------

    def __setitem__(self, sequence: int, entry: Entry) -> None:
        self.by_sequence[sequence] = entry

    def __delitem__(self, sequence: int) -> None:
        del self.by_sequence[sequence]

    def enter(self, parcel: Parcel) -> None:
        self.by_sequence.update(dict.fromkeys(parcel.sequences, parcel))

    def leave(self, parcel: Parcel) -> None:
        by_sequence = self.by_sequence
        for sequence in parcel.sequences:
            del by_sequence[sequence]

    # -- taking apart -------------------------------------------------------------------------

    def take_out(self, sequence: int) -> Entry:
        """The entry itself, to be changed: its parcel is unpacked."""
        item = self.by_sequence[sequence]
        if not isinstance(item, Entry):
            item.unpack()
            item = self.by_sequence[sequence]
            assert isinstance(item, Entry)
        return item

    def unpack(self, *, waiting: bool) -> list[Part]:
        """Unpack leased parcels, and waiting ones if asked to. Returns all parts, in the order of arrival."""
        parts = self.parts()
        parcels = [part for part in parts if isinstance(part, Parcel) and (waiting or part.leased)]
        for parcel in parcels:
            parcel.unpack()
        return self.parts() if parcels else parts

    def ready_parts(self, sequences: list[int]) -> list[Part]:
        """What waits under these sequences: parcels, or fronts of parcels, that they name in order."""
        return self._parts(sequences, leased=False)

    def leased_parts(self, sequences: list[int]) -> list[Part]:
        """What is leased under these sequences: parcels that they name whole and in order."""
        return self._parts(sequences, leased=True)

    def _parts(self, sequences: list[int], *, leased: bool) -> list[Part]:
        by_sequence = self.by_sequence
        parts: list[Part] = []
        start, end = 0, len(sequences)
        while start < end:
            item = by_sequence[sequences[start]]
            if isinstance(item, Entry):
                parts.append(item)
            else:
                count = min(item.count, end - start)
                whole = count == item.count
                named = sequences[start : start + count] == list(item.sequences[:count])
                if named and item.leased is leased and (whole or (not leased and count >= CUT_MIN)):
                    parts.append(item if whole else item.cut(count))
                    start += count
                    continue
                parts.append(self.take_out(sequences[start]))
            start += 1
        return parts


def entries_of(parts: Iterable[Part], home: Entries) -> list[Entry]:
    """Each of these messages as an entry: parcels are unpacked."""
    return [home.take_out(sequence) for sequence in sequences_of(parts)]


def sequences_of(parts: Iterable[Part]) -> list[int]:
    sequences: list[int] = []
    for part in parts:
        if isinstance(part, Entry):  # a tuple for each would cost more than all the rest here
            sequences.append(part.sequence)
        else:
            sequences += part.sequences
    return sequences


def runs_of(parts: Iterable[Part]) -> Iterator[list[Entry] | Parcel]:
    """Each parcel alone, and the entries between two parcels as one list."""
    run: list[Entry] = []
    for part in parts:
        if isinstance(part, Entry):
            run.append(part)
            continue
        if run:
            yield run
            run = []
        yield part
    if run:
        yield run


def count_of(parts: Iterable[Part]) -> int:
    """The number of messages in these."""
    return sum([part.count for part in parts])
