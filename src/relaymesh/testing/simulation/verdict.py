"""A violation: the name of the invariant that does not hold, and what was seen."""

from __future__ import annotations


class Violation(Exception):
    """An invariant does not hold. `trace` holds the last lines before it was noticed."""

    def __init__(self, invariant: str, seen: str) -> None:
        super().__init__(f"{invariant}: {seen}")
        self.invariant = invariant
        self.seen = seen
        self.seed: int | None = None
        self.trace: list[str] = []

    def __reduce__(self) -> tuple[object, ...]:
        """It travels between processes."""
        state = {"seed": self.seed, "trace": self.trace}
        return Violation, (self.invariant, self.seen), state
