"""An epoch: from the start of a process to its stop, and what becomes of the leases at both."""

from __future__ import annotations

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.arrivals import force_delayed
from relaymesh.kernel.commands import ForceDelayed, Start, Stop
from relaymesh.kernel.contract import TIMEOUT, retry_limit, rule_for
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.leases import give_back, lease_of, no_later
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.passage import let_time_pass
from relaymesh.kernel.records import EpochStarted, Failure, Returned
from relaymesh.kernel.settlement import ended, fail


def start(decision: Decision, command: Start) -> None:
    """A new epoch. In-process holders are gone, their attempts counted; remote ones get one full lease."""
    state = decision.state
    if state.sequence and command.epoch <= state.epoch:
        raise InvalidSettings(
            f"epoch {command.epoch} does not follow {state.epoch}: its tokens may be out already"
        )
    state.go_live()
    decision.emit(EpochStarted(1, decision.now, command.epoch, command.partition))
    orphans: dict[str, list[Lease]] = {}
    for token in sorted(state.leases):
        lease = lease_of(decision, token)
        if lease.grant.remote:
            mailbox = state.mailboxes[lease.grant.mailbox]
            taken = state.board.taken_ms(lease.entry.sequence)
            length = taken or lease.grant.length or mailbox.settings.lease_for(lease.entry.priority)
            lease.deadline = no_later(decision, lease, decision.now + length)
            state.lease_clock.extend(lease)
        else:
            orphans.setdefault(lease.grant.mailbox, []).append(lease)
    for address, leases in orphans.items():
        _void(decision, state.mailboxes[address], leases)
    let_time_pass(decision)
    decision.after_sync()


def _void(decision: Decision, mailbox: Mailbox, leases: list[Lease]) -> None:
    """Back at once, attempt burned; what has no attempt left is dead. A poison message ends here.

    Of what a lane has out only the first was worked on: the later ones come back unburned, as from a nack.
    """
    rule = rule_for(mailbox.settings.contract, TIMEOUT)
    again: list[Lease] = []
    later: list[Lease] = []
    for lease in leases:
        limit = retry_limit(rule, lease.entry.envelope.max_retries, mailbox.settings.max_retries)
        lane = lease.entry.lane
        if lane is not None and next(iter(lane.out.values())) is not lease:
            later.append(lease)
        elif not _is_spent(decision, lease, limit):
            again.append(lease)
    spent = set(leases).difference(again, later)
    for lease in [lease for lease in leases if lease in spent]:
        fail(decision, mailbox, lease, _lost(decision, lease), "restart")
    if again:
        failures: list[Failure | None] = [_lost(decision, lease) for lease in again]
        sequences = [lease.entry.sequence for lease in again]
        due = [decision.now] * len(again)
        decision.emit(
            Returned(len(again), decision.now, mailbox.address, "restart", sequences, due, failures)
        )
        for lease in again:
            decision.ended(ended(mailbox, lease, _lost(decision, lease), True, "retrying"))
    give_back(decision, mailbox.address, later)


def _is_spent(decision: Decision, lease: Lease, retries: int) -> bool:
    link = decision.state.board.links.get(lease.entry.sequence)
    return lease.attempt > retries if link is None else link.spent("restart", retries)


def _lost(decision: Decision, lease: Lease) -> Failure:
    return Failure(
        lease.attempt, decision.now, TIMEOUT, f"{lease.grant.holder} stopped while it held the lease"
    )


def stop(decision: Decision, command: Stop) -> int:
    """Serve no receiver from here on. Returns how many delayed messages were sent out."""
    decision.state.stopped = True
    by_mailbox: dict[str, list[Lease]] = {}
    for token in list(decision.state.leases):
        lease = lease_of(decision, token)
        if not lease.grant.remote:
            by_mailbox.setdefault(lease.grant.mailbox, []).append(lease)
    for address, leases in by_mailbox.items():
        give_back(decision, address, leases)
    forced = force_delayed(decision, ForceDelayed()) if command.deliver_delayed else 0
    decision.after_sync()
    return forced
