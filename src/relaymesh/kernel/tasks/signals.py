"""Signals of a task: kept until a step waits for one of their name, each id once."""

from __future__ import annotations

import msgspec

SIGNALS_MAX = 100
"""Signals that a task keeps before a step waits for them."""
SIGNAL_IDS_MAX = 10_000
"""Ids that a task remembers: a signal that is sent again counts once."""
SIGNAL_BYTES = 256
"""Memory of a signal, without its texts and its value."""
ID_BYTES = 64
"""Memory of a remembered id, without its text."""


class Signal(msgspec.Struct, array_like=True, frozen=True, gc=False):
    name: str
    id: str
    value: bytes

    @property
    def size(self) -> int:
        return SIGNAL_BYTES + len(self.name) + len(self.id) + len(self.value)


class Signals:
    """In the order in which they came."""

    __slots__ = ("ids", "kept", "size")

    def __init__(self, kept: list[Signal] | None = None, ids: list[str] | None = None) -> None:
        self.kept: list[Signal] = list(kept or ())
        self.ids: dict[str, None] = dict.fromkeys(ids or ())
        """Of all that came, also of those that were taken."""
        self.size = sum([signal.size for signal in self.kept]) + sum([ID_BYTES + len(id) for id in self.ids])

    def add(self, signal: Signal) -> None:
        self.kept.append(signal)
        self.ids[signal.id] = None
        self.size += signal.size + ID_BYTES + len(signal.id)

    def first(self, name: str) -> Signal | None:
        return next((signal for signal in self.kept if signal.name == name), None)

    def take(self, name: str) -> Signal | None:
        """Remove and return the first signal of this name."""
        signal = self.first(name)
        if signal is not None:
            self.kept.remove(signal)
            self.size -= signal.size
        return signal
