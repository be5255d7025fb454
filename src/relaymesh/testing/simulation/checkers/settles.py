"""What a settle means: a stale token does nothing, a good one counts, and what is done stays done."""

from __future__ import annotations

from collections import defaultdict

from relaymesh.testing.simulation.history import Delivery, History, Settled
from relaymesh.testing.simulation.ledger import EPOCH_SHIFT, Ledger
from relaymesh.testing.simulation.verdict import Violation

ENDING = ("ack", "drop", "settle", "nack", "fatal", "defer")
"""Settles that end a lease when they are answered."""
EXTENSION_MS_MAX = 5_000
REPORT_MS_MAX = 15_000
"""How long the lease of a step lasts after a report."""
ROUND_MS = 5_000
"""So long after a long sleep of the machine, holders that slept too may still speak up."""


def check_settles(history: History, ledger: Ledger) -> None:
    _check_rounds(history, ledger)
    by_token: dict[int, list[Settled]] = defaultdict(list)
    for settle in history.settles:
        by_token[settle.delivery.token].append(settle)
    by_entry: dict[tuple[str, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_entry[delivery.mailbox, delivery.sequence].append(delivery)
    for settle in history.settles:
        delivery = settle.delivery
        others = by_token[delivery.token]
        deliveries = by_entry[delivery.mailbox, delivery.sequence]
        if settle.answer == "done":
            _check_stays(settle, deliveries, history)
            _check_completed(settle, deliveries, history, ledger)
            _check_extended(settle, ledger)
        if settle.how in ("release", "complete", "abandon"):
            continue  # none is refused: a stale one does nothing
        if settle.how in ("finish", "fail", "grow", "report"):
            continue  # a late result may count: see tasks.py
        stale = _why_stale(settle, others, deliveries, history)
        if stale and settle.answer == "done":
            raise Violation(
                "stale_settle_refused",
                f"{settle.how} of {delivery.id} with token {delivery.token} was taken although {stale}",
            )
        if settle.code == "LEASE_LOST":
            _check_lost(settle, others, deliveries, history, ledger)


def _check_rounds(history: History, ledger: Ledger) -> None:
    for epoch, woke in history.woke:
        for token, at in ledger.expired.items():
            if token >> EPOCH_SHIFT == epoch and woke <= at < woke + ROUND_MS:
                raise Violation(
                    "lease_kept", f"token {token} ran out {at - woke} ms after the machine had been asleep"
                )


def _why_stale(
    settle: Settled, others: list[Settled], deliveries: list[Delivery], history: History
) -> str | None:
    """Why the token was certainly worth nothing when it was used; None when it may have been good."""
    delivery = settle.delivery
    for other in others:
        ended = other.how in ENDING and other.answer == "done" and other.answered < settle.order
        if ended and not history.power_losses_between(other.order, settle.order):
            return f"{other.how} had ended it before"
    if not delivery.remote and delivery.life != settle.life:
        return "its holder died with an earlier start"
    for newer in deliveries:
        came = delivery.order < newer.order < settle.order and newer.token != delivery.token
        if came and not history.power_losses_between(newer.order, settle.order):
            return f"it was delivered again under token {newer.token}"
    if _time_is_up(settle, others, history):
        return f"its lease ended at {delivery.deadline} and it was asked at {settle.at}"
    return None


def _time_is_up(settle: Settled, others: list[Settled], history: History) -> bool:
    """A clock that jumped may have given it one round more."""
    if settle.delivery.life != settle.life or history.lives[settle.life].disturbed:
        return False
    return settle.at >= _deadline(settle, others, unanswered_ms=EXTENSION_MS_MAX)


def _deadline(settle: Settled, others: list[Settled], *, unanswered_ms: int = 0) -> int:
    """The deadline when the settle was asked; an extend without an answer may have taken effect."""
    extended = [
        each.deadline or each.at + unanswered_ms
        for each in others
        if each.how == "extend" and each.order < settle.order and each.answer != "refused"
    ]
    reported = [each.at + REPORT_MS_MAX for each in others if each.how == "report"]
    return max([settle.delivery.deadline, *extended, *reported])


def _check_lost(
    settle: Settled, others: list[Settled], deliveries: list[Delivery], history: History, ledger: Ledger
) -> None:
    """A lease is only lost for a reason that its holder, or the clock, knows."""
    delivery = settle.delivery
    entry = ledger.entries.get((delivery.mailbox, delivery.sequence))
    mailbox = history.settings_of(delivery.mailbox)
    if (
        entry is None
        or entry.lane is not None
        or entry.step is not None
        or entry.asks is not None
        or mailbox.settings.delivery_semantics == "at_most_once"
    ):
        return  # a lane's run comes back together; at most once was settled before it came
    if any(each.order < settle.order and each.how != "extend" for each in others):
        return
    if any(newer.order > delivery.order and newer.order < settle.order for newer in deliveries):
        return
    if delivery.life == settle.life:
        deadline = _deadline(settle, others)
        if settle.at < deadline and not history.lives[settle.life].disturbed:
            raise Violation("lease_kept", f"{delivery.id} was lost at {settle.at}, before {deadline}")
        return
    before, life = history.lives[delivery.life], history.lives[settle.life]
    ends = history.ends_between(delivery.order, settle.order)
    kept = (
        delivery.remote
        and delivery.life + 1 == settle.life
        and all(each.end in ("kill", "graceful") for each in ends)
        and before.last_at < delivery.deadline
        and settle.at < life.started_at + delivery.lease_ms
    )
    if kept:
        raise Violation(
            "remote_lease_kept",
            f"{delivery.id} was lost {settle.at - life.started_at} ms after a restart,"
            f" though {delivery.holder} is remote and had {delivery.lease_ms} ms",
        )


def _check_extended(settle: Settled, ledger: Ledger) -> None:
    """Who was told a later deadline keeps the lease until then."""
    delivery = settle.delivery
    expired_at = ledger.expired.get(delivery.token)
    if settle.how == "extend" and expired_at is not None and expired_at < settle.deadline:
        raise Violation(
            "lease_kept", f"{delivery.id} was extended to {settle.deadline} and taken away at {expired_at}"
        )


def _check_completed(settle: Settled, deliveries: list[Delivery], history: History, ledger: Ledger) -> None:
    """Work that was done after its lease was lost is not delivered again from then on."""
    if settle.how != "complete" or settle.result != "waits":
        return
    for later in deliveries:
        granted = ledger.tokens.get(later.token)
        after = granted is not None and granted.at > settle.at and later.order > settle.order
        if after and not history.power_losses_between(settle.order, later.order):
            raise Violation("settled_stays", f"{later.id} was completed at {settle.at} and granted again")


def _check_stays(settle: Settled, deliveries: list[Delivery], history: History) -> None:
    """What was settled is never delivered again; an answer that waited for the sync outlives power losses."""
    final = settle.how in ("ack", "drop", "settle", "fatal", "finish", "fail", "grow") or (
        settle.how == "nack" and settle.result in ("dead_letter", "dropped", "success")
    )
    if not final:
        return
    durable = (
        settle.durable or settle.how in ("settle", "finish", "fail", "grow") or settle.result == "dead_letter"
    )
    for later in deliveries:
        if later.order <= settle.answered:
            continue
        if durable or not history.power_losses_between(settle.order, later.order):
            word = "durably " if durable else ""
            raise Violation(
                "settled_stays", f"{later.id} was {word}settled ({settle.how}) and delivered again"
            )
