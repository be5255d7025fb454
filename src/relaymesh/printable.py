"""Text that a terminal shows as it is: a message must not be able to move the cursor."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text in one line, with escapes in place of what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
