"""Deliveries: which waiter gets which messages, under which lease."""

from __future__ import annotations

from itertools import chain

from relaymesh.errors import Closed
from relaymesh.kernel.commands import Forgo, Receive
from relaymesh.kernel.completion import finish
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.entries import sequences_of
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.expectation import asked_no_longer, expect_while_asked
from relaymesh.kernel.failures import expire
from relaymesh.kernel.gate import allowance, note_success, went_out
from relaymesh.kernel.handing import handed
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Part
from relaymesh.kernel.records import Granted
from relaymesh.kernel.step import Delivered
from relaymesh.kernel.waiter import Waiter


def receive(decision: Decision, command: Receive) -> bool:
    """Serve the waiter now if anything is ready, else leave it waiting. Returns whether it was served."""
    mailbox = decision.mailbox(command.mailbox)
    if decision.state.stopped:
        raise Closed("the mesh is stopping: nothing is delivered any more")
    if command.waiter.correlation_id is not None:
        return _ask(decision, mailbox, command.waiter, command.waiter.correlation_id, wait=command.wait)
    if _serve(decision, mailbox, command.waiter):
        return True
    if command.wait:
        mailbox.waiters.append(command.waiter)
    decision.after_write()
    return False


def _ask(decision: Decision, mailbox: Mailbox, waiter: Waiter, id: str, *, wait: bool) -> bool:
    """A receive by correlation id: also takes messages that already wait, expected or not."""
    expect_while_asked(decision, mailbox, id)
    served = _serve(decision, mailbox, waiter)
    if wait and not served:
        mailbox.askers.setdefault(id, []).append(waiter)
    else:
        asked_no_longer(decision, mailbox, id)
    if not served:
        decision.after_write()
    return served


def forgo(decision: Decision, command: Forgo) -> bool:
    mailbox = decision.state.mailboxes.get(command.mailbox)
    if mailbox is None:
        return False
    waiter = command.waiter
    if waiter.correlation_id is not None:
        return waiter in mailbox.askers.get(waiter.correlation_id, ()) and _asks_no_longer(
            decision, mailbox, waiter, waiter.correlation_id
        )
    if waiter not in mailbox.waiters:
        return False
    mailbox.waiters.remove(waiter)
    return True


def _asks_no_longer(decision: Decision, mailbox: Mailbox, waiter: Waiter, id: str) -> bool:
    waiters = mailbox.askers[id]
    waiters.remove(waiter)
    if not waiters:
        del mailbox.askers[id]
    asked_no_longer(decision, mailbox, id)
    return True


def serve_waiters(decision: Decision) -> None:
    """Serve waiters after anything became ready: first come, first served."""
    wanted = decision.state.wanted
    while wanted:
        mailbox, _ = wanted.popitem()
        while mailbox.waiters and _serve(decision, mailbox, mailbox.waiters[0]):
            mailbox.waiters.popleft()
        answered, mailbox.answered = mailbox.answered, []
        for correlation_id in answered:
            waiters = mailbox.askers.get(correlation_id)
            if waiters and _serve(decision, mailbox, waiters[0]):
                _asks_no_longer(decision, mailbox, waiters[0], correlation_id)


def send_away(decision: Decision, mailbox: Mailbox) -> None:
    """The mailbox is gone: its waiters get an empty delivery."""
    through = decision.state.sequence
    waiters = [*mailbox.waiters, *chain.from_iterable(mailbox.askers.values())]
    mailbox.waiters.clear()
    mailbox.askers.clear()
    if waiters:
        nothing = nothing_from(mailbox.address)
        decision.step.delivered = [Delivered(waiter, nothing, through, 0) for waiter in waiters]


def _serve(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> bool:
    parts = _choose(decision, mailbox, waiter)
    if not parts:
        return False
    deliveries, synced = _grant(decision, mailbox, waiter, parts)
    step = decision.step
    if step.delivered is None:
        step.delivered = []
    step.delivered.append(Delivered(waiter, deliveries, decision.state.sequence, synced))
    return True


def _choose(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> list[Part]:
    """What this waiter gets. Messages that have expired, or were done already, are settled on the way."""
    while True:
        picked, expired = _pick(decision, mailbox, waiter)
        if expired:
            expire(decision, mailbox, expired)
        done = [part for part in picked if part.completed]
        if done:
            finish(decision, mailbox.address, done)
            picked = [part for part in picked if not part.completed]
        if picked or not (expired or done):
            return picked


def _pick(decision: Decision, mailbox: Mailbox, waiter: Waiter) -> tuple[list[Part], list[Entry]]:
    if waiter.correlation_id is None:
        most = allowance(decision, mailbox, waiter.max) if mailbox.gated else waiter.max
        return mailbox.pick(decision.now, most) if most else ([], [])
    answer = mailbox.first_expected(waiter.correlation_id)
    if answer is None:
        return [], []
    expires = answer.expires_at
    return ([], [answer]) if expires and expires <= decision.now else ([answer], [])


def _grant(decision: Decision, mailbox: Mailbox, waiter: Waiter, parts: list[Part]) -> tuple[Deliveries, int]:
    """Lease these to the waiter. Returns its deliveries, and what must be synced before they leave."""
    state = decision.state
    sequences = sequences_of(parts)
    first = state.next_token
    decision.emit(
        Granted(
            len(sequences),
            decision.now,
            mailbox.address,
            waiter.holder,
            first,
            sequences,
            waiter.remote,
            waiter.lease_ms,
        )
    )
    if mailbox.gated and waiter.correlation_id is None:
        went_out(mailbox, range(first, state.next_token))
    once = mailbox.settings.delivery_semantics == "at_most_once"
    deliveries = handed(mailbox, parts, first, sequences, once, waiter.remote)
    if once:
        note_success(decision, mailbox, parts)
        finish(decision, mailbox.address, parts)
        return deliveries, state.sequence
    if state.board.links and state.board.has_step(sequences):
        return deliveries, state.sequence  # a late result is judged by the grant: no power loss may revert it
    if len(parts) == 1:
        return deliveries, parts[0].ready_sequence + 1
    return deliveries, max([part.ready_sequence for part in parts]) + 1
