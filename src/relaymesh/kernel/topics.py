"""Topics: which mailboxes a publish reaches."""

from __future__ import annotations

from collections.abc import Iterator

from relaymesh.kernel.address import pattern_matches


class Subscriptions:
    """Durable subscriptions, exact and wildcard. A route is worked out once and kept until they change."""

    __slots__ = ("_patterns", "_routes")

    def __init__(self) -> None:
        self._patterns: dict[str, str] = {}
        self._routes: dict[str, tuple[str, ...]] = {}

    def add(self, mailbox: str, pattern: str) -> None:
        self._patterns[mailbox] = pattern
        self._routes.clear()

    def remove(self, mailbox: str) -> None:
        self._patterns.pop(mailbox, None)
        self._routes.clear()

    def pattern_of(self, mailbox: str) -> str | None:
        return self._patterns.get(mailbox)

    def route(self, topic: str) -> tuple[str, ...]:
        """The mailboxes subscribed to `topic`, in the order in which they subscribed."""
        route = self._routes.get(topic)
        if route is None:
            route = tuple(box for box, pattern in self._patterns.items() if pattern_matches(pattern, topic))
            if len(self._routes) >= 10_000:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(mailbox, pattern), in order of subscription."""
        return iter(self._patterns.items())
