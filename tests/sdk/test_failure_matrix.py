"""The failure contract's matrix, T1 to T5, with the fields that every log line of it must have."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relaymesh import MailboxFull
from relaymesh.kernel.contract import Rule
from relaymesh.testing import ManualMesh

FIELDS = ("topic", "message_id", "subscriber", "attempt", "error_code", "retryable", "final_state")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """What the one place for failures has logged so far, as tuples of `FIELDS`."""
    caplog.set_level(logging.INFO, "relaymesh")

    def read(logger: str = "relaymesh.delivery") -> list[tuple[Any, ...]]:
        ended = [
            record for record in caplog.records if record.name == logger and hasattr(record, "final_state")
        ]
        for record in ended:  # the text has them too, for whoever reads without a parser
            assert all(f"{name}={getattr(record, name)}" in record.getMessage() for name in FIELDS)
        return [tuple(getattr(record, name) for name in FIELDS) for record in ended]

    return read


def test_t1_a_handler_that_fails_once_succeeds_at_its_second_attempt(lines: Any) -> None:
    """T1: in the end success, attempt 2; the log has both attempts of the one message id."""
    with ManualMesh() as mesh:
        attempts: list[int] = []

        @mesh.on("order.created", "inventory")
        def inventory(delivery: Any) -> None:
            attempts.append(delivery.attempt)
            if delivery.attempt == 1:
                raise TimeoutError("temporary timeout")

        mesh.publish("order.created", {"order": 1001}, id="m-1")
        mesh.advance(10)
        assert attempts == [1, 2]
        assert mesh.stats().mailboxes["default/order.created:inventory"].acked == 1
    assert lines() == [
        ("order.created", "m-1", "inventory", 1, "timeout", True, "retrying"),
        ("order.created", "m-1", "inventory", 2, "", False, "success"),
    ]


def test_t2_a_handler_that_always_fails_ends_in_the_one_exit(lines: Any) -> None:
    """T2: beyond its retries into the failure exit: counted, a dead letter, an alert. Promise 11."""
    with ManualMesh() as mesh:
        attempts: list[int] = []

        @mesh.on("order.created", "inventory")
        def inventory(delivery: Any) -> None:
            attempts.append(delivery.attempt)
            raise TimeoutError("downstream is gone")

        mesh.publish("order.created", 1, id="m-2")
        mesh.advance(3600)
        assert attempts == [1, 2, 3, 4]
        stats = mesh.stats().mailboxes["default/order.created:inventory"]
        assert (stats.dead, stats.retried, stats.pending, stats.dead_letters) == (1, 3, 0, 1)
        (letter,) = mesh.dead_letters()
        assert (letter.topic, letter.message_id, letter.subscriber) == ("order.created", "m-2", "inventory")
        assert (letter.attempts, letter.code, letter.reason) == (4, "timeout", "retries_exhausted")
        assert [failure.attempt for failure in letter.failures] == [1, 2, 3, 4]
    final = ("order.created", "m-2", "inventory", 4, "timeout", False, "dead_letter")
    assert lines() == [
        *(("order.created", "m-2", "inventory", n, "timeout", True, "retrying") for n in (1, 2, 3)),
        final,
    ]
    assert lines("relaymesh.alert") == [final]


def test_t3_an_invalid_message_is_not_tried_again(lines: Any) -> None:
    """T3: no retry, failed at once; the retry count does not grow."""

    class ValidationError(Exception):
        pass

    with ManualMesh() as mesh:
        attempts: list[int] = []

        @mesh.on("order.created", "inventory")
        def inventory(delivery: Any) -> None:
            attempts.append(delivery.attempt)
            raise ValidationError("quantity must be positive")

        mesh.publish("order.created", {"quantity": -1}, id="m-3")
        mesh.advance(3600)
        assert attempts == [1]
        stats = mesh.stats().mailboxes["default/order.created:inventory"]
        assert (stats.retried, stats.retry_rate, stats.dead) == (0, 0.0, 1)
    assert lines() == [("order.created", "m-3", "inventory", 1, "invalid", False, "dead_letter")]


def test_t4_a_publish_that_meets_a_full_queue_is_told_so(lines: Any) -> None:
    """T4: refused or timed out, with an error code the publisher can see; never blocked for ever."""
    with ManualMesh() as mesh:
        mesh.subscribe("order.created", "inventory", capacity=2)
        for n in range(2):
            mesh.publish("order.created", n)
        with pytest.raises(MailboxFull) as refused:
            mesh.publish("order.created", 2)
        assert (refused.value.code, refused.value.retryable) == ("MAILBOX_FULL", True)
        began = mesh.now
        with pytest.raises(MailboxFull):
            mesh.publish("order.created", 2, timeout=5)
        assert (mesh.now - began).total_seconds() == 5
        assert mesh.stats().mailboxes["default/order.created:inventory"].accepted == 2
    assert lines() == []


def test_t5_a_repeated_message_id_has_one_effect(lines: Any) -> None:
    """T5: idempotent, no second effect; the memory of it is written once."""
    with ManualMesh() as mesh:
        stock = {"left": 10}

        @mesh.on("order.created", "inventory")
        def inventory(delivery: Any) -> None:
            stock["left"] -= 1

        receipts = []
        for _ in range(50):
            receipts.append(mesh.publish("order.created", {"order": 1}, id="m-5"))
            mesh.advance(1)
            receipts.append(mesh.publish("order.created", {"order": 1}, id="m-5"))
        assert stock == {"left": 9}
        assert [receipt.duplicate for receipt in receipts] == [False] + [True] * 99
        assert {receipt.sequence for receipt in receipts} == {receipts[0].sequence}
        stats = mesh.stats()
        assert stats.mailboxes["default/order.created:inventory"].accepted == 1
        assert stats.remembered_ids == 1
    assert lines() == []


def test_an_error_of_a_plain_agent_has_all_fields_too(lines: Any) -> None:
    """Promise 11, for a message that was sent and not published."""
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="a", max_retries=0)
        coder.receive(timeout=0).nack("broken", code="my_code")
        planner.send("coder", 2, id="b", ttl=1)
        mesh.advance(5)
        planner.send("coder", 3, id="c")
        coder.receive(timeout=0).drop()
    assert lines() == [
        ("", "a", "coder", 1, "my_code", False, "dead_letter"),
        ("", "b", "coder", 0, "ttl_expired", False, "dead_letter"),
        ("", "c", "coder", 1, "dropped", False, "dropped"),
    ]


@pytest.mark.parametrize(
    ("code", "attempts"),
    [
        ("INVALID_MESSAGE", 1),
        ("TASK_NOT_FOUND", 1),
        ("UNAUTHORIZED", 1),
        ("RATE_LIMITED", 6),
        ("AGENT_BUSY", 4),
        ("AGENT_OFFLINE", 4),
        ("task_not_found", 1),
        ("Invalid", 1),
        ("TIMEOUT", 4),
        ("Something_Else", 4),
    ],
)
def test_the_protocol_s_codes_are_in_the_contract_in_any_case(code: str, attempts: int) -> None:
    """What can never work is not tried again; RATE_LIMITED gets five retries."""
    with ManualMesh() as mesh:
        seen: list[int] = []

        @mesh.agent("coder").handle
        def work(delivery: Any) -> None:
            seen.append(delivery.attempt)
            delivery.nack("no", code=code)

        mesh.agent("planner").send("coder", 1, ttl=0)
        mesh.advance(3600)
        assert seen == list(range(1, attempts + 1))
        assert [letter.code for letter in mesh.dead_letters()] == [code]


@pytest.mark.parametrize(
    ("row", "code"), [("RATE_LIMITED", "rate_limited"), ("rate_limited", "RATE_LIMITED")]
)
def test_a_mailbox_s_own_row_counts_for_its_code_in_any_case(row: str, code: str) -> None:
    with ManualMesh() as mesh:
        seen: list[int] = []

        @mesh.agent("coder", contract={row: Rule(1)}).handle
        def work(delivery: Any) -> None:
            seen.append(delivery.attempt)
            delivery.nack("no", code=code)

        mesh.agent("planner").send("coder", 1, ttl=0)
        mesh.advance(3600)
        assert seen == [1, 2]
