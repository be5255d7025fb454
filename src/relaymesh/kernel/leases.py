"""Leases: finding, extending and giving back what a holder has."""

from __future__ import annotations

from itertools import dropwhile

from relaymesh.errors import LeaseLost
from relaymesh.kernel.commands import Extend, ExtendAll, Release
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.records import Returned
from relaymesh.kernel.token import format_token


def lease_of(decision: Decision, token: int) -> Lease:
    lease = decision.state.lease(token)
    if lease is None:
        raise LeaseLost(f"lease {format_token(token, decision.state.partition)} is no longer held")
    return lease


def extend(decision: Decision, command: Extend) -> int:
    """Set a deadline `ms` from now, if that is later than the present one. Returns the deadline."""
    lease = lease_of(decision, command.token)
    prolong(decision, lease, command.ms)
    decision.after_write()
    return lease.deadline


def extend_all(decision: Decision, command: ExtendAll) -> list[int | None]:
    deadlines: list[int | None] = []
    for token, ms in command.extends:
        lease = decision.state.lease(token)
        if lease is not None:
            prolong(decision, lease, ms)
        deadlines.append(None if lease is None else lease.deadline)
    decision.after_write()
    return deadlines


def prolong(decision: Decision, lease: Lease, ms: int) -> None:
    """Let the lease last `ms` from now, if that is later than its deadline."""
    deadline = no_later(decision, lease, decision.now + ms)
    if deadline > lease.deadline:
        lease.deadline = deadline
        decision.state.lease_clock.extend(lease)


def no_later(decision: Decision, lease: Lease, deadline: int) -> int:
    """The deadline, or the end of the time that one attempt at a step may take."""
    links = decision.state.board.links
    if links and (link := links.get(lease.entry.sequence)) is not None:
        return link.no_later(deadline)
    return deadline


def release(decision: Decision, command: Release) -> None:
    """Give back, no attempt counted, with the later ones of their lanes. A stale token needs no release."""
    state = decision.state
    by_mailbox: dict[str, list[Lease]] = {}
    released = set(command.tokens)
    lanes: dict[Lane, None] = {}
    for token in command.tokens:
        lease = state.lease(token)
        if lease is not None:
            leases = by_mailbox.setdefault(lease.grant.mailbox, [])
            lane = lease.entry.lane
            if lane is None:
                leases.append(lease)
            elif lane not in lanes:
                lanes[lane] = None
                leases += dropwhile(lambda lease: lease.token not in released, lane.out.values())
    for address, leases in by_mailbox.items():
        give_back(decision, address, leases)
    decision.after_write()


def give_back(decision: Decision, address: str, leases: list[Lease]) -> None:
    """Return deliveries as if they had never been granted. One that ended meanwhile is left alone."""
    entries = [lease.entry for lease in dict.fromkeys(leases) if lease.held]
    if entries:
        sequences = [entry.sequence for entry in entries]
        due = [entry.ready_at for entry in entries]
        decision.emit(Returned(len(entries), decision.now, address, "released", sequences, due, []))
