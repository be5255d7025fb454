"""The circuit breaker of one mailbox: while a receiver fails, its messages wait and lose no attempts.

    closed      deliveries go out; their outcomes are counted
    open        nothing is delivered; messages wait, attempts unchanged, TTL running
    half-open   a few deliveries go out as probes: enough successes close it, one failure opens it again

Two rules open it. The slow rule: in every tenth of the window more than `breaker_retry_rate` of the outcomes
were failures, and the window held `breaker_min_outcomes`. The quick rule: `breaker_failures` failures in a
row, without a success between them.

Volatile: a restart begins closed, with an empty window. The caller passes the time in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Literal

from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.settings import MailboxSettings

BreakerState = Literal["closed", "open", "half-open"]

TENTHS = 10
"""Parts of a window. Each must be above the limit, so that one burst does not open the breaker."""
WAIT_DOUBLINGS = 3
"""A failed probe doubles the wait, up to 2^3 times `breaker_open_ms`."""


class Breaker:
    """Counts outcomes and decides what may go out. `gate.py` calls it and acts on the answers."""

    __slots__ = (
        "_above",
        "_expired_at",
        "_past",
        "_reopened",
        "_run",
        "_settings",
        "_tenth",
        "_tenth_ends",
        "failures",
        "opened",
        "outcomes",
        "passed",
        "probes",
        "state",
        "until",
        "why",
    )

    def __init__(self, settings: MailboxSettings) -> None:
        self._settings = settings
        self._tenth = max(1, settings.breaker_window_ms // TENTHS)
        self.state: BreakerState = "closed"
        self.until = 0
        """While open: when it lets probes out. `NEVER` if an operator opened it."""
        self.why = ""
        """Why it opened."""
        self.opened = 0
        """How often it has opened."""
        self.probes: set[int] = set()
        """Tokens of the probes that are out, or that were granted to a receiver that never got them."""
        self._forget()

    def _forget(self) -> None:
        """Begin with an empty window."""
        self.outcomes = self.failures = 0
        """Counts of the current tenth."""
        self._past: deque[tuple[int, int]] = deque(maxlen=TENTHS)
        """Outcomes and failures of the earlier tenths."""
        self._above = 0
        """How many tenths in a row were above the limit."""
        self._tenth_ends = 0
        self._run = 0
        self._expired_at = -1
        self._reopened = 0
        """How many probes in a row have failed."""
        self._await_probes()

    def _await_probes(self) -> None:
        self.passed = 0
        self.probes.clear()

    # -- outcomes while closed ----------------------------------------------------------------

    def succeeded(self, now: int, count: int) -> None:
        if now >= self._tenth_ends:
            self._turn(now)
        self._run = 0
        self.outcomes += count

    def failed(self, now: int, *, expired: bool) -> str:
        """Count a failure. Returns why the breaker must open now; an empty text if it need not.

        Leases that expire at the same moment count as one failure in a row: one holder fell silent, however
        many deliveries it had.
        """
        if now >= self._tenth_ends:
            self._turn(now)
        self.outcomes += 1
        self.failures += 1
        if not expired or now != self._expired_at:
            self._run += 1
        if expired:
            self._expired_at = now
        settings = self._settings
        if not settings.breaker:
            return ""
        if settings.breaker_failures and self._run >= settings.breaker_failures:
            return f"{self._run} deliveries failed in a row"
        if self._above >= TENTHS and sum([tenth[0] for tenth in self._past]) >= settings.breaker_min_outcomes:
            minutes = settings.breaker_window_ms / 60_000
            return f"more than {settings.breaker_retry_rate:.1%} of the deliveries failed for {minutes:g} min"
        return ""

    def _turn(self, now: int) -> None:
        """Close the current tenth, and any further tenths without outcomes."""
        above = self.failures > self._settings.breaker_retry_rate * self.outcomes
        self._past.append((self.outcomes, self.failures))
        quiet = min((now - self._tenth_ends) // self._tenth, TENTHS)
        self._past.extend([(0, 0)] * quiet)
        self._above = self._above + 1 if above and not quiet else 0
        self.outcomes = self.failures = 0
        self._tenth_ends = now - now % self._tenth + self._tenth

    def retry_rate(self, now: int) -> float:
        """Failures per outcome in the window that ends now."""
        tenths = [*self._past, (self.outcomes, self.failures)]
        over = max(0, now - self._tenth_ends + self._tenth) // self._tenth
        recent = tenths[max(0, len(tenths) + over - TENTHS - 1) :]
        outcomes = sum([tenth[0] for tenth in recent])
        return sum([tenth[1] for tenth in recent]) / outcomes if outcomes else 0.0

    # -- open, half-open, closed --------------------------------------------------------------

    def open(self, now: int, why: str) -> None:
        """Let nothing out until `until`; the wait grows with each failed probe."""
        self._reopened = self._reopened + 1 if self.state == "half-open" else 0
        doublings = min(self._reopened, WAIT_DOUBLINGS)
        self._open(now + (self._settings.breaker_open_ms << doublings), why)

    def hold(self) -> None:
        """Open until an operator closes it."""
        self._open(NEVER, "by hand")

    def _open(self, until: int, why: str) -> None:
        self._await_probes()
        self.state, self.until, self.why = "open", until, why
        self.opened += 1

    def try_out(self) -> None:
        """The wait is over: let probes out."""
        self.state = "half-open"

    def close(self) -> None:
        self._forget()
        self.state, self.until, self.why = "closed", 0, ""

    def allowance(self, held: Container[int]) -> int:
        """How many deliveries may go out while it is not closed. `held`: the tokens of all leases."""
        if self.state == "open":
            return 0
        self.probes = {token for token in self.probes if token in held}
        return max(0, self._settings.breaker_probes - len(self.probes))

    def probe_passed(self, token: int) -> bool:
        """Returns whether this was a probe; deliveries from before the breaker opened prove nothing."""
        if self.state != "half-open" or token not in self.probes:
            return False
        self.probes.discard(token)
        self.passed += 1
        return True

    @property
    def proven(self) -> bool:
        """Whether enough probes have passed to close it."""
        return self.passed >= self._settings.breaker_probes
