"""What a receipt promises: the message is there, once, as it was sent, and was safe when the receipt left."""

from __future__ import annotations

from relaymesh.testing.simulation.history import History, Sent
from relaymesh.testing.simulation.ledger import WINDOW_MS, Ledger
from relaymesh.testing.simulation.verdict import Violation

TOPIC = "topic:"


def check_admission(history: History, ledger: Ledger) -> None:
    if history.early:
        raise Violation("synced_before_leaving", f"{history.early[0]} left before it was on the disk")
    for sent in history.receipts:
        _check_there(sent, ledger)
        _check_targets(sent, history, ledger)
    _check_duplicates(history)


def _check_there(sent: Sent, ledger: Ledger) -> None:
    """No receipted loss: the journal has it, under the sequence of the receipt, byte for byte."""
    message = sent.message
    if message.target.startswith(TOPIC):
        found = ledger.published.get(sent.sequence)
        there = found == (message.target.removeprefix(TOPIC), message.id, message.content)
    else:
        entry = ledger.entries.get((message.target, sent.sequence))
        there = entry is not None and (entry.id, entry.content) == (message.id, message.content)
    if not there:
        raise Violation(
            "no_receipted_loss",
            f"{message.id} to {message.target} was receipted as {sent.sequence}, and the journal has it not",
        )


def _check_targets(sent: Sent, history: History, ledger: Ledger) -> None:
    target = sent.message.target
    expected = len(history.plan.routed(target.removeprefix(TOPIC))) if target.startswith(TOPIC) else 1
    expected -= ledger.skipped.get(sent.sequence, 0)
    if sent.targets != expected:
        raise Violation("fan_out", f"{sent.message.id} to {target}: {sent.targets} targets, not {expected}")


def _check_duplicates(history: History) -> None:
    """After a receipt, the same id within the window: the same receipt again, or a conflict.

    The window runs from the acceptance. Where the first receipt was a duplicate's, that was an earlier send,
    whose own answer got lost.
    """
    tried: dict[tuple[str, str], int] = {}
    for sent in history.sent:
        if sent.answer != "refused":
            tried.setdefault((sent.message.target, sent.message.id), sent.at)
    first: dict[tuple[str, str], Sent] = {}
    for sent in sorted(history.sent, key=lambda each: each.order):
        key = sent.message.target, sent.message.id
        original = first.get(key)
        if original is not None and sent.order > original.answered and sent.at < tried[key] + WINDOW_MS:
            _check_again(sent, original)
        if sent.answer == "done" and (original is None or sent.answered < original.answered):
            first[key] = sent
    for sent in history.sent:
        key = sent.message.target, sent.message.id
        original = first.get(key)
        if original is None or sent.answer != "done" or tried[key] + WINDOW_MS <= sent.at:
            continue
        if sent.sequence != original.sequence:
            raise Violation(
                "dedup", f"{sent.message.id} has receipts {original.sequence} and {sent.sequence}"
            )


def _check_again(sent: Sent, original: Sent) -> None:
    same = sent.message.content == original.message.content
    name = f"{sent.message.id} to {sent.message.target}"
    if sent.answer == "done" and not same:
        raise Violation("conflict", f"{name} was accepted again with other content")
    if sent.answer == "done" and not sent.duplicate:
        raise Violation("dedup", f"{name} was receipted as {original.sequence}, then anew as {sent.sequence}")
    if sent.code == "CONFLICT" and same:
        raise Violation("conflict", f"{name} was refused as a conflict, with the same content")
    if sent.code in ("MAILBOX_FULL", "DEAD_LETTERS_FULL"):
        raise Violation("dedup", f"{name} was accepted before, and its duplicate refused for want of room")
