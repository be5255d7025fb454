"""How many writes a credential may make: a token bucket each. Pure: `now` is passed in, in seconds."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

CREDENTIALS_MAX = 10_000


class Bucket(msgspec.Struct, gc=False):
    """Fills at `rate` a second up to `burst`; a write takes one."""

    level: float
    at: float

    def take(self, now: float, rate: float, burst: float) -> float:
        """Take one and answer 0, or take nothing and answer after how many seconds there will be one."""
        self.level = min(burst, self.level + max(0.0, now - self.at) * rate)
        self.at = now
        if self.level >= 1.0:
            self.level -= 1.0
            return 0.0
        return (1.0 - self.level) / rate


class WriteRates:
    """A bucket for each credential, the longest unused forgotten first: a full one is no loss."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, credential: str, now: float) -> float:
        """Seconds to wait before the next write is taken; 0 when this one was. A rate of 0 is no limit."""
        if self._rate <= 0:
            return 0.0
        bucket = self._buckets.get(credential)
        if bucket is None:
            bucket = self._buckets[credential] = Bucket(self._burst, now)
            if len(self._buckets) > CREDENTIALS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(credential)
        return bucket.take(now, self._rate, self._burst)
