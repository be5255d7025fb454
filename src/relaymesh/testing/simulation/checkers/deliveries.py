"""What a delivery may be: a message that was sent, not before its time, under a token never seen before."""

from __future__ import annotations

from collections import defaultdict

from relaymesh.testing.simulation.history import Delivery, History, Message, Sent, Settled
from relaymesh.testing.simulation.ledger import EPOCH_SHIFT, Ledger
from relaymesh.testing.simulation.plan import ROUTES
from relaymesh.testing.simulation.verdict import Violation

Name = tuple[str, int]
UNBURNED = ("release", "defer")
SENT_AS = b'{"schedule":'
"""How the content of a message begins that a schedule sent."""


def check_deliveries(history: History, ledger: Ledger) -> None:
    _check_tokens(history, ledger)
    sent = _sent_by_id(history)
    for delivery in history.deliveries:
        if delivery.content.startswith(SENT_AS):
            _check_scheduled(delivery, ledger)
            continue
        if delivery.by_mesh:
            continue  # see tasks.py
        due = _check_sent(delivery, history, sent)
        if delivery.at < due and not _hastened(delivery, history, ledger):
            raise Violation("never_early", f"{delivery.id} was delivered at {delivery.at}, due at {due}")
    asked: dict[int, list[Settled]] = defaultdict(list)
    for settle in history.settles:
        asked[settle.delivery.token].append(settle)
    by_entry: dict[Name, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_entry[delivery.mailbox, delivery.sequence].append(delivery)
    for name, deliveries in by_entry.items():
        _check_attempts(name, deliveries, asked, history, ledger)


def _check_scheduled(delivery: Delivery, ledger: Ledger) -> None:
    """The mesh itself sent it, and a tick of a schedule is written with it: see the ledger of schedules."""
    entry = ledger.entries.get((delivery.mailbox, delivery.sequence))
    if entry is None or (entry.id, entry.content) != (delivery.id, delivery.content):
        raise Violation("synced_before_leaving", f"{delivery.id} of a schedule left, and is not there")


def _check_tokens(history: History, ledger: Ledger) -> None:
    epochs = [life.epoch for life in history.lives]
    if epochs != sorted(set(epochs)):
        raise Violation("tokens_unique", f"the epochs of the starts do not rise: {epochs}")
    seen: dict[int, Delivery] = {}
    for delivery in history.deliveries:
        before = seen.setdefault(delivery.token, delivery)
        if before is not delivery:
            raise Violation(
                "tokens_unique", f"token {delivery.token} came with {before.id} and with {delivery.id}"
            )
        if delivery.token >> EPOCH_SHIFT != history.lives[delivery.life].epoch:
            raise Violation("tokens_unique", f"token {delivery.token} is not of its start's epoch")
        granted = ledger.tokens.get(delivery.token)
        if granted is not None and (granted.entry.mailbox, granted.entry.sequence, granted.attempt) != (
            delivery.mailbox,
            delivery.sequence,
            delivery.attempt,
        ):
            raise Violation(
                "attempts_counted",
                f"{delivery.id} came as attempt {delivery.attempt},"
                f" the journal says {granted.attempt} of {granted.entry}",
            )


def _sent_by_id(history: History) -> dict[str, list[Sent]]:
    found: dict[str, list[Sent]] = defaultdict(list)
    for sent in history.sent:
        found[sent.message.id].append(sent)
    return found


def _reaches(message: Message, mailbox: str, history: History) -> bool:
    if message.target == mailbox:
        return True
    pattern = history.settings_of(mailbox).pattern
    return pattern is not None and message.target.removeprefix("topic:") in ROUTES[pattern]


def _hastened(delivery: Delivery, history: History, ledger: Ledger) -> bool:
    """Delayed messages were forced out, or it is a dead letter that came back: its delay is over."""
    entry = ledger.entries.get((delivery.mailbox, delivery.sequence))
    redriven = any(each.mailbox == delivery.mailbox and not each.purge for each in history.redrives)
    return delivery.mailbox in history.forced or (redriven if entry is None else entry.redrives > 0)


def _check_sent(delivery: Delivery, history: History, sent: dict[str, list[Sent]]) -> int:
    """No phantom: a client sent this here, with this content, and was not refused.

    Returns when it is due.
    """
    possible = [
        each
        for each in sent.get(delivery.id, ())
        if each.message.content == delivery.content
        and each.order < delivery.order
        and each.answer != "refused"
        and _reaches(each.message, delivery.mailbox, history)
    ]
    if not possible:
        raise Violation("no_phantom", f"{delivery.id} in {delivery.mailbox} was never sent")
    due = min(each.at + each.message.delay_ms for each in possible)
    receipted = [
        each.due
        for each in possible
        if each.answer == "done" and each.sequence == delivery.sequence and each.answered < delivery.order
    ]
    return max([due, *receipted])


def _check_attempts(
    name: Name,
    deliveries: list[Delivery],
    asked: dict[int, list[Settled]],
    history: History,
    ledger: Ledger,
) -> None:
    mailbox = history.settings_of(name[0])
    if mailbox.settings.delivery_semantics == "at_most_once" and len(deliveries) > 1:
        raise Violation("at_most_once", f"{deliveries[0].id} was delivered {len(deliveries)} times")
    entry = ledger.entries.get(name)
    in_lane = mailbox.settings.ordered or entry is None or entry.lane is not None
    burned = 0
    for delivery, after in zip(deliveries, [*deliveries[1:], None], strict=False):
        asks = asked.get(delivery.token, [])
        unburned = in_lane or any(each.how in UNBURNED for each in asks)
        if after is not None:
            unburned = unburned or any(
                life.end == "graceful" for life in history.ends_between(delivery.order, after.order)
            )
            _check_next(delivery, after, asks, history, burns=not unburned)
        burned += not unburned
    codes = {
        each.code_given or "timeout"
        for asks in asked.values()
        for each in asks
        if each.delivery in deliveries
    }
    retries = None if entry is None else entry.max_retries
    limit = max(mailbox.limit(code, retries) for code in codes | {"timeout"})
    losses = history.power_losses_between(0, history.order)
    if deliveries[0].step:
        return  # the ledger of tasks counts failures and abandonments apart
    if entry is not None and burned > limit + 1 + losses:
        raise Violation(
            "attempts_bounded",
            f"{entry} was delivered {burned} times, with {limit} retries and {losses} power losses",
        )


def _check_next(
    delivery: Delivery, after: Delivery, asks: list[Settled], history: History, *, burns: bool
) -> None:
    """Between two deliveries of one message: attempts are burned, and what was asked for is kept."""
    if history.power_losses_between(delivery.order, after.order):
        return
    if after.attempt < delivery.attempt + burns:
        raise Violation(
            "attempts_counted",
            f"{after.id} came as attempt {delivery.attempt} and then again as attempt {after.attempt}",
        )
    for ask in asks:
        if ask.answer == "done" and ask.not_before > after.at:
            raise Violation(
                "never_early", f"{after.id} came again at {after.at}, put off until {ask.not_before}"
            )
