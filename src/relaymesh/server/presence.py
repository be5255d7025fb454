"""Who is there: heartbeats, and what their absence means. Volatile; a restart has heard from nobody yet.

    registered ──heard──► online ──silent for heartbeatTimeout, or said goodbye──► offline ──heard──► online
    online ──drain──► draining ──silent──► offline

| state | means |
|---|---|
| registered | it joined, and was not heard of since this node started |
| online | heard of within heartbeatTimeout |
| draining | online, and to get no new tasks |
| offline | silent for longer, or gone; its mail waits for it |
| unknown | it has no registration, and nothing was heard of it |

Anything an agent does counts as being heard of: registering, a heartbeat, a receive, a send.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PresenceState = Literal["registered", "online", "draining", "offline", "unknown"]


class Heard(msgspec.Struct, gc=False):
    """The last of an agent."""

    at: int
    status: str | None = None
    gone: bool = False


class Presence:
    """The last word of every agent. Time is passed in: mesh time, ms."""

    def __init__(self, heartbeat_timeout_ms: int) -> None:
        self._timeout_ms = heartbeat_timeout_ms
        self._heard: dict[str, Heard] = {}

    def heard(self, agent: str, now: int, status: str | None = None) -> None:
        """The agent did something. A status stays until another is given."""
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

    def state(
        self, agent: str, now: int, *, registered: bool = True, draining: bool = False
    ) -> PresenceState:
        last = self._heard.get(agent)
        if last is None:
            return "registered" if registered else "unknown"
        if last.gone or now - last.at >= self._timeout_ms:
            return "offline"
        return "draining" if draining else "online"

    def forget(self, now: int, older_than_ms: int) -> int:
        """Let go of agents that were silent for so long. Answers how many."""
        old = [agent for agent, last in self._heard.items() if now - last.at > older_than_ms]
        for agent in old:
            del self._heard[agent]
        return len(old)

    def __len__(self) -> int:
        return len(self._heard)
