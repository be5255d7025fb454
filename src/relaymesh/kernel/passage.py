"""The passage of time: what falls due, runs out or expires."""

from __future__ import annotations

from relaymesh.kernel import gate
from relaymesh.kernel.arrivals import arrive
from relaymesh.kernel.commands import Tick
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.failures import expire
from relaymesh.kernel.settlement import expire_lease
from relaymesh.kernel.tasks import ending


def tick(decision: Decision, command: Tick) -> int:  # noqa: ARG001 - time passed before; this answers
    decision.after_write()
    return len(decision.step.arrived or ())


def let_time_pass(decision: Decision) -> None:
    """What is due falls due, leases that ran out come back, tasks and steps time out, what has expired is
    dead. In this order.

    Then mailboxes that held deliveries back may give some out again.
    """
    state = decision.state
    now = decision.now
    if state.due.next <= now:
        for mailbox, entry in state.due.pop_due(now):
            arrive(decision, mailbox, entry)
    if state.lease_clock.next <= now and state.reclaim_at <= now:
        for lease in state.lease_clock.pop_expired(now):
            if lease.held:
                expire_lease(decision, lease)
    if state.board.deadlines.next <= now and state.reclaim_at <= now:
        ending.run_out(decision)
    if state.expiry.next <= now:
        for mailbox, entries in state.expiry.pop_expired(now):
            expire(decision, mailbox, entries)
    if state.wakes.next <= now:
        for mailbox in state.wakes.pop_due(now):
            gate.wake(decision, mailbox)
