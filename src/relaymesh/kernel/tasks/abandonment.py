"""Abandonment: the holder of a delivery is known to be dead, so its lease need not run out."""

from __future__ import annotations

from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import Failure
from relaymesh.kernel.settlement import fail
from relaymesh.kernel.tasks.commands import Abandon

ABANDONED = "abandoned"


def abandon(decision: Decision, command: Abandon) -> list[int]:
    """End these leases now. Returns the tokens that were stale."""
    state = decision.state
    stale: list[int] = []
    for token in dict.fromkeys(command.tokens):
        lease = state.lease(token)
        if lease is None:
            stale.append(token)
            continue
        text = command.reason or f"{lease.grant.holder} is gone"
        failure = Failure(lease.attempt, decision.now, ABANDONED, text)
        fail(decision, state.mailboxes[lease.grant.mailbox], lease, failure, "abandoned")
    decision.after_sync()
    return stale
