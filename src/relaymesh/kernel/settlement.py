"""Settling: ack, nack and what the failure contract decides. Every failure ends in one place."""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import LeaseLost
from relaymesh.kernel.admission import accept
from relaymesh.kernel.commands import Ack, Complete, Nack, Settle
from relaymesh.kernel.completion import finish
from relaymesh.kernel.contract import TIMEOUT, Rule, retry_limit, rule_for
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entries import entries_of
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.failures import bury, drop
from relaymesh.kernel.gate import note_failure, note_nothing, note_success
from relaymesh.kernel.leases import give_back, lease_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.notices import notify
from relaymesh.kernel.parcel import Part
from relaymesh.kernel.records import Acked, Completed, Failure, ReturnCause, Returned
from relaymesh.kernel.retry import backoff_ms
from relaymesh.kernel.step import Ended, Receipt
from relaymesh.kernel.tasks.link import ABANDONING
from relaymesh.kernel.tasks.taking import take


def ack(decision: Decision, command: Ack) -> list[int]:
    """Settle deliveries as done, or as dropped. Returns the tokens that were stale.

    Steps of an agent that reports later are taken: see `taking`.
    """
    held = decision.state.leases
    stale: list[int] = []
    by_mailbox: dict[str, list[Part]] = {}
    tokens = list(dict.fromkeys(command.tokens))
    start, end = 0, len(tokens)
    while start < end:
        lease = held.get(tokens[start])
        if lease is None:
            stale.append(tokens[start])
            start += 1
            continue
        parts = by_mailbox.setdefault(lease.grant.mailbox, [])
        part = lease.named_in(tokens, start)
        parts.append(part)
        start += part.count
    for address, named in by_mailbox.items():
        mailbox = decision.state.mailboxes[address]
        done: Sequence[Part] = named
        if command.taken_ms and not command.drop:
            done = take(decision, mailbox, named, command.taken_ms)
            if not done:
                continue
        note_success(decision, mailbox, done)
        if command.drop:
            entries = entries_of(done, mailbox.entries)
            drop(decision, address, entries, Failure(0, decision.now, "dropped"))
        else:
            finish(decision, address, done)
    decision.after_write()
    return stale


def settle(decision: Decision, command: Settle) -> list[Receipt]:
    """Ack and send in one step; refused whole if the lease is lost or a send is refused."""
    lease = lease_of(decision, command.token)
    receipts = accept(decision, command)
    mailbox = decision.state.mailboxes[lease.grant.mailbox]
    if parts := take(decision, mailbox, [lease.entry], command.taken_ms):
        note_success(decision, mailbox, parts)
        finish(decision, mailbox.address, parts)
    decision.after_sync()
    return receipts


def complete(decision: Decision, command: Complete) -> bool:
    """Record that the work is done although the lease was lost. Returns whether the message still waits."""
    mailbox = decision.state.mailboxes.get(command.mailbox)
    part = None if mailbox is None else mailbox.entries.get(command.sequence)
    if command.sequence in decision.state.board.links:
        raise LeaseLost(
            f"message {command.sequence} of {command.mailbox} is a step of a task: it ends with a result",
            hint="settle it with its result; that counts, also late, while no other holder was granted it",
        )
    waits = part is not None and not part.completed
    if waits:
        decision.emit(Completed(1, decision.now, command.mailbox, [command.sequence]))
    decision.after_write()
    return waits


def nack(decision: Decision, command: Nack) -> str:
    """Returns the final state of the attempt: retrying, deferred, dead_letter, dropped or success."""
    lease = lease_of(decision, command.token)
    mailbox = decision.state.mailboxes[lease.grant.mailbox]
    failure = Failure(lease.attempt, decision.now, command.code, command.reason, command.stack)
    if command.until is not None:
        return _defer(decision, mailbox, lease, failure, command.until)
    return fail(decision, mailbox, lease, failure, "nack", command.retryable, command.delay_ms)


