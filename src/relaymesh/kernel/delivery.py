"""Deliveries: who is given what, under which lease."""

from __future__ import annotations

from relaymesh.errors import Closed, OverBudget
from relaymesh.kernel.charges import expectation_size
from relaymesh.kernel.commands import Expect, Forgo, Receive, Unexpect
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import READY, Entry, Lease
from relaymesh.kernel.exits import bury, finish
from relaymesh.kernel.gate import allowance, note_success, went_out
from relaymesh.kernel.mailbox import Mailbox, Waiter
from relaymesh.kernel.parcel import Parcel, sequences_of
from relaymesh.kernel.records import Granted
from relaymesh.kernel.step import Delivered

EXPECTATIONS_MAX = 10_000
"""Correlation ids that one mailbox may expect at a time."""


def receive(decision: Decision, command: Receive) -> bool:
    """Serve the waiter now if anything is ready, else leave it waiting. Answers whether it was served."""
    mailbox = decision.mailbox(command.mailbox)
    if decision.state.stopped:
        raise Closed("the mesh is stopping: nothing is delivered any more")
    if _serve(decision, mailbox, command.waiter):
        return True
    if command.wait:
        if command.waiter.correlation_id is None:
            mailbox.waiters.append(command.waiter)
        else:
            mailbox.askers[command.waiter.correlation_id] = command.waiter
    decision.after_write()
    return False


def forgo(decision: Decision, command: Forgo) -> bool:
    mailbox = decision.state.mailboxes.get(command.mailbox)
    if mailbox is None:
        return False
    waiter = command.waiter
    if waiter.correlation_id is not None:
        return mailbox.askers.pop(waiter.correlation_id, None) is not None
    if waiter not in mailbox.waiters:
        return False
    mailbox.waiters.remove(waiter)
    return True


def serve_waiters(decision: Decision) -> None:
    """After anything became ready: first come, first served."""
    wanted = decision.state.wanted
    while wanted:
        mailbox, _ = wanted.popitem()
        while mailbox.waiters and _serve(decision, mailbox, mailbox.waiters[0]):
            mailbox.waiters.popleft()
        answered, mailbox.answered = mailbox.answered, []
        for correlation_id in answered:
            waiter = mailbox.askers.get(correlation_id)
            if waiter is not None and _serve(decision, mailbox, waiter):
                del mailbox.askers[correlation_id]


def send_away(decision: Decision, mailbox: Mailbox) -> None:
    """The mailbox is gone: whoever waits for a delivery from it is given none."""
    through = decision.state.sequence
    waiters = [*mailbox.waiters, *mailbox.askers.values()]
    mailbox.waiters.clear()
    mailbox.askers.clear()
    if waiters:
        decision.step.delivered = [Delivered(waiter, [], through, 0) for waiter in waiters]


def _serve(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> bool:
    parts = _choose(decision, mailbox, waiter)
    if not parts:
        return False
    leases, synced = _grant(decision, mailbox, waiter, parts)
    step = decision.step
    if step.delivered is None:
        step.delivered = []
    step.delivered.append(Delivered(waiter, leases, decision.state.sequence, synced))
    return True


def _choose(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> list[Entry | Parcel]:
    """What this waiter gets. What has expired, or was done already, is settled on the way."""
    while True:
        picked, expired = _pick(decision, mailbox, waiter)
        if expired:
            bury(decision, mailbox, expired, "ttl_expired")
        done = [part for part in picked if part.completed]
        if done:
            finish(decision, mailbox.address, done)
            picked = [part for part in picked if not part.completed]
        if picked or not (expired or done):
            return picked


def _pick(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> tuple[list[Entry | Parcel], list[Entry]]:
    if waiter.correlation_id is None:
        most = allowance(decision, mailbox, waiter.max) if mailbox.gated else waiter.max
        return mailbox.pick(decision.now, most) if most else ([], [])
    answer = mailbox.first_expected(waiter.correlation_id)
    if answer is None:
        return [], []
    expires = answer.expires_at
    return ([], [answer]) if expires and expires <= decision.now else ([answer], [])


def _grant(
    decision: Decision, mailbox: Mailbox, waiter: Waiter, parts: list[Entry | Parcel]
) -> tuple[list[Lease], int]:
    """Lease these to the waiter. Answers the leases and what must be synced before they leave."""
    state = decision.state
    sequences = sequences_of(parts)
    leases: list[Lease] = decision.emit(
        Granted(
            len(sequences),
            decision.now,
            mailbox.address,
            waiter.holder,
            state.next_token,
            sequences,
            waiter.remote,
            waiter.lease_ms,
        )
    )
    if mailbox.gated and waiter.correlation_id is None:
        went_out(mailbox, leases)
    if mailbox.settings.delivery_semantics == "at_most_once":
        note_success(decision, mailbox, parts)
        finish(decision, mailbox.address, parts)
        for lease in leases:  # one grant for each length of lease
            lease.grant.settled = True
        return leases, state.sequence
    return leases, max([part.ready_sequence for part in parts]) + 1


def expect(decision: Decision, command: Expect) -> None:
    mailbox, id = decision.mailbox(command.mailbox), command.correlation_id
    if id in mailbox.expected:
        return
    if len(mailbox.expected) >= EXPECTATIONS_MAX:
        raise OverBudget(f"{mailbox.address} waits for {EXPECTATIONS_MAX} answers already")
    charges, size = decision.state.charges, expectation_size(id)
    charges.require(mailbox.address, size, command.budget)
    charges.add(mailbox.address, size)
    mailbox.expected[id] = []


def unexpect(decision: Decision, command: Unexpect) -> None:
    """Nobody asks any more: answers that came are ordinary messages."""
    mailbox = decision.mailbox(command.mailbox)
    if command.correlation_id not in mailbox.expected:
        return
    decision.state.charges.add(mailbox.address, -expectation_size(command.correlation_id))
    for entry in mailbox.expected.pop(command.correlation_id):
        if entry.state == READY:
            decision.state.offer(mailbox, entry)
