"""The circuit breaker: a sick receiver's messages wait, and burn no attempts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from relaymesh.errors import InvalidSettings, UnknownRecipient
from relaymesh.kernel.commands import Expect, SetBreaker, Stop, Unsubscribe
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver, ids, names
from tests.kernel.durable import durable
from tests.kernel.patient import QUICK, Patient

# -- closed to open: failures in a row ---------------------------------------------------------


def test_failures_in_a_row_open_it_and_nothing_goes_out() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.fail(2)
    assert mesh.state == "closed"
    mesh.fail(1)
    assert mesh.state == "open"
    assert mesh.take(5) == []


def test_the_step_says_that_it_opened_and_why() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    (moved,) = mesh.moved
    assert (moved.mailbox, moved.state) == (mesh.here, "open")
    assert moved.why == "3 deliveries failed in a row"
    assert (moved.retry_rate, moved.threshold) == (1.0, 0.05)
    assert moved.until == mesh.now + 10 * SECOND


def test_a_success_ends_the_run() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.fail(2)
    mesh.ack(*mesh.take())
    mesh.fail(2)
    assert mesh.state == "closed"
    mesh.fail(1)
    assert mesh.state == "open"


@pytest.mark.parametrize("how", ["invalid", "fatal", "conflict", "not retryable", "drop"])
def test_a_message_that_is_refused_for_good_is_no_sign_of_a_sick_receiver(how: str) -> None:
    mesh = Patient()
    mesh.fill(10)
    for lease in mesh.take(10):
        if how == "drop":
            mesh.drop(lease)
        elif how == "not retryable":
            mesh.nack(lease, retryable=False)
        else:
            mesh.nack(lease, code=how)
    assert mesh.state == "closed"
    assert mesh.box(mesh.here).breaker.retry_rate(mesh.now) == 0


@pytest.mark.parametrize("code", ["other", "timeout", "rate_limited"])
def test_failures_without_a_retry_left_count_too(code: str) -> None:
    mesh = Patient(max_retries=0)
    mesh.fill(5)
    for lease in mesh.take(3):
        mesh.nack(lease, code=code)
    assert mesh.state == "open"
    assert len(mesh.letters) == 3


def test_deferring_and_releasing_say_nothing_about_the_receiver() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.fail(2)
    for _ in range(3):
        (lease,) = mesh.take()
        mesh.nack(lease, until=mesh.now)
        (lease,) = mesh.take()
        mesh.release(lease)
    assert mesh.state == "closed"
    mesh.fail(1)
    assert mesh.state == "open"


def test_a_holder_that_falls_silent_with_many_deliveries_is_one_failure_in_a_row() -> None:
    mesh = Patient()
    mesh.fill(20)
    mesh.take(20)
    mesh.advance(MINUTE)
    assert mesh.state == "closed"
    for _ in range(2):
        mesh.take(20)
        mesh.advance(MINUTE)
    assert mesh.state == "open"


def test_an_expired_lease_is_a_failure_whatever_the_contract_says_of_timeouts() -> None:
    mesh = Patient(contract={"timeout": Rule(0)}, lease_ms=SECOND)
    mesh.fill(3)
    for _ in range(3):
        mesh.take()
        mesh.advance(SECOND)
    assert mesh.state == "open"


def test_a_restart_is_no_failure_and_begins_closed() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.take(9)
    mesh.restart()
    assert mesh.state == "closed"
    mesh.sicken()
    mesh.restart()
    assert mesh.state == "closed"
    assert len(mesh.take(9)) == 9


def test_nothing_of_it_is_in_the_journal_or_a_checkpoint() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    live = durable(mesh.kernel.state)
    before = len(mesh.records)
    mesh.do(SetBreaker(mesh.here, open=True))
    mesh.do(SetBreaker(mesh.here, open=False))
    assert len(mesh.records) == before
    mesh.do(SetBreaker(mesh.here, open=True))
    assert durable(mesh.kernel.state) == live
    mesh.restart_from_snapshot()
    assert mesh.state == "closed"


def test_it_may_be_switched_off() -> None:
    mesh = Patient(breaker=False)
    mesh.fill(5)
    mesh.fail(40)
    assert mesh.state == "closed"
    assert mesh.box(mesh.here).breaker.retry_rate(mesh.now) == 1


def test_by_default_fifty_in_a_row_open_it_and_a_poison_message_alone_does_not() -> None:
    mesh = Driver()
    box = mesh.agent(backoff_ms_base=0)
    mesh.send(box, *names("m", 20))
    for _ in range(49):
        mesh.nack(*mesh.receive(box))
    assert mesh.box(box).breaker.state == "closed"
    mesh.nack(*mesh.receive(box))
    assert mesh.box(box).breaker.state == "open"


# -- open to half-open and on ------------------------------------------------------------------


def test_waiting_burns_no_attempts() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    before = mesh.attempts()
    for _ in range(9):
        assert mesh.take(5) == []
        mesh.advance(SECOND)
    assert mesh.attempts() == before


def test_the_ttl_runs_while_it_is_open() -> None:
    mesh = Patient()
    mesh.fill(3, ttl_ms=5 * SECOND)
    mesh.sicken()
    mesh.advance(7 * SECOND)
    assert mesh.state == "open"
    assert mesh.pending(mesh.here) == []
    assert {dead.reason for dead in mesh.letters} == {"ttl_expired"}


def test_a_full_mailbox_refuses_as_ever() -> None:
    mesh = Patient(capacity=3)
    mesh.fill(3)
    mesh.sicken()
    with pytest.raises(Exception, match="is full"):
        mesh.fill(1)


def test_after_the_wait_it_gives_out_probes_only() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND - 1)
    assert mesh.take(9) == []
    mesh.advance(1)
    assert mesh.state == "half-open"
    assert [moved.state for moved in mesh.moved] == ["half-open"]
    assert len(mesh.take(9)) == 2
    assert mesh.take(9) == []


def test_the_kernel_says_when_the_wait_is_over_and_who_waits_is_served() -> None:
    mesh = Patient()
    mesh.fill(2, ttl_ms=0)
    mesh.sicken()
    waiter = mesh.wait(mesh.here, 9)
    assert mesh.kernel.next_event_at == mesh.box(mesh.here).breaker.until
    step = mesh.advance(10 * SECOND)
    assert step.delivered is not None
    assert step.delivered[0].waiter is waiter
    assert len(step.delivered[0].deliveries.rows()) == 2


def test_enough_successful_probes_close_it() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    first, second = mesh.take(9)
    mesh.ack(first)
    assert mesh.state == "half-open"
    mesh.ack(second)
    assert mesh.state == "closed"
    assert [(moved.state, moved.why) for moved in mesh.moved] == [("closed", "2 probes passed")]
    assert len(mesh.take(9)) == 7
    assert mesh.box(mesh.here).breaker.retry_rate(mesh.now) == 0


def test_closing_serves_whoever_waits_in_the_same_step() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    probes = mesh.take(9)
    mesh.wait(mesh.here, 9)
    mesh.ack(*probes)
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 3


def test_a_probe_that_passed_makes_room_for_another() -> None:
    mesh = Patient(breaker_probes=3)
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    probes = mesh.take(9)
    mesh.wait(mesh.here, 9)
    mesh.ack(probes[0])
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 1


def test_a_probe_of_a_bad_message_passes() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    for lease in mesh.take(9):
        mesh.nack(lease, code="invalid")
    assert mesh.state == "closed"


@pytest.mark.parametrize("how", ["nack", "expired"])
def test_a_failed_probe_opens_it_again(how: str) -> None:
    mesh = Patient(lease_ms=SECOND)
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    first, second = mesh.take(9)
    mesh.ack(first)
    if how == "nack":
        mesh.nack(second)
    else:
        mesh.advance(SECOND)
    assert mesh.state == "open"
    assert mesh.moved[0].why == "a probe failed"
    assert mesh.take(9) == []


def test_probes_that_passed_before_one_failed_do_not_count_the_next_time() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    first, second = mesh.take(9)
    mesh.ack(first)
    mesh.nack(second)
    mesh.advance(20 * SECOND)
    first, second = mesh.take(9)
    mesh.ack(first)
    assert mesh.state == "half-open"
    mesh.ack(second)
    assert mesh.state == "closed"


def test_the_wait_doubles_with_each_failed_probe_up_to_eight_times() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    waits = []
    for _ in range(6):
        breaker = mesh.box(mesh.here).breaker
        waits.append((breaker.until - mesh.now) // SECOND)
        mesh.advance(breaker.until - mesh.now)
        mesh.fail(1)
    assert waits == [10, 20, 40, 80, 80, 80]
    mesh.advance(80 * SECOND)
    mesh.ack(*mesh.take(9))
    mesh.sicken()
    assert mesh.box(mesh.here).breaker.until - mesh.now == 10 * SECOND


def test_what_went_out_before_it_opened_proves_nothing() -> None:
    mesh = Patient()
    mesh.fill(9)
    old = mesh.take(4)
    mesh.sicken()
    mesh.ack(old[0])
    assert mesh.state == "open"
    mesh.advance(10 * SECOND)
    mesh.nack(old[1])
    mesh.ack(old[2], old[3])
    assert mesh.state == "half-open"


@pytest.mark.parametrize("how", ["release", "defer", "defer too often"])
def test_a_probe_that_says_nothing_makes_room_for_another(how: str) -> None:
    mesh = Patient(max_deferrals=0 if how == "defer too often" else 100)
    mesh.fill(9)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    probes = mesh.take(9)
    mesh.wait(mesh.here, 9)
    if how == "release":
        mesh.release(probes[0])
    else:
        mesh.nack(probes[0], until=mesh.now + MINUTE)
    assert mesh.state == "half-open"
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 1


def test_one_delivery_after_the_other_is_enough_to_close_it() -> None:
    mesh = Patient(breaker_probes=3, ordered=True)
    mesh.fill(5)
    mesh.sicken()
    mesh.advance(10 * SECOND)
    for _ in range(3):
        assert mesh.state == "half-open"
        mesh.ack(*mesh.take())
    assert mesh.state == "closed"


def test_lanes_keep_their_order_across_open_and_close() -> None:
    mesh = Patient()
    order = [f"{lane}{i}" for i in range(4) for lane in "ab"]
    for name in order:
        mesh.send(mesh.here, name, key=name[0])
    got: list[str] = []
    mesh.sicken()
    for _ in range(20):
        mesh.advance(10 * SECOND)
        leases = mesh.take(3)
        got += ids(leases)
        mesh.ack(*leases)
    assert [name for name in got if name[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [name for name in got if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


def test_only_the_sick_mailbox_waits() -> None:
    mesh = Patient()
    other = mesh.agent("other", **mesh.box_settings)
    mesh.fill(5)
    mesh.send(other, "x")
    mesh.sicken()
    assert ids(mesh.receive(other)) == ["x"]


def test_each_subscription_has_its_own() -> None:
    mesh = Driver()
    sick = mesh.subscription("order.*", "sick", backoff_ms_base=0, **QUICK)
    well = mesh.subscription("order.*", "well", **QUICK)
    mesh.publish("order.created", *names("m", 5))
    for _ in range(3):
        mesh.nack(*mesh.receive(sick))
    assert mesh.receive(sick, 5) == []
    assert len(mesh.receive(well, 5)) == 5


def test_a_subscription_that_is_gone_is_not_woken() -> None:
    mesh = Driver()
    box = mesh.subscription("order.*", "s", backoff_ms_base=0, **QUICK)
    mesh.publish("order.created", *names("m", 5))
    for _ in range(3):
        mesh.nack(*mesh.receive(box))
    mesh.do(Unsubscribe(box))
    assert mesh.advance(HOUR).moved is None
    assert len(mesh.kernel.state.wakes) == 0


def test_nobody_is_served_after_a_stop() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    mesh.wait(mesh.here)
    mesh.do(Stop())
    assert mesh.advance(HOUR).delivered is None


def test_at_most_once_has_no_failures_and_passes_every_probe() -> None:
    mesh = Patient()
    mesh.fill(9)
    mesh.sicken()
    mesh.agent(**mesh.box_settings, delivery_semantics="at_most_once")
    assert mesh.state == "open"
    mesh.advance(10 * SECOND)
    assert len(mesh.take(9)) == 2
    assert mesh.state == "closed"


# -- answers, and hands ------------------------------------------------------------------------


def test_an_answer_that_is_waited_for_passes_an_open_breaker() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.do(Expect(mesh.here, "question"))
    mesh.sicken()
    waiter = mesh.wait(mesh.here, correlation_id="question")
    (receipt,) = mesh.send(mesh.here, "answer", correlation_id="question")
    assert mesh.step.delivered is not None
    assert mesh.step.delivered[0].waiter is waiter
    assert receipt.id == "answer"
    assert mesh.state == "open"


def test_an_answer_is_no_sign_of_health() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.do(Expect(mesh.here, "question"))
    mesh.fail(2)
    mesh.send(mesh.here, "answer", correlation_id="question")
    mesh.ack(*mesh.receive(mesh.here, correlation_id="question"))
    mesh.fail(1)
    assert mesh.state == "open"


def test_a_hand_opens_it_until_a_hand_closes_it() -> None:
    mesh = Patient(breaker=False)
    mesh.fill(5, ttl_ms=0)
    mesh.do(SetBreaker(mesh.here, open=True))
    assert [(moved.state, moved.why, moved.until) for moved in mesh.moved] == [("open", "by hand", NEVER)]
    mesh.wait(mesh.here, 9)
    mesh.advance(24 * HOUR)
    assert mesh.state == "open"
    mesh.agent(**{**mesh.box_settings, "breaker_failures": 9})
    assert mesh.state == "open"
    step = mesh.do(SetBreaker(mesh.here, open=False))
    assert mesh.state == "closed"
    assert step.delivered is not None
    assert len(step.delivered[0].deliveries.rows()) == 5


def test_a_hand_may_close_what_opened_by_itself_and_twice_is_once() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    mesh.do(SetBreaker(mesh.here, open=False))
    assert len(mesh.take(9)) == 5
    assert mesh.do(SetBreaker(mesh.here, open=False)).moved is None
    assert mesh.advance(10 * SECOND).moved is None
    assert mesh.state == "closed"


def test_there_is_no_breaker_without_a_mailbox() -> None:
    with pytest.raises(UnknownRecipient):
        Driver().do(SetBreaker("default/nobody", open=True))


# -- settings ----------------------------------------------------------------------------------


def test_other_thresholds_begin_anew_and_serve_whoever_waits() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    mesh.wait(mesh.here, 9)
    mesh.agent(**{**mesh.box_settings, "breaker": False})
    assert mesh.state == "closed"
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 5


def test_other_settings_leave_it_as_it_is() -> None:
    mesh = Patient()
    mesh.fill(5)
    mesh.sicken()
    mesh.agent(**{**mesh.box_settings, "capacity": 77})
    assert mesh.state == "open"


def test_settings_of_an_older_journal_have_the_defaults() -> None:
    old = msgspec.msgpack.encode([50, 4_000, "fifo", 100, 0, 3, 1000, 60000, 0.25, 100, True])
    read = msgspec.msgpack.decode(old, type=MailboxSettings)
    assert (read.capacity, read.schedule, read.max_retries, read.ordered) == (50, "fifo", 3, True)
    assert (read.breaker, read.breaker_retry_rate, read.breaker_window_ms) == (True, 0.05, 10 * MINUTE)
    assert (read.rate_per_s, read.rate_burst) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"breaker_retry_rate": -0.1},
        {"breaker_retry_rate": 5},
        {"breaker_retry_rate": float("nan")},
        {"breaker_window_ms": 0},
        {"breaker_open_ms": 0},
        {"breaker_min_outcomes": 0},
        {"breaker_probes": 0},
        {"breaker_failures": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        MailboxSettings(**wrong)
