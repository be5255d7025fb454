"""Presence: which agents are online, by their heartbeats. Volatile: a restart forgets it.

    registered ──heard──► online ──silent for heartbeatTimeout, or said goodbye──► offline ──heard──► online
    online ──drain──► draining ──silent──► offline

| state | means |
|---|---|
| registered | it joined, and was not heard of since this node started |
| online | heard of within heartbeatTimeout |
| draining | online, and to get no new tasks |
| offline | silent for longer, or gone; its mail waits for it |
| unknown | it has no registration, and nothing was heard of it |

Anything an agent does counts as being heard of: registering, a heartbeat, a receive, a send. On a WebSocket
a heartbeat is one of every agent that registered, sent or received there, and of those it names in `agents`;
`goodbye` makes them offline at once, except those that are on another connection too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PresenceState = Literal["registered", "online", "draining", "offline", "unknown"]


class Heard(msgspec.Struct, gc=False):
    """The last sign of life of an agent."""

    at: int
    status: str | None = None
    gone: bool = False


class Presence:
    """The last sign of life of every agent. The caller passes the time: mesh time, in ms."""

    def __init__(self, heartbeat_timeout_ms: int) -> None:
        self.timeout_ms = heartbeat_timeout_ms
        self._heard: dict[str, Heard] = {}

    def heard(self, agent: str, now: int, status: str | None = None) -> None:
        """The agent did something. Its status stays until another one is given."""
        last = self._heard.get(agent)
        if last is None:
            self._heard[agent] = Heard(now, status)
            return
        last.at, last.gone = max(last.at, now), False
        if status is not None:
            last.status = status

    def gone(self, agent: str, now: int) -> None:
        """The agent said goodbye: it is offline at once."""
        last = self._heard.get(agent)
        if last is not None:
            last.at, last.gone = max(last.at, now), True

    def last_heard(self, agent: str) -> int | None:
        last = self._heard.get(agent)
        return None if last is None else last.at

    def status(self, agent: str) -> str | None:
        last = self._heard.get(agent)
        return None if last is None else last.status

    def offline(self, now: int) -> list[str]:
        """The agents that were heard of and are silent now, or said goodbye. Any thread may ask."""
        return [
            agent
            for agent, last in self._heard.copy().items()
            if last.gone or now - last.at >= self.timeout_ms
        ]

    def state(
        self, agent: str, now: int, *, registered: bool = True, draining: bool = False
    ) -> PresenceState:
        last = self._heard.get(agent)
        if last is None:
            return "registered" if registered else "unknown"
        if last.gone or now - last.at >= self.timeout_ms:
            return "offline"
        return "draining" if draining else "online"
