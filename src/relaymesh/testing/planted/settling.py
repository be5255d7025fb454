"""What becomes of a delivery: tokens, attempts, retries, dead letters."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.errors import MailboxFull
from relaymesh.kernel import epoch, passage, redrive, settlement
from relaymesh.kernel.commands import Ack, Extend, Settle
from relaymesh.kernel.completion import finish
from relaymesh.kernel.dead_letters import DeadLetter, DeadLetters
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import DECISIONS
from relaymesh.kernel.leases import give_back, lease_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import BURNING, Completed, Dropped, Failure, Returned
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.timers import LeaseClock
from relaymesh.node.letter_archive import LetterArchive
from relaymesh.testing.planted.bug import Original, at, plant

# Leases


@plant(
    at(State, "_let_go"),
    broken="the token of a lease that was lost still settles",
    like="leases without enforced fencing",
)
def stale_token_accepted(original: Original, state: State, mailbox: Mailbox, entry: Entry) -> None:
    lease = entry.lease
    original(state, mailbox, entry)
    if lease is not None and state.live:
        state.leases[lease.token] = lease


@plant(
    at(DECISIONS, Extend),
    broken="an extension is granted and not kept",
    like="LangGraph #7213: a long call is redelivered because it is long",
    first_seed=64,
)
def extension_not_kept(original: Original, decision: Decision, command: Extend) -> int:
    lease = lease_of(decision, command.token)
    decision.after_write()
    return max(lease.deadline, decision.now + command.ms)


@plant(
    at(LeaseClock, "pop_expired"),
    broken="a holder that fell silent keeps its message for ever",
    like="NATS: an error path keeps a lock",
)
def silent_holder_keeps(original: Original, clock: LeaseClock, now: int) -> list[Lease]:
    return []


@plant(at(State, "_index"), broken="a start takes the leases of remote holders away")
def remote_holder_voided(original: Original, state: State, lease: Lease) -> None:
    original(state, lease)
    lease.grant.remote = False


@plant(at(epoch, "_void"), broken="a start leaves messages with holders that died with the process")
def dead_holder_kept(original: Original, decision: Decision, mailbox: Mailbox, leases: list[Lease]) -> None:
    pass


@plant(at(DECISIONS, Ack), broken="one ack settles everything that came in the same delivery")
def ack_settles_neighbours(original: Original, decision: Decision, command: Ack) -> Any:
    held = decision.state.leases
    tokens = list(command.tokens)
    for token in command.tokens:
        if token in held:
            tokens += [each for each in held[token].grant.tokens if each in held]
    return original(decision, Ack(tokens, command.drop))


# Attempts


@plant(at(State, "_returned"), broken="a retry burns no attempt")
def retry_burns_no_attempt(original: Original, state: State, record: Returned) -> None:
    original(state, record)
    if record.cause in BURNING:
        for sequence in record.sequences:
            state.mailboxes[record.mailbox].entries.take_out(sequence).attempts -= 1


@plant(
    at(passage, "expire_lease"),
    broken="a holder that falls silent burns no attempt",
    like="attempts counted in the client: a poison message loops for ever",
)
def silence_burns_no_attempt(original: Original, decision: Decision, lease: Lease) -> None:
    give_back(decision, lease.grant.mailbox, [lease])


@plant(at(epoch, "_void"), broken="a message whose holder died with the process burns no attempt")
def crash_burns_no_attempt(
    original: Original, decision: Decision, mailbox: Mailbox, leases: list[Lease]
) -> None:
    give_back(decision, mailbox.address, leases)


@plant(
    at(epoch, "_void"),
    broken="a message whose holder died with the process is taken for done",
    like="huey #253: a killed worker loses the task",
)
def killed_worker_loses_message(
    original: Original, decision: Decision, mailbox: Mailbox, leases: list[Lease]
) -> None:
    finish(decision, mailbox.address, [lease.entry for lease in leases])


@plant(at(settlement, "retry_limit"), at(epoch, "retry_limit"), broken="one retry more than allowed")
def one_retry_too_many(original: Original, *arguments: Any) -> int:
    limit: int = original(*arguments)
    return limit + 1


@plant(at(settlement, "backoff_ms"), broken="a retry comes at once, without its backoff")
def backoff_skipped(original: Original, *arguments: Any) -> int:
    return 0


@plant(at(settlement, "fail"), broken="the delay a nack asks for is ignored")
def nack_delay_ignored(
    original: Original,
    decision: Decision,
    mailbox: Mailbox,
    lease: Lease,
    failure: Failure,
    cause: str,
    retryable: bool = True,
    delay_ms: int | None = None,
) -> Any:
    delay_ms = None if delay_ms is None else 0
    return original(decision, mailbox, lease, failure, cause, retryable, delay_ms)


@plant(at(settlement, "fail"), broken="a failure that is not retryable is tried again")
def fatal_failure_retried(
    original: Original,
    decision: Decision,
    mailbox: Mailbox,
    lease: Lease,
    failure: Failure,
    cause: str,
    retryable: bool = True,
    delay_ms: int | None = None,
) -> Any:
    return original(decision, mailbox, lease, failure, cause, True, delay_ms)


@plant(at(settlement, "_defer"), broken="a message may be put off for ever", first_seed=167)
def deferred_for_ever(
    original: Original, decision: Decision, mailbox: Mailbox, lease: Lease, *arguments: Any
) -> Any:
    deferrals, lease.entry.deferrals = lease.entry.deferrals, 0
    answer = original(decision, mailbox, lease, *arguments)
    lease.entry.deferrals += deferrals
    return answer


# Ends


@plant(at(State, "_dropped"), broken="a drop is counted as an ack")
def drop_counted_as_ack(original: Original, state: State, record: Dropped) -> None:
    original(state, record)
    counters = state.mailboxes[record.mailbox].counters
    counters.dropped -= record.count
    counters.acked += record.count


@plant(at(DECISIONS, Settle), broken="ack-and-send acks although its send is refused")
def settle_in_half(original: Original, decision: Decision, command: Settle) -> list[Receipt]:
    lease = lease_of(decision, command.token)
    try:
        receipts: list[Receipt] = original(decision, command)
    except MailboxFull:
        finish(decision, lease.grant.mailbox, [lease.entry])
        raise
    return receipts


@plant(at(State, "_completed"), broken="work that was done after its lease was lost is given out again")
def completion_forgotten(original: Original, state: State, record: Completed) -> None:
    pass


@plant(
    at(redrive, "_message"),
    broken="a redriven message comes back without its own priority, TTL and retries",
    like="pg-boss #874: a redriven message lost its settings",
)
def redrive_loses_settings(original: Original, letter: DeadLetter, edited: Envelope | None) -> Envelope:
    message: Envelope = original(letter, edited)
    return msgspec.structs.replace(message, priority=3, ttl_ms=3_600_000, max_retries=None)


@plant(at(DeadLetters, "mark_redriven"), broken="a dead letter can be redriven again and again")
def redriven_again(original: Original, letters: DeadLetters, letter: DeadLetter, id: str) -> None:
    pass


@plant(at(LetterArchive, "append"), broken="an old dead letter is purged, and not archived before")
def old_letter_not_archived(original: Original, archive: LetterArchive, letters: Any, wall_ms: int) -> None:
    pass
