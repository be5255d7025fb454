"""The credential and the origin of a request, for the audit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from relaymesh.server.security.arrival import Arrival
from relaymesh.server.security.audit import AuditEvent, AuditLog
from relaymesh.server.security.principal import Principal
from relaymesh.server.security.rates import Bucket

TRAIL_KEY = "relaymesh.trail"
AGENT_KEY = "relaymesh.agent"
"""Where a route says as which agents it acted: their addresses. A credential may be of several, or of any."""
AGENTS_SHOWN_MAX = 8

REFUSALS_RATE = 10.0
REFUSALS_BURST = 50.0
ADDRESSES_MAX = 1_000


class Trail:
    """Writes audit lines for one request or connection. Of a WebSocket, one for each write made on it."""

    def __init__(self, audit: AuditLog, arrival: Arrival, principal: Principal | None) -> None:
        self._audit = audit
        self._arrival = arrival
        self._token = "" if principal is None else principal.token_id
        self._label = "" if principal is None else principal.label
        self._home = "" if principal is None else f"{principal.namespace}/"
        self._agents = "" if principal is None else ",".join(sorted(principal.agents)) or self._own_name

    @property
    def _own_name(self) -> str:
        """Of a credential that is no agent. A space tells it apart: no agent's name has one."""
        return f"token {self._label or self._token}"

    @property
    def remote_addr(self) -> str:
        return self._arrival.remote_addr

    def write(
        self,
        event: str,
        status: int,
        *,
        route: str = "",
        acted: Collection[str] = (),
        detail: str = "",
        suppressed: int = 0,
    ) -> None:
        """Write an audit line for `event`: what was done, for which agents, and the status of the answer."""
        arrival = self._arrival
        self._audit.append(
            AuditEvent(
                event=event,
                at=self._audit.now_ms(),
                token=self._token,
                label=self._label,
                agent=self._named(acted) if acted else self._agents,
                method=arrival.method,
                route=route,
                path=arrival.path,
                status=status,
                remote_addr=arrival.remote_addr,
                user_agent=arrival.user_agent,
                x_forwarded_for=arrival.x_forwarded_for or "",
                origin=arrival.origin or "",
                referer=arrival.referer.partition("?")[0],
                detail=detail,
                suppressed=suppressed,
            )
        )

    def _named(self, acted: Collection[str]) -> str:
        if len(acted) == 1:
            return next(iter(acted)).removeprefix(self._home)
        names = sorted([address.removeprefix(self._home) for address in acted])
        more = len(names) - AGENTS_SHOWN_MAX
        return ",".join(names) if more <= 0 else f"{','.join(names[:AGENTS_SHOWN_MAX])} and {more} more"


def trail_of(scope: Mapping[str, Any]) -> Trail:
    """The trail of a request or connection that passed the guard."""
    trail = scope[TRAIL_KEY]
    assert isinstance(trail, Trail)
    return trail


class RefusalLog:
    """Refusals, audited up to a rate for each address: a flood of them must not wash away what matters."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._suppressed = 0

    def write(self, trail: Trail, event: str, status: int, detail: str, now: float) -> None:
        address = trail.remote_addr
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= ADDRESSES_MAX:
                self._buckets.clear()
            bucket = self._buckets[address] = Bucket(REFUSALS_BURST, now)
        if bucket.take(now, REFUSALS_RATE, REFUSALS_BURST) > 0:
            self._suppressed += 1
            return
        suppressed, self._suppressed = self._suppressed, 0
        trail.write(event, status, detail=detail, suppressed=suppressed)
