"""Retries and failure contracts (DESIGN section 3): how often, when, and where it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.contract import Contract, Rule
from relaymesh.kernel.retry import backoff_ms
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver


def attempts_until_the_end(mesh: Driver, box: str, code: str, **fields: object) -> tuple[int, str]:
    """Fail with `code` until the message is gone; answers the attempts and the last outcome."""
    for attempt in range(1, 50):
        (lease,) = mesh.receive(box)
        assert lease.attempt == attempt
        outcome = mesh.nack(lease, code=code, **fields)
        if outcome != "retrying":
            return attempt, outcome
        mesh.advance(5 * MINUTE + 1)
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("code", "attempts", "end"),
    [
        ("timeout", 4, "dead_letter"),
        ("invalid", 1, "dead_letter"),
        ("rate_limited", 6, "dead_letter"),
        ("conflict", 1, "success"),
        ("duplicate", 1, "success"),
        ("fatal", 1, "dead_letter"),
        ("other", 4, "dead_letter"),
        ("never heard of", 4, "dead_letter"),
    ],
)
def test_the_default_failure_contract(code: str, attempts: int, end: str) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    assert attempts_until_the_end(mesh, box, code) == (attempts, end)
    assert mesh.pending(box) == []
    assert len(mesh.letters) == (end == "dead_letter")


@pytest.mark.parametrize(("code", "alert"), [("timeout", True), ("fatal", True), ("other", False)])
def test_ending_on_a_timeout_or_a_fatal_error_wakes_somebody(code: str, alert: bool) -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=0)
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), code=code)
    assert [ended.alert for ended in mesh.ended] == [alert]


def test_a_mailbox_s_own_rows_come_before_the_default_table() -> None:
    contract: Contract = {"invalid": Rule(0, "drop"), "timeout": Rule(1), "other": Rule(2)}
    mesh = Driver()
    box = mesh.agent(contract=contract)
    ends = {}
    for code in ("invalid", "timeout", "never heard of", "rate_limited"):
        mesh.send(box, code)
        ends[code] = attempts_until_the_end(mesh, box, code)
    assert ends == {
        "invalid": (1, "dropped"),
        "timeout": (2, "dead_letter"),
        "never heard of": (3, "dead_letter"),
        "rate_limited": (6, "dead_letter"),
    }
    assert mesh.box(box).counters.dropped == 1


@pytest.mark.parametrize(
    ("message", "mailbox", "attempts"), [(None, None, 4), (None, 1, 2), (2, 1, 3), (0, 5, 1)]
)
def test_the_message_s_wish_wins_then_the_mailbox_s_then_the_contract_s(
    message: int | None, mailbox: int | None, attempts: int
) -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=mailbox)
    mesh.send(box, "m", max_retries=message)
    assert attempts_until_the_end(mesh, box, "other")[0] == attempts


@pytest.mark.parametrize(
    ("message", "mailbox", "attempts"),
    [(None, None, 3), (None, 9, 3), (9, None, 3), (None, 1, 2), (1, 9, 2), (9, 1, 3), (0, None, 1)],
)
def test_the_smaller_of_max_retries_and_the_contract_s_own_number_counts(
    message: int | None, mailbox: int | None, attempts: int
) -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=mailbox, contract={"busy": Rule(2)})
    mesh.send(box, "m", max_retries=message)
    assert attempts_until_the_end(mesh, box, "busy")[0] == attempts


def test_a_row_that_is_a_default_leaves_the_number_to_max_retries() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=5, contract={"busy": Rule(2, default=True)})
    mesh.send(box, "m")
    assert attempts_until_the_end(mesh, box, "busy")[0] == 6


def test_a_contract_may_set_the_delay_before_each_retry() -> None:
    mesh = Driver()
    box = mesh.agent(contract={"busy": Rule(2, after_ms=MINUTE)}, lease_ms=HOUR)
    mesh.send(box, "m")
    for attempt in (1, 2):
        mesh.nack(*mesh.receive(box), code="busy")
        assert mesh.entry(box, "m").ready_at == mesh.now + MINUTE, attempt
        mesh.advance(MINUTE - 1)
        assert mesh.receive(box) == []
        mesh.advance(1)
    mesh.nack(*mesh.receive(box), code="busy", delay_ms=1)
    assert [letter.reason for letter in mesh.letters] == ["retries_exhausted"]


def test_the_delay_a_nack_asks_for_comes_before_the_contract_s() -> None:
    mesh = Driver()
    box = mesh.agent(contract={"busy": Rule(2, after_ms=MINUTE)})
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), code="busy", delay_ms=5)
    assert mesh.entry(box, "m").ready_at == mesh.now + 5


def test_no_wish_gives_a_retry_to_an_error_the_contract_calls_final() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=5)
    mesh.send(box, "m", max_retries=5)
    assert attempts_until_the_end(mesh, box, "fatal") == (1, "dead_letter")


def test_a_nack_that_is_not_retryable_ends_at_once() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    assert attempts_until_the_end(mesh, box, "other", retryable=False) == (1, "dead_letter")
    assert mesh.letters[0].reason == "not_retryable"


def test_the_delay_before_retry_n_doubles_up_to_the_cap() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=10)
    mesh.send(box, "m")
    delays = []
    for _ in range(8):
        mesh.nack(*mesh.receive(box))
        entry = mesh.entry(box, "m")
        delays.append((entry.ready_at - mesh.now) // SECOND)
        mesh.advance(entry.ready_at - mesh.now)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


@given(
    retry=st.integers(1, 100),
    chance=st.floats(0, 1, exclude_max=True),
    base=st.integers(0, 5_000),
    cap=st.integers(5_000, 300_000),
    jitter=st.floats(0, 1),
)
def test_jitter_adds_at_most_its_share_and_never_takes_any(
    retry: int, chance: float, base: int, cap: int, jitter: float
) -> None:
    settings = MailboxSettings(backoff_ms_base=base, backoff_ms_cap=cap, backoff_jitter=jitter)
    plain = min(base * 2 ** (retry - 1), cap)
    assert plain <= backoff_ms(settings, retry, chance) <= plain * (1 + jitter) + 1


def test_five_minutes_is_the_largest_cap() -> None:
    MailboxSettings(backoff_ms_cap=5 * MINUTE)
    with pytest.raises(InvalidSettings, match="backoff_ms_cap"):
        MailboxSettings(backoff_ms_cap=5 * MINUTE + 1)


def test_the_time_of_a_retry_is_in_the_record_so_that_a_replay_rolls_no_dice() -> None:
    mesh = Driver(chance=0.77)
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box))
    due = mesh.entry(box, "m").ready_at
    assert due == mesh.now + 1_192
    mesh.chance = 0.0
    mesh.restart()
    assert mesh.entry(box, "m").ready_at == due


def test_a_nack_may_set_its_own_delay() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), delay_ms=7)
    mesh.advance(6)
    assert mesh.receive(box) == []
    mesh.advance(1)
    assert mesh.receive(box)[0].attempt == 2


def test_a_nack_until_burns_no_attempt() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=0)
    mesh.send(box, "m", ttl_ms=0)
    for _ in range(10):
        (lease,) = mesh.receive(box)
        assert lease.attempt == 1
        assert mesh.nack(lease, until=mesh.now + HOUR) == "deferred"
        mesh.advance(HOUR - 1)
        assert mesh.receive(box) == []
        mesh.advance(1)


def test_a_nack_until_is_capped_then_a_dead_letter() -> None:
    mesh = Driver()
    box = mesh.agent(max_deferrals=2)
    mesh.send(box, "m")
    outcomes = [mesh.nack(*mesh.receive(box), until=mesh.now) for _ in range(3)]
    assert outcomes == ["deferred", "deferred", "dead_letter"]
    assert mesh.letters[0].reason == "deferred_too_often"
    assert len(mesh.letters[0].failures) == 3


def test_a_nack_until_a_time_gone_by_is_ready_at_once_and_last_in_line() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.now += SECOND
    mesh.nack(lease, until=mesh.now - HOUR)
    assert mesh.entry(box, "m").ready_at == mesh.now


def test_a_dropped_delivery_is_counted_and_leaves_no_dead_letter() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.drop(*mesh.receive(box))
    assert mesh.box(box).counters.dropped == 1
    assert mesh.letters == []


def test_each_failure_ends_in_exactly_one_line() -> None:
    """DESIGN promise 11: mailbox, message, attempt, code, retryable and final state, once."""
    mesh = Driver()
    box = mesh.agent(max_retries=1)
    mesh.send(box, "m")
    lines = []
    for _ in range(2):
        mesh.nack(*mesh.receive(box), code="other", reason="no luck")
        lines += mesh.ended
        mesh.advance(MINUTE)
    seen = [(x.mailbox, x.message_id, x.attempt, x.code, x.retryable, x.final_state, x.reason) for x in lines]
    assert seen == [
        (box, "m", 1, "other", True, "retrying", "no luck"),
        (box, "m", 2, "other", False, "dead_letter", "no luck"),
    ]


def test_success_at_last_is_a_line_too() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), delay_ms=0)
    mesh.ack(*mesh.receive(box))
    assert [(x.attempt, x.final_state) for x in mesh.ended] == [(2, "success")]


def test_a_restart_is_a_failure_with_a_line_of_its_own() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.receive(box)
    mesh.restart()
    assert [(x.attempt, x.code, x.final_state) for x in mesh.ended] == [(1, "timeout", "retrying")]


def test_a_restart_ends_what_has_no_attempt_left_as_its_contract_says() -> None:
    mesh = Driver()
    box = mesh.agent(contract={"timeout": Rule(0, "drop")})
    mesh.send(box, "m")
    mesh.receive(box)
    mesh.restart()
    assert mesh.letters == []
    assert [x.final_state for x in mesh.ended] == ["dropped"]
