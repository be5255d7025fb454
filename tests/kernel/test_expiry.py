"""TTL (DESIGN section 3): from when the message is due, only while pending, anew after a redrive."""

from __future__ import annotations

import pytest

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


def test_the_ttl_goes_on_while_a_retry_waits() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", ttl_ms=10 * SECOND)
    mesh.nack(*mesh.receive(box), delay_ms=MINUTE)
    mesh.advance(10 * SECOND + NOTICED_WITHIN)
    (dead,) = mesh.letters
    assert (dead.reason, dead.attempts) == ("ttl_expired", 1)


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
