"""What handlers raised, for a test that is to fail with it."""

from __future__ import annotations

from relaymesh.kernel.bounds import flag


class Raised:
    """Errors of handlers, in order, until a call of the test raises them. Without `wanted` none is kept."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = flag(wanted, "raise_errors")
        self._errors: list[Exception] = []

    def note(self, error: Exception) -> None:
        if self._wanted:
            self._errors.append(error)

    def throw(self) -> None:
        """Raise the first of them; a note names the others."""
        if self._errors:
            first, *others = self._errors
            self._errors = []
            if others:
                first.add_note(f"{len(others)} more raised by handlers: {', '.join(map(repr, others))}")
            raise first
