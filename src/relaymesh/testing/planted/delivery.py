"""What is given out in the wrong order, too often, or to too many."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from relaymesh.kernel import delivery
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.pending import DELAYED, READY
from relaymesh.kernel.schedule import FIFO_QUEUE, Ready
from relaymesh.testing.planted.bug import Original, at, plant


@plant(at(Lane, "runnable"), broken="a lane gives out more while its run is still out")
def lane_hold_lost(original: Original, lane: Lane) -> bool:
    return bool(lane.waiting) and not lane.halted and lane.waiting[0].state != DELAYED


@plant(at(Lane, "put_back"), broken="a retry goes to the tail of its lane")
def lane_retry_to_the_tail(original: Original, lane: Lane, entries: list[Entry]) -> None:
    for entry in entries:
        lane.waiting.append(entry)
        lane._came(entry)


@plant(at(Lane, "runnable"), broken="the head of a lane does not wait for the time of its retry")
def lane_head_too_early(original: Original, lane: Lane) -> bool:
    return bool(lane.waiting) and not lane.out and not lane.halted


@plant(at(Mailbox, "halt"), broken="a dead letter does not halt its lane")
def halted_lane_goes_on(
    original: Original, mailbox: Mailbox, key: str, dead_sequence: int, *, live: bool
) -> None:
    pass


@plant(
    at(Mailbox, "pick"),
    broken="a delayed message stays in line when it is delivered",
    like="Celery #2599: a message delayed beyond its lease runs twice",
)
def delayed_runs_twice(
    original: Original, mailbox: Mailbox, now: int, limit: int
) -> tuple[list[Entry | Parcel], list[Entry]]:
    picked: list[Entry | Parcel]
    picked, expired = original(mailbox, now, limit)
    for entry in picked:
        if isinstance(entry, Entry) and entry.envelope.delay_ms and entry.lane is None:
            mailbox.ready.push(entry)
    return picked, expired


@plant(at(Mailbox, "pick"), broken="an expired message is delivered")
def expired_message_delivered(
    original: Original, mailbox: Mailbox, now: int, limit: int
) -> tuple[list[Entry | Parcel], list[Entry]]:
    both: tuple[list[Entry | Parcel], list[Entry]] = original(mailbox, 0, limit)
    return both


@plant(at(Ready, "push"), broken="a message that comes back stands behind those sent after it")
def line_by_arrival(original: Original, ready: Ready, entry: Entry) -> None:
    entry.queued = FIFO_QUEUE if ready._fifo else entry.priority
    ready._queues[entry.queued].append(entry.sequence)
    ready._last[entry.queued] = (entry.ready_at, entry.sequence)


@plant(at(delivery, "finish"), broken="an at-most-once message is not settled before it leaves")
def at_most_once_comes_again(
    original: Original, decision: Decision, address: str, parts: list[Entry | Parcel]
) -> None:
    if all(part.completed for part in parts):
        original(decision, address, parts)


@plant(at(Parcel, "unpack"), broken="a message that leaves its parcel takes the leases of the others along")
def parcel_gone_with_one(original: Original, parcel: Parcel) -> None:
    home, others = parcel._home(), parcel.sequences[1:] if parcel.leased else ()
    original(parcel)
    assert home is not None
    for sequence in others:
        entry = home.take_out(sequence)
        entry.lease, entry.state, entry.attempts = None, READY, 0


@plant(at(Parcel, "_entry"), broken="a message that leaves its parcel has no attempt behind it")
def parcel_burns_no_attempt(original: Original, parcel: Parcel, sequence: int) -> Entry:
    entry: Entry = original(parcel, sequence)
    entry.attempts = 0
    return entry