def _defer(decision: Decision, mailbox: Mailbox, lease: Lease, failure: Failure, until: int) -> str:
    """Defer without counting the attempt, as often as the mailbox allows."""
    entry = lease.entry
    if entry.deferrals >= mailbox.settings.max_deferrals:
        bury(decision, mailbox, [entry], "deferred_too_often", [failure], alert=True)
        note_nothing(decision, mailbox)
        decision.after_sync()
        return "dead_letter"
    due = max(until, decision.now)
    later = mailbox.leases_after(lease)
    decision.emit(Returned(1, decision.now, mailbox.address, "deferred", [entry.sequence], [due], [failure]))
    give_back(decision, mailbox.address, later)
    decision.ended(ended(mailbox, lease, failure, True, "deferred"))
    decision.after_write()
    return "deferred"


def fail(
    decision: Decision,
    mailbox: Mailbox,
    lease: Lease,
    failure: Failure,
    cause: ReturnCause,
    retryable: bool = True,
    delay_ms: int | None = None,
) -> str:
    """An attempt failed: retry if the contract has a retry left, else end it."""
    entry = lease.entry
    rule = rule_for(mailbox.settings.contract, failure.code)
    link = decision.state.board.links.get(entry.sequence)
    asked = entry.envelope.max_retries if link is None else link.max_retries
    limit = retry_limit(rule, asked, mailbox.settings.max_retries)
    if cause in ("expired", "abandoned") or (cause == "nack" and retryable and rule.retries):
        note_failure(decision, mailbox, lease, expired=cause != "nack")
    elif cause == "nack":
        note_success(decision, mailbox, [entry])  # the message is bad; the receiver works, because it said so
    spent = entry.attempts > limit if link is None else link.spent(cause, limit)
    if not retryable or spent:
        reason = "retries_exhausted" if retryable and rule.retries else "not_retryable"
        return _exit(decision, mailbox, lease, failure, rule, reason)
    if link is not None and cause in ABANDONING:
        delay_ms = 0  # the work did not fail, its holder did
    if delay_ms is None:
        delay_ms = rule.after_ms
    if delay_ms is None:
        of_task = () if link is None else link.backoff
        delay_ms = backoff_ms(mailbox.settings, entry.attempts, decision.chance(), *of_task)
    due = decision.now + max(0, delay_ms)
    later = mailbox.leases_after(lease)
    decision.emit(Returned(1, decision.now, mailbox.address, cause, [entry.sequence], [due], [failure]))
    give_back(decision, mailbox.address, later)
    decision.ended(ended(mailbox, lease, failure, True, "retrying"))
    decision.after_write()
    return "retrying"


def _exit(
    decision: Decision, mailbox: Mailbox, lease: Lease, failure: Failure, rule: Rule, reason: str
) -> str:
    """No retry is left: the one place where this failure ends."""
    entry = lease.entry
    if rule.exit == "success":
        decision.ended(ended(mailbox, lease, failure, False, "success"))
        decision.emit(Acked(1, decision.now, mailbox.address, [entry.sequence]))
        decision.step.freed = True
        if entry.envelope.requires_ack:
            notify(decision, mailbox.address, entry.envelope, None)
        decision.after_write()
        return "success"
    if rule.exit == "drop":
        drop(decision, mailbox.address, [entry], failure)
        decision.after_write()
        return "dropped"
    bury(decision, mailbox, [entry], reason, [failure], alert=rule.alert)
    decision.after_sync()
    return "dead_letter"


def expire_lease(decision: Decision, lease: Lease) -> None:
    """The holder was silent for the whole lease: the attempt counts."""
    mailbox = decision.state.mailboxes[lease.grant.mailbox]
    text = f"no ack, nack or extend from {lease.grant.holder} before the lease ended"
    cause: ReturnCause = "expired"
    link = decision.state.board.links.get(lease.entry.sequence)
    if link is not None and link.attempt_is_over(lease.deadline):
        cause, text = "nack", "the attempt took longer than it may"
    elif link is not None and link.step.taken_ms:
        text = f"{mailbox.address} took it, and gave no report or heartbeat before the lease ended"
    failure = Failure(lease.attempt, decision.now, TIMEOUT, text)
    fail(decision, mailbox, lease, failure, cause)


def ended(mailbox: Mailbox, lease: Lease, failure: Failure, retryable: bool, final_state: str) -> Ended:
    return Ended(
        mailbox.address,
        lease.entry.envelope.id,
        lease.attempt,
        failure.code,
        retryable,
        final_state,
        failure.reason,
    )
