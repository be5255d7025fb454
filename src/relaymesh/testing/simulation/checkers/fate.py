"""What became of every message: each ended once, in one place, because a client or a rule said so."""

from __future__ import annotations

from collections import defaultdict

from relaymesh.testing.simulation.entries import Entry
from relaymesh.testing.simulation.history import History, Settled
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.verdict import Violation

SUCCESS_CODES = ("conflict", "duplicate")


def check_fate(history: History, ledger: Ledger) -> None:
    delivered = {(each.mailbox, each.sequence) for each in history.deliveries}
    asked: dict[tuple[str, int], list[Settled]] = defaultdict(list)
    for settle in history.settles:
        asked[settle.delivery.mailbox, settle.delivery.sequence].append(settle)
    for name, entry in ledger.entries.items():
        _check_end(entry, asked[name], history, delivered=name in delivered)
    for box in ledger.boxes.values():
        settled = box.acked + box.dropped + box.dead
        if box.accepted != settled + len(box.unsettled):
            raise Violation("conservation", f"{box.plan.address}: {box.accepted} accepted, {settled} settled")
    _check_redrives(history, ledger)


def _check_end(entry: Entry, asked: list[Settled], history: History, *, delivered: bool) -> None:
    semantics = history.settings_of(entry.mailbox).settings.delivery_semantics
    if entry.state in ("acked", "dropped") and (entry.step is not None or entry.taken_back):
        return  # the ledger of tasks asked why
    if entry.state in ("acked", "dropped") and semantics == "at_most_once":
        return  # settled before it was handed out, and maybe lost on the way: that is its promise
    if entry.state in ("acked", "dropped"):
        _check_asked(entry, asked)
        if not delivered:
            raise Violation("at_least_one_attempt", f"{entry} is {entry.state}, and it was never delivered")
    elif entry.state in ("dead", "redriven", "purged"):
        if not entry.reason:
            raise Violation("dead_for_a_reason", f"{entry} is dead without a reason")
        if entry.reason == "not_retryable" and not any(
            each.how == "fatal" or (each.how == "nack" and each.code_given == "invalid") for each in asked
        ):
            raise Violation("dead_for_a_reason", f"{entry} died as not retryable, and no client said so")
    else:
        raise Violation("progress", f"{entry} is still pending after everything was drained")


def _check_asked(entry: Entry, asked: list[Settled]) -> None:
    wanted = {"acked": ("ack", "settle", "complete"), "dropped": ("drop",)}[entry.state]
    by_rule = entry.state == "acked" and any(each.code_given in SUCCESS_CODES for each in asked)
    by_hand = any(each.how in wanted and each.answer != "refused" for each in asked)
    if not by_hand and not by_rule:
        raise Violation("no_receipted_loss", f"{entry} is {entry.state}, and no client asked for that")


def _check_redrives(history: History, ledger: Ledger) -> None:
    for asked in history.redrives:
        if asked.answer != "done" or asked.purge or asked.sequence is None:
            continue
        entries = [
            entry
            for (_, sequence), entry in ledger.entries.items()
            if sequence == asked.sequence and entry.redrives
        ]
        if not entries:
            raise Violation(
                "no_receipted_loss", f"redriven letter {asked.dead_sequence} of {asked.mailbox} is not there"
            )
