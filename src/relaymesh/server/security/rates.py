"""How fast writes may come: a token bucket, and what a write costs. Pure: `now` is passed in, in seconds.

One write is one frame or request, or MESSAGES_A_WRITE messages, or BYTES_A_WRITE bytes, whichever is most.
"""

from __future__ import annotations

import msgspec

MESSAGES_A_WRITE = 25
BYTES_A_WRITE = 16_384


def cost_of(frames: int, messages: int, size: int) -> float:
    """How many writes these frames cost, with so many messages and bytes in them."""
    return max(frames, messages / MESSAGES_A_WRITE, size / BYTES_A_WRITE)


class Bucket(msgspec.Struct, gc=False):
    """Fills at `rate` a second up to `burst`. A large write may take more than is there: the next waits."""

    level: float
    at: float

    def take(self, now: float, rate: float, burst: float, cost: float = 1.0) -> float:
        """Take `cost` and return 0 if at least 1 is there. Else take nothing: return the seconds to wait."""
        level = self.level + max(0.0, now - self.at) * rate
        self.level = level = min(burst, level)
        self.at = now
        if level >= 1.0:
            self.level = level - cost
            return 0.0
        return (1.0 - level) / rate
