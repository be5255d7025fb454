"""Deliveries of a session, as the bus needs them: one at a time, held by workers, found again by their token.

The workers of a bus are other processes than the gateway, and outlive it. To a node in this process the
bus therefore is a remote holder: leases are kept over a restart. A session far away is one by itself, and
its server checks that a lease belongs to the credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from relaymesh.kernel.commands import ExtendAll
from relaymesh.kernel.deliveries import Deliveries, DeliveryRow
from relaymesh.kernel.query import MailboxesOf
from relaymesh.sdk.session import Session

PROBE_MS = 1


@runtime_checkable
class Embedded(Protocol):
    """What a session has when the node is in this process."""

    node: object

    def receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        holder: str | None = None,
        remote: bool = False,
    ) -> Deliveries: ...


def receive_one(session: Session, mailbox: str, holder: str) -> DeliveryRow | None:
    """The next delivery, if there is one now. Never two at once: so a lane has at most one message out."""
    if isinstance(session, Embedded):
        got = session.receive(mailbox, 1, 0, holder=holder, remote=True)
    else:
        got = session.receive(mailbox, 1, 0)
    return got.rows()[0] if got else None


def live_leases(session: Session, tokens: Sequence[int]) -> dict[int, str | None]:
    """Which of the leases are still good, and of which mailbox, if the session can tell."""
    if not tokens:
        return {}
    if isinstance(session, Embedded):
        return dict(session.execute(MailboxesOf(tokens)))
    deadlines = session.execute(ExtendAll([(token, PROBE_MS) for token in tokens]))
    return {token: None for token, deadline in zip(tokens, deadlines, strict=True) if deadline is not None}
