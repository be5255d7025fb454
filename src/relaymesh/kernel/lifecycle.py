"""Start, stop, the passing of time, and the opening and changing of mailboxes."""

from __future__ import annotations

import msgspec

from relaymesh.errors import InvalidSettings, NotFound, OverBudget
from relaymesh.kernel import gate
from relaymesh.kernel.address import is_subscription
from relaymesh.kernel.charges import MAILBOX_BYTES, subscriptions_of
from relaymesh.kernel.commands import (
    ForceDelayed,
    OpenMailbox,
    Reprioritise,
    Start,
    Stop,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.kernel.contract import TIMEOUT, retry_limit, rule_for
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.delivery import send_away
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.exits import expire, refused
from relaymesh.kernel.leases import give_back, lease_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.pending import DELAYED, LEASED
from relaymesh.kernel.records import (
    DelayedForced,
    Dropped,
    EpochStarted,
    Failure,
    MailboxOpened,
    Reprioritised,
    Returned,
    Subscribed,
    Unsubscribed,
)
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.settlement import ended, expire_lease, fail
from relaymesh.kernel.step import Arrived

SUBSCRIPTIONS_MAX = 256
"""Subscriptions that one owner may have at a time."""


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
            length = lease.grant.length or mailbox.settings.lease_for(lease.entry.priority)
            lease.deadline = decision.now + length
            state.lease_clock.extend(lease)
        else:
            orphans.setdefault(lease.grant.mailbox, []).append(lease)
    for address, leases in orphans.items():
        _void(decision, state.mailboxes[address], leases)
    let_time_pass(decision)
    decision.after_sync()


def _void(decision: Decision, mailbox: Mailbox, leases: list[Lease]) -> None:
    """Back at once, attempt burned; what has no attempt left is dead. A poison message ends here.

    Of a lane's run only the first was being worked on: the later ones come back unburned, as from a nack.
    """
    rule = rule_for(mailbox.settings.contract, TIMEOUT)
    again: list[Lease] = []
    later: list[Lease] = []
    for lease in leases:
        limit = retry_limit(rule, lease.entry.envelope.max_retries, mailbox.settings.max_retries)
        lane = lease.entry.lane
        if lane is not None and next(iter(lane.run.values())) is not lease:
            later.append(lease)
        elif lease.attempt <= limit:
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


def _lost(decision: Decision, lease: Lease) -> Failure:
    return Failure(
        lease.attempt, decision.now, TIMEOUT, f"{lease.grant.holder} stopped while it held the lease"
    )


def stop(decision: Decision, command: Stop) -> int:
    """Nobody is served from here on. Answers how many delayed messages were sent out."""
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


# -- time -------------------------------------------------------------------------------------


def tick(decision: Decision, command: Tick) -> int:  # noqa: ARG001 - time passed before; this answers
    decision.after_write()
    return len(decision.step.arrived or ())


def let_time_pass(decision: Decision) -> None:
    """What is due falls due, leases that ran out come back, what has expired is dead. In this order.

    Then mailboxes that held deliveries back may give some out again.
    """
    state = decision.state
    now = decision.now
    if state.due.next <= now:
        for mailbox, entry in state.due.pop_due(now):
            _arrive(decision, mailbox, entry)
    if state.lease_clock.next <= now and state.reclaim_at <= now:
        for lease in state.lease_clock.pop_expired(now):
            if lease.held:
                expire_lease(decision, lease)
    if state.expiry.next <= now:
        for mailbox, entries in state.expiry.pop_expired(now):
            expire(decision, mailbox, entries)
    if state.wakes.next <= now:
        for mailbox in state.wakes.pop_due(now):
            gate.wake(decision, mailbox)


def _arrive(decision: Decision, mailbox: Mailbox, entry: Entry) -> None:
    if entry.ready_at == entry.due_at:
        _note_arrival(decision, mailbox, entry, entry.due_at, forced=False)
    decision.state.arrive(mailbox, entry)


def _note_arrival(decision: Decision, mailbox: Mailbox, entry: Entry, due: int, *, forced: bool) -> None:
    if decision.step.arrived is None:
        decision.step.arrived = []
    decision.step.arrived.append(Arrived(mailbox.address, entry.envelope.id, due, decision.now, forced))


def force_delayed(decision: Decision, command: ForceDelayed) -> int:
    """Delayed messages are all due now, and so in send order."""
    count = 0
    for mailbox in list(decision.state.mailboxes.values()):
        if mailbox.delayed and command.mailbox in (None, mailbox.address):
            early = [e for e in mailbox.entries.values() if e.state == DELAYED and e.ready_at == e.due_at]
            for entry in early:
                _note_arrival(decision, mailbox, entry, entry.due_at, forced=True)
            sequences = [entry.sequence for entry in early]
            decision.emit(DelayedForced(len(early), decision.now, mailbox.address, sequences))
            count += len(early)
    decision.after_sync()
    return count


# -- mailboxes --------------------------------------------------------------------------------


def open_mailbox(decision: Decision, command: OpenMailbox) -> None:
    """Open it, or change its settings. Without settings an existing mailbox stays as it is."""
    mailbox = decision.state.mailboxes.get(command.mailbox)
    settings = command.settings
    if mailbox is None:
        if not command.may_reject and is_subscription(command.mailbox):
            raise NotFound(f"there is no subscription {command.mailbox}", hint="subscribe first")
        decision.state.charges.require(command.mailbox, MAILBOX_BYTES, command.budget)
    elif settings is not None and not command.may_reject and is_subscription(command.mailbox):
        settings = _patient(settings, mailbox)
    if mailbox is None or (settings is not None and settings != mailbox.settings):
        decision.emit(MailboxOpened(1, decision.now, command.mailbox, settings or MailboxSettings()))
    decision.after_sync()


def subscribe(decision: Decision, command: Subscribe) -> None:
    state = decision.state
    mailbox = state.mailboxes.get(command.mailbox)
    subscribed = state.subscriptions.pattern_of(command.mailbox) == command.pattern
    settings = command.settings
    if not command.may_reject:
        settings = _patient(settings, mailbox if subscribed else None)
    if not subscribed and command.owner:
        _require_a_subscription_more(decision, command.owner, command.budget)
    asked = (settings, command.owner, command.budget if command.owner else 0)
    if mailbox is None or not subscribed or asked != (mailbox.settings, mailbox.owner, mailbox.owner_budget):
        decision.emit(Subscribed(1, decision.now, command.pattern, command.mailbox, *asked))
    decision.after_sync()


def _require_a_subscription_more(decision: Decision, owner: str, budget: int) -> None:
    owned = sum(mailbox.owner == owner for mailbox in decision.state.mailboxes.values())
    if owned >= SUBSCRIPTIONS_MAX:
        raise OverBudget(
            f"{owner} has {owned} subscriptions already: every publish must look at each",
            hint="end those that are not needed: mesh.unsubscribe(topic, name)",
        )
    decision.state.charges.require(subscriptions_of(owner), MAILBOX_BYTES, budget)


def _patient(settings: MailboxSettings, mailbox: Mailbox | None) -> MailboxSettings:
    """Settings under which a full subscription refuses nobody, unless it has exactly these already."""
    if settings.overflow != "reject" or (mailbox is not None and mailbox.settings == settings):
        return settings
    return msgspec.structs.replace(settings, overflow="dead_letter")


def unsubscribe(decision: Decision, command: Unsubscribe) -> int:
    """What the subscription held is dropped, and counted; whoever waits gets nothing. Answers how many."""
    state = decision.state
    pattern = state.subscriptions.pattern_of(command.mailbox)
    if pattern is None:
        raise NotFound(
            f"there is no subscription {command.mailbox}", hint="relaymesh topic list: all subscriptions"
        )
    mailbox = decision.mailbox(command.mailbox)
    entries = mailbox.entries.every()
    sequences = [entry.sequence for entry in entries]
    if entries:
        decision.emit(Dropped(len(entries), decision.now, mailbox.address, sequences, "unsubscribed"))
    decision.emit(Unsubscribed(1, decision.now, pattern, mailbox.address))
    for entry in entries:
        failure = Failure(entry.attempts, decision.now, "unsubscribed")
        refused(decision, mailbox.address, entry, failure, "dropped")
    send_away(decision, mailbox)
    decision.after_sync()
    return len(entries)


def reprioritise(decision: Decision, command: Reprioritise) -> int:
    """Pending messages only: what is out with a holder keeps its priority until it comes back."""
    mailbox = decision.mailbox(command.mailbox)
    sequences = [
        entry.sequence
        for entry in mailbox.entries.values()
        if entry.state != LEASED
        and entry.priority != command.priority
        and (command.ids is None or entry.envelope.id in command.ids)
    ]
    if sequences:
        decision.emit(
            Reprioritised(len(sequences), decision.now, mailbox.address, sequences, command.priority)
        )
    decision.after_sync()
    return len(sequences)
