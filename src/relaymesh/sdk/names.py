"""Names as callers write them: a plain name is in the namespace of the session."""

from __future__ import annotations

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.address import (
    DEFAULT_NAMESPACE,
    agent_address,
    pattern_address,
    subscription_address,
    topic_address,
)
from relaymesh.kernel.bounds import plain_text

KNOWN_MAX = 10_000


class Names:
    """From names to full addresses; each method raises `InvalidEnvelope` for an invalid name."""

    __slots__ = ("_known", "_namespace")

    def __init__(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._namespace = namespace
        self._known: dict[str, str] = {}
        """Agents that were named before: a sender names a few, again and again."""

    def agent(self, name: str, what: str = "agent name") -> str:
        if name.__class__ is not str:
            return agent_address(self._full(name), what)
        address = self._known.get(name)
        if address is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            address = self._known[name] = agent_address(self._full(name), what)
        return address

    def mailbox(self, name: str, what: str = "mailbox") -> str:
        """An agent's, or `pattern:name` of a subscription."""
        pattern, colon, subscription = plain_text(name, what, InvalidEnvelope).partition(":")
        return self.subscription(pattern, subscription) if colon else self.agent(name, what)

    def topic(self, topic: str) -> str:
        return topic_address(self._full(topic))

    def pattern(self, pattern: str) -> str:
        return pattern_address(self._full(pattern))

    def subscription(self, pattern: str, name: str) -> str:
        return subscription_address(self._full(pattern), name)

    def _full(self, name: str) -> str:
        if self._namespace == DEFAULT_NAMESPACE:
            return name
        plain = plain_text(name, "name", InvalidEnvelope)
        return plain if not plain or "/" in plain else f"{self._namespace}/{plain}"
