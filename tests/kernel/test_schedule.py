"""Which goes first (DESIGN section 3): tiers, priorities, and what keeps the lower ones from starving."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from relaymesh.kernel.commands import OpenMailbox, Reprioritise
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import SECOND, Driver, ids, names


def send_each(mesh: Driver, box: str, count: int, *priorities: int) -> None:
    for priority in priorities:
        mesh.send(box, *names(f"p{priority}-", count), priority=priority)


def priorities(leases: list[DeliveryRow]) -> list[int]:
    return [lease.envelope.priority for lease in leases]


def test_weighted_gives_8_3_1() -> None:
    mesh = Driver()
    box = mesh.agent()
    send_each(mesh, box, 100, 1, 3, 5)
    got = Counter(priorities(mesh.receive(box, 120)))
    assert got == {1: 80, 3: 30, 5: 10}


def test_weighted_gives_8_3_1_one_by_one_too() -> None:
    mesh = Driver()
    box = mesh.agent()
    send_each(mesh, box, 30, 2, 3, 4)
    got = priorities(list(chain.from_iterable(mesh.receive(box) for _ in range(24))))
    assert got == ([2] * 8 + [3] * 3 + [4]) * 2


def test_a_tier_with_nothing_ready_leaves_its_share_to_the_others() -> None:
    mesh = Driver()
    box = mesh.agent()
    send_each(mesh, box, 20, 3, 5)
    assert priorities(mesh.receive(box, 16)) == ([3] * 3 + [5]) * 4


def test_inside_a_tier_priority_goes_first_then_ready_time_then_sequence() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "delayed", priority=2, delay_ms=5)
    mesh.send(box, "second", priority=2)
    mesh.send(box, "third", priority=2)
    mesh.advance(10)
    mesh.send(box, "last", priority=2)
    mesh.send(box, "first", priority=1)
    assert ids(mesh.receive(box, 5)) == ["first", "second", "third", "delayed", "last"]


def test_strict_goes_by_priority_alone() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    send_each(mesh, box, 5, 5, 4, 3, 2, 1)
    assert priorities(mesh.receive(box, 25)) == sorted([1, 2, 3, 4, 5] * 5)


def test_strict_lets_one_lower_entry_go_after_100_high_ones() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    send_each(mesh, box, 250, 1)
    send_each(mesh, box, 10, 4)
    got = priorities(mesh.receive(box, 205))
    assert got == [1] * 100 + [4] + [1] * 100 + [4] + [1] * 3
    assert mesh.box(box).ready.low_starvation_count == 2


def test_strict_starves_neither_normal_nor_low_under_a_flood_of_high() -> None:
    """Seed 003: after 100 high ones at least one low one goes; a normal one has its turn beside it."""
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    send_each(mesh, box, 300, 1)
    send_each(mesh, box, 10, 3)
    send_each(mesh, box, 10, 5, 4)
    got = priorities(mesh.receive(box, 306))
    assert got == ([1] * 100 + [4, 3]) * 3
    assert mesh.box(box).ready.low_starvation_count == 6


def test_strict_starves_no_low_under_a_flood_of_normal() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict", max_consecutive_high=10)
    send_each(mesh, box, 25, 3)
    send_each(mesh, box, 2, 5)
    assert priorities(mesh.receive(box, 27)) == [3] * 10 + [5] + [3] * 10 + [5] + [3] * 5


def test_strict_lets_a_low_one_go_also_when_receives_take_one_at_a_time() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict", max_consecutive_high=3)
    send_each(mesh, box, 8, 4, 3, 1)
    got = [priorities(mesh.receive(box, 1)) for _ in range(8)]
    assert got == [[1], [1], [1], [4], [3], [1], [1], [1]]


def test_strict_counts_no_starvation_when_no_lower_entry_waits() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict", max_consecutive_high=2)
    send_each(mesh, box, 6, 1)
    assert priorities(mesh.receive(box, 6)) == [1] * 6
    assert mesh.box(box).ready.low_starvation_count == 0


def test_fifo_hands_out_in_the_order_of_arrival_whatever_the_priority_or_key() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="fifo")
    mesh.send(box, "1", priority=5, key="k")
    mesh.send(box, "2", priority=5, key="k")
    mesh.send(box, "3", priority=1)
    mesh.send(box, "4", priority=3, key="other")
    assert ids(mesh.receive(box, 4)) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("schedule", ["weighted", "strict", "fifo"])
def test_a_released_delivery_goes_out_again_before_what_came_after_it(schedule: str) -> None:
    mesh = Driver()
    box = mesh.agent(schedule=schedule)
    mesh.send(box, *names("m", 5))
    taken = mesh.receive(box, 3)
    mesh.release(*taken)
    assert ids(mesh.receive(box, 5)) == list(names("m", 5))


def test_a_retry_takes_its_turn_from_when_it_is_due() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "failed")
    mesh.nack(*mesh.receive(box), delay_ms=SECOND)
    mesh.advance(SECOND - 1)
    mesh.send(box, "before")
    mesh.advance(1)
    mesh.send(box, "after")
    assert ids(mesh.receive(box, 3)) == ["before", "failed", "after"]


@pytest.mark.parametrize("schedule", ["weighted", "strict", "fifo"])
def test_a_message_given_another_priority_twice_is_still_delivered_once(schedule: str) -> None:
    mesh = Driver()
    box = mesh.agent(schedule=schedule)
    mesh.send(box, "m")
    mesh.do(Reprioritise(box, None, 1))
    mesh.do(Reprioritise(box, None, 3))
    assert ids(mesh.receive(box, 5)) == ["m"]
    assert len(mesh.kernel.state.leases) == 1


def test_a_pending_message_given_a_better_priority_goes_first() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    mesh.send(box, "a", "b", "c")
    assert mesh.do(Reprioritise(box, frozenset({"c"}), 1)).result == 1
    assert ids(mesh.receive(box, 3)) == ["c", "a", "b"]


def test_a_leased_message_keeps_its_priority() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.receive(box)
    assert mesh.do(Reprioritise(box, None, 1)).result == 0


@pytest.mark.parametrize("first", ["weighted", "strict", "fifo"])
@pytest.mark.parametrize("then", ["weighted", "strict", "fifo"])
def test_changing_the_schedule_loses_nothing_that_waits(first: str, then: str) -> None:
    mesh = Driver()
    box = mesh.agent(schedule=first)
    send_each(mesh, box, 2, 1, 2, 3, 4, 5)
    mesh.do(OpenMailbox(box, MailboxSettings(schedule=then)))  # type: ignore[arg-type]
    assert len(mesh.receive(box, 20)) == 10
