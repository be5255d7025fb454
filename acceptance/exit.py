"""Run 4: a message that always fails ends in the one exit, with every field, in log line and dead letter."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from acceptance.heard import Lines, heard
from acceptance.verdict import Verdict
from relaymesh import Mesh
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.letters import DeadLetter

TOPIC, NAME = "order.created", "inventory"
FIELDS = ("topic", "message_id", "subscriber", "attempt", "error_code", "retryable", "final_state")
BACKOFF_MS = 20
WAIT_S = 20.0
TIMES_OUT, BROKEN = "always-times-out", "never-valid"


def run(place: Path) -> Verdict:
    verdict = Verdict("exit", "a timeout that never ends, and a message that is never valid")
    with (
        heard("relaymesh.delivery") as said,
        heard("relaymesh.alert") as alerted,
        Mesh(place / "exit") as mesh,
    ):
        mesh.on(TOPIC, NAME, backoff_ms_base=BACKOFF_MS, backoff_ms_cap=BACKOFF_MS * 8)(_inventory)
        mesh.publish(TOPIC, {"how": "timeout"}, id=TIMES_OUT)
        mesh.publish(TOPIC, {"how": "invalid"}, id=BROKEN)
        letters = _letters(mesh, 2)
        pending = mesh.stats().pending
    by_id = {letter.message_id: letter for letter in letters}
    verdict.numbers = {
        "dead_letters": len(letters),
        "attempts": {letter.message_id: letter.attempts for letter in letters},
        "codes": {letter.message_id: letter.code for letter in letters},
        "lines": len(said.records),
        "alerts": len(alerted.records),
        "pending": pending,
    }
    verdict.check("each is one dead letter, and nothing is pending", len(letters) == 2 and pending == 0)
    for id, attempts, code in ((TIMES_OUT, 4, "timeout"), (BROKEN, 1, "invalid")):
        letter = by_id.get(id)
        verdict.check(
            f"{id}: dead letter after {attempts} attempts, every field", _whole(letter, attempts, code)
        )
        lines = said.of(id, "dead_letter")
        verdict.check(
            f"{id}: one line in the log, every field", len(lines) == 1 and _said(lines[0], attempts, code)
        )
    verdict.check("the attempts before were logged as retryable", _retries_said(said) == 3)
    verdict.check("a timeout that gives up raises an alert", len(alerted.of(TIMES_OUT, "dead_letter")) == 1)
    return verdict


def _inventory(delivery: Delivery) -> None:
    if delivery.content["how"] == "timeout":
        raise TimeoutError("the stock system did not answer")
    delivery.nack("no such article", code="invalid", retryable=False)


def _letters(mesh: Mesh, count: int) -> list[DeadLetter]:
    deadline = time.monotonic() + WAIT_S
    while len(letters := mesh.dead_letters()) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return letters


def _whole(letter: DeadLetter | None, attempts: int, code: str) -> bool:
    """Topic, message id, subscriber, attempts, error code, reason, and every attempt with its own."""
    return (
        letter is not None
        and letter.topic == TOPIC
        and letter.subscriber == NAME
        and letter.attempts == attempts
        and letter.code == code
        and bool(letter.reason and letter.error)
        and letter.status == "pending"
        and [failure.attempt for failure in letter.failures] == list(range(1, attempts + 1))
        and all(failure.code == code and failure.reason for failure in letter.failures)
    )


def _said(record: logging.LogRecord, attempts: int, code: str) -> bool:
    """Every field, as a field and in the text."""
    fields: dict[str, Any] = {name: getattr(record, name, None) for name in FIELDS}
    text = record.getMessage()
    return (
        fields["topic"] == TOPIC
        and fields["subscriber"] == NAME
        and fields["attempt"] == attempts
        and fields["error_code"] == code
        and fields["retryable"] is False
        and all(f"{name}=" in text for name in FIELDS)
    )


def _retries_said(lines: Lines) -> int:
    return sum(
        1
        for record in lines.records
        if getattr(record, "message_id", None) == TIMES_OUT and getattr(record, "retryable", False)
    )
