"""The rate of large bodies, frames and answers of all connections together. Pure: `now` is in seconds.

Moving a megabyte costs the event loop about two milliseconds, and checking it six, whether or not it is
refused later. A connection that sends little is never delayed. One that sends more than `SMALL_BYTES` in a
tenth of a second is bulk, and so is a long answer: they share `rate` bytes a second.

Bulk yields to others. Where a credential that sends no bulk uses the server, bulk begins with a quarter of
the rate. While the loop is late, the rate is halved every `FEEL_S`, down to a 64th; while it is in time, the
rate grows again. Where all send bulk, all of the rate is theirs.
"""

from __future__ import annotations

from relaymesh.server.security.accounts import Account

WINDOW_S = 0.1
SMALL_BYTES = 65_536
"""What a connection may send in one window before it is bulk: a batch of 100 messages fits in."""
AHEAD_S = 0.05
"""How far ahead of its rate bulk may be: shorter pauses are not made."""
FEEL_S = 0.02
LATE_S = 0.01
"""How late the loop may be before bulk yields: several turns make one message, and a person waits for it."""
EASE_AT_FIRST = 1 / 4
EASE_MIN = 1 / 64
EASE_STEP = 1 / 256
LATELY_S = 1.0


class Bulk:
    """The rate of one server."""

    __slots__ = ("_bulky", "_ease", "_modest_at", "_paid_until", "_rate", "_seen_at")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._paid_until = 0.0
        """When everything so far is paid for."""
        self._ease = EASE_AT_FIRST
        """What is left of the rate while bulk yields."""
        self._bulky: dict[Account | None, float] = {}
        """Credentials that sent bulk lately, and when they last did."""
        self._seen_at = self._modest_at = float("-inf")

    @property
    def rate(self) -> float:
        """Bytes a second at this moment."""
        return self._rate * self._ease

    def pause_s(self, size: int, now: float, account: Account | None) -> float:
        """Count these bytes of bulk. Returns how long their connection must not be read."""
        if not self._rate:
            return 0.0
        self._seen_at = self._bulky[account] = now
        self._paid_until = max(self._paid_until, now) + size / self.rate
        ahead = self._paid_until - now
        return ahead if ahead > AHEAD_S else 0.0

    def modest(self, now: float, account: Account) -> None:
        """A credential sent something that is not bulk."""
        if account not in self._bulky:
            self._modest_at = now

    def felt(self, late_s: float, now: float) -> bool:
        """The loop was this late. Returns whether to measure again: not if no bulk has come for a while."""
        self._bulky = {each: at for each, at in self._bulky.items() if now - at < LATELY_S}
        if now - self._modest_at >= LATELY_S:
            self._ease = 1.0
        elif late_s > LATE_S:
            self._ease = max(EASE_MIN, self._ease / 2)
        else:
            self._ease = min(1.0, self._ease + EASE_STEP)
        if now - self._seen_at < LATELY_S:
            return True
        self._ease = EASE_AT_FIRST
        return False


class Window:
    """What one connection sent lately."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = 0
        self._ends = 0.0

    def bulk_of(self, size: int, now: float) -> int:
        """How many of these bytes are bulk."""
        if now >= self._ends:
            self._ends = now + WINDOW_S
            self._bytes = 0
        self._bytes += size
        return max(0, min(size, self._bytes - SMALL_BYTES))
