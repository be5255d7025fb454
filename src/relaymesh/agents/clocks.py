"""The clocks of one attempt: how long it may take, and how long it may be silent."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from relaymesh.agents.child import Child

__all__ = ["Clocks", "Ended", "least"]

Ended = Literal["ended", "time", "silence"]


def least(*limits: float | None) -> float | None:
    """The smallest limit that is set."""
    return min((limit for limit in limits if limit is not None), default=None)


class Clocks(msgspec.Struct, frozen=True):
    """Limits in seconds; None: no limit."""

    time_s: float | None
    silence_s: float | None

    async def until(self, child: Child, *ends: asyncio.Future[Any]) -> Ended:
        """Wait until one of `ends` is done or a limit is reached. Returns which limit, or None."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while not any(end.done() for end in ends):
            now = loop.time()
            heard = max(started, child.heard)
            time_left = None if self.time_s is None else started + self.time_s - now
            silence_left = None if self.silence_s is None else heard + self.silence_s - now
            if time_left is not None and time_left <= 0:
                return "time"
            if silence_left is not None and silence_left <= 0:
                return "silence"
            await asyncio.wait(
                ends, timeout=least(time_left, silence_left), return_when=asyncio.FIRST_COMPLETED
            )
        return "ended"

    def said(self, which: Ended) -> str:
        """The reason of a failure."""
        if which == "time":
            return f"it took longer than its limit of {self.time_s:g} s"
        return f"it wrote nothing for {self.silence_s:g} s"
