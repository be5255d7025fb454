"""TTL (DESIGN section 3): from when the message is due, only while pending, anew after a redrive."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.kernel.bounds import DURATION_MS_MAX
from relaymesh.kernel.commands import Expect, Tick
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver, ids

NOTICED_WITHIN = 2_048  # TTLs are looked after by the second


def test_the_default_ttl_is_one_hour() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.advance(HOUR - 1)
    assert mesh.pending(box) == ["m"]
    mesh.advance(NOTICED_WITHIN)
    assert mesh.pending(box) == []
    (dead,) = mesh.letters
    assert (dead.reason, dead.code, dead.attempts) == ("ttl_expired", "ttl_expired", 0)
    assert mesh.box(box).counters.expired == 1


def test_a_ttl_of_zero_is_never_over() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", ttl_ms=0)
    mesh.advance(1000 * HOUR)
    assert ids(mesh.receive(box)) == ["m"]


def test_an_expired_message_is_not_delivered_even_before_anybody_looked_for_it() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "old", ttl_ms=5)
    mesh.send(box, "new")
    mesh.now += 4
    mesh.release(*mesh.receive(box))
    mesh.now += 1
    assert ids(mesh.receive(box, 5)) == ["new"]
    assert [letter.envelope.id for letter in mesh.letters] == ["old"]


@pytest.mark.parametrize("schedule", ["weighted", "strict", "fifo"])
def test_expired_messages_among_others_are_left_out_of_a_batch(schedule: str) -> None:
    mesh = Driver()
    box = mesh.agent(schedule=schedule)
    for i in range(6):
        mesh.send(box, f"m{i}", ttl_ms=5 if i % 2 else 0)
    mesh.now += 5
    assert ids(mesh.receive(box, 10)) == ["m0", "m2", "m4"]
    assert [letter.envelope.id for letter in mesh.letters] == ["m1", "m3", "m5"]


def test_an_expired_answer_is_not_delivered_to_whoever_asked() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.do(Expect(box, "question"))
    mesh.send(box, "answer", correlation_id="question", ttl_ms=5)
    mesh.now += 5
    assert mesh.receive(box, correlation_id="question") == []
    assert [letter.envelope.id for letter in mesh.letters] == ["answer"]


def test_the_ttl_of_a_delayed_message_runs_from_when_it_is_due() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=10 * MINUTE, ttl_ms=MINUTE)
    mesh.advance(10 * MINUTE)
    mesh.advance(MINUTE - 1)
    assert ids(mesh.receive(box)) == ["m"]


def test_the_ttl_of_a_forced_message_runs_from_when_it_was_forced() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=10 * MINUTE, ttl_ms=MINUTE)
    mesh.force_delayed()
    mesh.advance(MINUTE + NOTICED_WITHIN)
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_a_forced_message_expires_once_however_late_anybody_looks() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=10 * MINUTE, ttl_ms=MINUTE)
    mesh.force_delayed()
    mesh.advance(HOUR)
    assert len(mesh.letters) == 1
    assert mesh.box(box).counters.dead == 1


def test_a_message_that_is_out_with_a_holder_does_not_expire() -> None:
    mesh = Driver()
    box = mesh.agent(lease_ms=HOUR)
    mesh.send(box, "m", ttl_ms=SECOND)
    (lease,) = mesh.receive(box)
    mesh.advance(MINUTE)
    assert mesh.ack(lease) == []


def test_a_message_that_comes_back_too_late_expires() -> None:
    mesh = Driver()
    box = mesh.agent(lease_ms=HOUR)
    mesh.send(box, "m", ttl_ms=SECOND)
    (lease,) = mesh.receive(box)
    mesh.advance(MINUTE)
    mesh.nack(lease)
    mesh.do(Tick())
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


@pytest.mark.parametrize("asked", [{"delay_ms": 2 * HOUR}, {"until": 3_000 * HOUR}])
@pytest.mark.parametrize("restart", [False, True])
def test_the_wait_that_a_nack_asks_for_is_no_part_of_the_ttl(asked: dict[str, Any], restart: bool) -> None:
    """Of the hour it has, twenty minutes are over when it fails, and forty are left when it is due again."""
    mesh = Driver(now=2_998 * HOUR)
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.advance(20 * MINUTE)
    mesh.nack(*mesh.receive(box), **asked)
    if restart:
        mesh.restart_from_snapshot()
    due = mesh.entry(box, "m").ready_at
    mesh.advance(due - mesh.now)
    taken = mesh.receive(box)
    assert ids(taken) == ["m"]
    mesh.release(*taken)
    mesh.advance(due + 40 * MINUTE - mesh.now - 1)
    assert mesh.pending(box) == ["m"]
    mesh.advance(NOTICED_WITHIN)
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_waits_add_up_and_are_bounded_by_the_number_of_deferrals() -> None:
    mesh = Driver()
    box = mesh.agent(max_deferrals=3)
    mesh.send(box, "m")
    for _ in range(3):
        mesh.nack(*mesh.receive(box), until=mesh.now + 5 * HOUR)
        mesh.advance(5 * HOUR)
    mesh.nack(*mesh.receive(box), until=mesh.now + 5 * HOUR)
    assert [letter.reason for letter in mesh.letters] == ["deferred_too_often"]


def test_the_backoff_after_a_lease_ran_out_is_part_of_the_ttl() -> None:
    """Nobody asked for it."""
    mesh = Driver()
    box = mesh.agent(lease_ms=SECOND, backoff_ms_base=MINUTE, backoff_ms_cap=MINUTE)
    mesh.send(box, "m", ttl_ms=MINUTE)
    mesh.receive(box)
    mesh.advance(SECOND)
    mesh.advance(MINUTE - SECOND + NOTICED_WITHIN)
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_a_message_that_was_out_when_its_first_ttl_ended_still_expires() -> None:
    mesh = Driver()
    box = mesh.agent(lease_ms=3 * HOUR)
    mesh.send(box, "m")
    mesh.advance(HOUR - MINUTE)
    mesh.nack(*mesh.receive(box), delay_ms=HOUR)
    mesh.advance(HOUR)
    (lease,) = mesh.receive(box)
    mesh.advance(HOUR)
    mesh.release(lease)
    mesh.advance(NOTICED_WITHIN)
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_the_longest_waits_can_be_kept_and_read_back() -> None:
    mesh = Driver()
    box = mesh.agent(max_deferrals=100)
    mesh.send(box, "m", ttl_ms=DURATION_MS_MAX)
    mesh.nack(*mesh.receive(box), until=DURATION_MS_MAX)
    mesh.restart_from_snapshot()
    mesh.advance(DURATION_MS_MAX - mesh.now)
    mesh.nack(*mesh.receive(box), delay_ms=DURATION_MS_MAX)
    mesh.restart_from_snapshot()
    assert mesh.entry(box, "m").waited_ms == DURATION_MS_MAX
    assert mesh.pending(box) == ["m"]


def test_the_ttl_starts_anew_after_a_redrive() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", ttl_ms=MINUTE)
    mesh.advance(HOUR)
    mesh.redrive(*mesh.letters)
    mesh.advance(MINUTE - 1)
    assert ids(mesh.receive(box)) == ["m"]


def test_messages_expire_while_the_mesh_is_down() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.now += 2 * HOUR
    mesh.restart()
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_the_kernel_knows_when_to_look() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", ttl_ms=MINUTE)
    expires = mesh.now + MINUTE
    assert expires <= mesh.kernel.next_event_at <= expires + NOTICED_WITHIN
    mesh.now = mesh.kernel.next_event_at
    mesh.do(Tick())
    assert len(mesh.letters) == 1
