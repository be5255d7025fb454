"""Topics: which mailboxes a publish reaches."""

from __future__ import annotations

from collections.abc import Iterator

from relaymesh.kernel.address import pattern_matches


class Subscriptions:
    """Durable subscriptions, exact and wildcard. A route is computed once and kept until they change."""

    __slots__ = ("_patterns", "_routes", "_suspended")

    def __init__(self) -> None:
        self._patterns: dict[str, str] = {}
        self._routes: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """By topic: the mailboxes that get it, and those that would if they were not suspended."""
        self._suspended: dict[str, str] = {}

    def add(self, mailbox: str, pattern: str) -> None:
        """Also ends a suspension."""
        self._patterns[mailbox] = pattern
        self._suspended.pop(mailbox, None)
        self._routes.clear()

    def remove(self, mailbox: str) -> None:
        self._patterns.pop(mailbox, None)
        self._suspended.pop(mailbox, None)
        self._routes.clear()

    def suspend(self, mailbox: str, reason: str) -> None:
        """It gets nothing until it is resumed."""
        self._suspended[mailbox] = reason
        self._routes.clear()

    def resume(self, mailbox: str) -> None:
        self._suspended.pop(mailbox, None)
        self._routes.clear()

    def suspended(self, mailbox: str) -> str | None:
        """Why it is suspended; None while it is not."""
        return self._suspended.get(mailbox)

    def pattern_of(self, mailbox: str) -> str | None:
        return self._patterns.get(mailbox)

    def route(self, topic: str) -> tuple[str, ...]:
        """The mailboxes subscribed to `topic`, in the order in which they subscribed."""
        return self._find(topic)[0]

    def skipped(self, topic: str) -> tuple[str, ...]:
        """The mailboxes that a publish to `topic` would reach if they were not suspended."""
        return self._find(topic)[1] if self._suspended else ()

    def _find(self, topic: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = self._routes.get(topic)
        if found is None:
            matching = [box for box, pattern in self._patterns.items() if pattern_matches(pattern, topic)]
            found = (
                tuple(box for box in matching if box not in self._suspended),
                tuple(box for box in matching if box in self._suspended),
            )
            if len(self._routes) >= 10_000:
                self._routes.clear()
            self._routes[topic] = found
        return found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(mailbox, pattern), in order of subscription."""
        return iter(self._patterns.items())
