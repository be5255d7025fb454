"""The rate limit: so many deliveries a second, exactly, and nobody polls for them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.commands import Expect
from relaymesh.kernel.rate import Rate
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import HOUR, SECOND, Driver, ids, names


def limited(count: int = 50, **settings: Any) -> tuple[Driver, str]:
    mesh = Driver()
    box = mesh.agent(**settings)
    mesh.send(box, *names("m", count), ttl_ms=0)
    return mesh, box


def test_a_batch_gets_what_the_bucket_has() -> None:
    mesh, box = limited(rate_per_s=10, rate_burst=4)
    assert len(mesh.receive(box, 9)) == 4
    assert mesh.receive(box, 9) == []
    mesh.advance(100)
    assert len(mesh.receive(box, 9)) == 1
    mesh.advance(HOUR)
    assert len(mesh.receive(box, 9)) == 4


def test_the_burst_is_a_seconds_worth_unless_said_otherwise() -> None:
    mesh, box = limited(rate_per_s=7.5)
    assert len(mesh.receive(box, 50)) == 7
    slow, box = limited(rate_per_s=0.1)
    assert len(slow.receive(box, 50)) == 1


def test_whoever_waits_is_served_at_the_very_millisecond_a_token_comes() -> None:
    mesh, box = limited(rate_per_s=3, rate_burst=1)
    mesh.receive(box)
    waiter = mesh.wait(box, 9)
    assert mesh.kernel.next_event_at == mesh.now + 334
    assert mesh.advance(333).delivered is None
    step = mesh.advance(1)
    assert step.delivered is not None
    assert (step.delivered[0].waiter, ids(step.delivered[0].deliveries.rows())) == (waiter, ["m1"])


def test_of_a_high_rate_whoever_waits_is_woken_a_hundred_times_a_second() -> None:
    mesh, box = limited(5000, rate_per_s=2_000, rate_burst=100)
    assert len(mesh.receive(box, 1000)) == 100
    wakes = served = 0
    start = mesh.now
    mesh.wait(box, 1000)
    while mesh.kernel.next_event_at < start + SECOND:
        step = mesh.advance(mesh.kernel.next_event_at - mesh.now)
        wakes += 1
        served += sum(len(delivered.deliveries.rows()) for delivered in step.delivered or ())
        mesh.wait(box, 1000)
    assert wakes == 99
    assert served == 1_980


def test_no_timer_runs_when_nothing_waits_for_a_token() -> None:
    mesh, box = limited(1, rate_per_s=1, rate_burst=1)
    (lease,) = mesh.receive(box)
    mesh.wait(box)
    mesh.ack(lease)
    assert len(mesh.kernel.state.wakes) == 0
    mesh.send(box, "next")
    assert mesh.kernel.next_event_at == mesh.now + SECOND


def test_a_retry_costs_a_token_like_any_delivery() -> None:
    mesh, box = limited(1, rate_per_s=1, rate_burst=1, backoff_ms_base=0)
    mesh.nack(*mesh.receive(box))
    assert mesh.receive(box) == []
    mesh.advance(SECOND)
    assert ids(mesh.receive(box)) == ["m0"]


def test_what_comes_back_gives_no_token_back() -> None:
    mesh, box = limited(5, rate_per_s=1, rate_burst=1)
    mesh.release(*mesh.receive(box))
    assert mesh.entry(box, "m0").attempts == 0
    assert mesh.receive(box) == []
    mesh.advance(SECOND)
    assert ids(mesh.receive(box)) == ["m0"]


def test_what_is_settled_on_the_way_out_costs_nothing() -> None:
    mesh = Driver()
    box = mesh.agent(rate_per_s=1, rate_burst=2)
    mesh.send(box, "old1", "old2", "old3", ttl_ms=1)
    mesh.send(box, "1", "2", "3", ttl_ms=0)
    mesh.now += 10
    assert ids(mesh.receive(box, 9)) == ["1", "2"]


def test_an_answer_that_is_waited_for_costs_nothing() -> None:
    mesh, box = limited(3, rate_per_s=1, rate_burst=1)
    mesh.do(Expect(box, "q"))
    assert len(mesh.receive(box, 9)) == 1
    mesh.send(box, "answer", correlation_id="q")
    assert ids(mesh.receive(box, correlation_id="q")) == ["answer"]
    mesh.advance(SECOND)
    assert len(mesh.receive(box, 9)) == 1


def test_order_and_attempts_are_untouched_by_waiting() -> None:
    mesh, box = limited(6, rate_per_s=10, rate_burst=1)
    got = []
    for _ in range(20):
        got += mesh.receive(box, 3)
        mesh.advance(50)
    assert ids(got) == list(names("m", 6))
    assert [lease.attempt for lease in got] == [1] * 6


def test_it_is_counted_once_each_time_deliveries_have_to_wait() -> None:
    mesh, box = limited(9, rate_per_s=1, rate_burst=2)
    rate = mesh.box(box).rate
    assert rate is not None
    mesh.receive(box, 2)
    assert rate.limited == 0
    for _ in range(5):
        mesh.receive(box, 2)
    assert rate.limited == 1
    mesh.advance(SECOND)
    mesh.receive(box, 2)
    mesh.receive(box, 2)
    assert rate.limited == 2


def test_another_rate_holds_at_once_and_none_sets_everything_free() -> None:
    mesh, box = limited(9, rate_per_s=1, rate_burst=1)
    mesh.receive(box)
    mesh.wait(box, 2)
    mesh.agent(rate_per_s=1, rate_burst=2)
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 2
    mesh.wait(box, 9)
    mesh.agent(capacity=100)
    assert mesh.step.delivered is not None
    assert len(mesh.step.delivered[0].deliveries.rows()) == 6


def test_a_restart_begins_with_a_full_bucket() -> None:
    mesh, box = limited(9, rate_per_s=1, rate_burst=2)
    mesh.ack(*mesh.receive(box, 2))
    mesh.restart()
    assert len(mesh.receive(box, 9)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_per_s": -1},
        {"rate_per_s": float("nan")},
        {"rate_per_s": float("inf")},
        {"rate_burst": -1},
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        MailboxSettings(**wrong)


@pytest.mark.parametrize("per_s", [0.1, 1 / 3, 7.7, 333.0, 999.999])
def test_a_day_of_taking_whatever_is_there_is_exact_to_the_token(per_s: float) -> None:
    bucket = Rate(per_s, 50)
    exact = Fraction(per_s).limit_denominator(1_000_000)
    now, taken = 1_000_000, 0
    for i in range(20_000):
        tokens = bucket.available(now)
        bucket.spend(tokens)
        taken += tokens
        if i < 19_999:
            now += 4_320 if per_s < 1 else 1 + i % 5
    assert taken == 50 + int(exact * (now - 1_000_000) / 1000)


@settings(max_examples=200, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=5_000, max_denominator=1000),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 30)), min_size=1, max_size=60),
)
def test_in_no_interval_more_than_burst_and_rate_allow(
    rate: Fraction, burst: int, receives: list[tuple[int, int]]
) -> None:
    bucket = Rate(float(rate), burst)
    exact = Fraction(float(rate)).limit_denominator(1_000_000)
    now = 1
    grants: list[tuple[int, int]] = []
    for pause, wanted in receives:
        now += pause
        given_out = min(wanted, bucket.available(now))
        bucket.spend(given_out)
        grants.append((now, given_out))
        if not given_out:
            wake = bucket.next_at()
            assert wake > now, "a wait has an end, and it is not now"
            probe = Rate(float(rate), burst)
            probe._level, probe._then = bucket._level, bucket._then
            assert probe.available(wake) >= 1
    for i, (start, _) in enumerate(grants):
        total = 0
        for end, count in grants[i:]:
            total += count
            assert total <= burst + exact * (end - start) / 1000


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([0.5, 3.0, 20.0, 400.0]),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 8), st.booleans()), min_size=1, max_size=40),
)
def test_a_mailbox_never_gives_out_more_and_everything_in_the_end(
    rate: float, burst: int, happenings: list[tuple[int, int, bool]]
) -> None:
    mesh = Driver()
    box = mesh.agent(rate_per_s=rate, rate_burst=burst)
    grants: list[tuple[int, int]] = []
    sent = 0

    def note() -> None:
        for delivered in mesh.step.delivered or ():
            grants.append((mesh.now, len(delivered.deliveries.rows())))
            mesh.ack(*delivered.deliveries.rows())

    def live_until(end: int) -> None:
        while mesh.kernel.next_event_at <= end:
            mesh.advance(mesh.kernel.next_event_at - mesh.now)
            assert mesh.kernel.next_event_at > mesh.now
            note()
        mesh.now = end

    for pause, count, waits in happenings:
        live_until(mesh.now + pause)
        if waits:
            mesh.wait(box, count)
        else:
            mesh.send(box, *names(f"m{sent}-", count), ttl_ms=0)
            sent += count
        note()
    for _ in range(sent):
        mesh.wait(box)
        note()
    live_until(mesh.now + int(sent / rate + 2) * SECOND)
    assert sum(count for _, count in grants) == sent
    for i, (start, _) in enumerate(grants):
        total = 0
        for end, count in grants[i:]:
            total += count
            assert total <= burst + Fraction(rate) * (end - start) / 1000
