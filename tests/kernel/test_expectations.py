"""A receive by correlation id: it is given what waits already, what comes later, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import OverBudget
from relaymesh.kernel.commands import Expect, Forgo, Receive, Unexpect
from relaymesh.kernel.expectation import EXPECTATIONS_MAX, SEARCH_MAX
from relaymesh.kernel.waiter import Waiter
from tests.kernel.checker import check
from tests.kernel.driver import MINUTE, SECOND, Driver, ids, names

IN_LINE: list[dict[str, Any]] = [{}, {"key": "k"}, {"task": "t"}]
"""Without a lane, and in one."""


@pytest.mark.parametrize("fields", IN_LINE)
@pytest.mark.parametrize("expects", [False, True])
def test_an_answer_that_waits_already_is_found(fields: dict[str, Any], expects: bool) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "before", **fields)
    mesh.send(box, "answer", correlation_id="q", **fields)
    mesh.send(box, "behind", **fields)
    if expects:
        mesh.do(Expect(box, "q"))
    assert ids(mesh.receive(box, correlation_id="q")) == ["answer"]
    check(mesh.kernel.state)
    assert ids(mesh.receive(box, 5)) == ["before", "behind"]


def served(mesh: Driver) -> list[tuple[Waiter, list[str]]]:
    return [(each.waiter, ids(each.deliveries.rows())) for each in mesh.step.delivered or ()]


def test_an_answer_in_a_batch_is_found_and_the_batch_stays_in_order() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *names("m", 5), correlation_id="other")
    mesh.send(box, *names("a", 2), correlation_id="q")
    mesh.send(box, *names("n", 5), correlation_id="other")
    assert ids(mesh.receive(box, 5, correlation_id="q")) == ["a0"]
    check(mesh.kernel.state)
    assert ids(mesh.receive(box, 20)) == [*names("m", 5), "a1", *names("n", 5)]


def test_an_answer_is_found_although_its_lane_is_held() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "held", "next", key="k")
    mesh.send(box, "answer", correlation_id="q", key="k")
    (held,) = mesh.receive(box, 1, "worker")
    assert ids(mesh.receive(box, correlation_id="q")) == ["answer"]
    assert mesh.receive(box, 5, "other") == [], "the lane is still held"
    mesh.ack(held)
    check(mesh.kernel.state)
    assert ids(mesh.receive(box, 5, "other")) == ["next"]


def test_an_answer_that_waits_for_its_retry_comes_to_its_asker_and_frees_its_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "answer", correlation_id="q", key="k")
    mesh.nack(*mesh.receive(box), delay_ms=MINUTE)
    mesh.send(box, "behind", key="k")
    ordinary = mesh.wait(box, 1, "ordinary")
    asker = mesh.wait(box, 1, "asker", correlation_id="q")
    assert served(mesh) == [(ordinary, ["behind"])]
    mesh.advance(MINUTE)
    assert served(mesh) == [(asker, ["answer"])]
    check(mesh.kernel.state)


def test_an_answer_that_someone_else_holds_is_not_taken_from_them() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "answer", correlation_id="q")
    (held,) = mesh.receive(box, 1, "other")
    assert mesh.receive(box, correlation_id="q") == []
    asker = mesh.wait(box, 1, "asker", correlation_id="q")
    mesh.release(held)
    assert [d.waiter for d in mesh.step.delivered or []] == [asker]


def test_an_answer_that_has_expired_is_a_dead_letter_and_not_found() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "answer", correlation_id="q", ttl_ms=SECOND)
    mesh.now += SECOND
    assert mesh.receive(box, correlation_id="q") == []
    assert [letter.reason for letter in mesh.letters] == ["ttl_expired"]


def test_of_several_answers_the_earliest_is_found_and_the_others_stay() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "one", "two", correlation_id="q")
    assert ids(mesh.receive(box, correlation_id="q")) == ["one"]
    assert ids(mesh.receive(box, 5)) == ["two"]


def test_a_receive_that_waits_gets_an_answer_that_nothing_expected() -> None:
    mesh = Driver()
    box = mesh.agent()
    asker = mesh.wait(box, 1, "asker", correlation_id="q")
    ordinary = mesh.wait(box, 1, "ordinary")
    mesh.send(box, "answer", correlation_id="q")
    assert served(mesh) == [(asker, ["answer"])]
    mesh.send(box, "second answer", correlation_id="q")
    assert [d.waiter for d in mesh.step.delivered or []] == [ordinary], "it ended with the receive"


def test_a_receive_that_gave_up_expects_nothing_any_more() -> None:
    mesh = Driver()
    box = mesh.agent()
    before = mesh.kernel.state.charges.all()
    waiter = mesh.wait(box, 1, "asker", correlation_id="q")
    assert mesh.do(Forgo(box, waiter)).result is True
    assert mesh.do(Forgo(box, waiter)).result is False
    assert mesh.kernel.state.charges.all() == before
    mesh.send(box, "answer", correlation_id="q")
    assert ids(mesh.receive(box)) == ["answer"]


def test_two_receives_by_one_id_each_wait_for_themselves() -> None:
    mesh = Driver()
    box = mesh.agent()
    first, second = [mesh.wait(box, 1, name, correlation_id="q") for name in ("one", "two")]
    assert mesh.do(Forgo(box, first)).result is True
    mesh.send(box, "answer", correlation_id="q")
    assert [d.waiter for d in mesh.step.delivered or []] == [second]
    assert mesh.do(Forgo(box, second)).result is False


def test_an_expectation_outlives_the_receives_by_it() -> None:
    mesh = Driver()
    box = mesh.agent()
    waiter = mesh.wait(box, 1, "asker", correlation_id="q")
    mesh.do(Expect(box, "q"))
    mesh.do(Forgo(box, waiter))
    mesh.send(box, "answer", correlation_id="q")
    assert mesh.receive(box, 5) == []
    mesh.do(Unexpect(box, "q"))
    assert ids(mesh.receive(box, 5)) == ["answer"]


def test_an_expectation_that_ends_leaves_who_waits_waiting() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.do(Expect(box, "q"))
    asker = mesh.wait(box, 1, "asker", correlation_id="q")
    mesh.do(Unexpect(box, "q"))
    mesh.send(box, "answer", correlation_id="q")
    assert [d.waiter for d in mesh.step.delivered or []] == [asker]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_after_a_restart_an_answer_is_found_by_asking_again(by_snapshot: bool) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.do(Expect(box, "q"))
    mesh.send(box, "unrelated", "answer", correlation_id="q", task="t")
    if by_snapshot:
        mesh.restart_from_snapshot()
    else:
        mesh.restart()
    mesh.do(Expect(box, "q"))
    check(mesh.kernel.state)
    assert mesh.receive(box, 5) == [], "both are kept apart again"
    assert ids(mesh.receive(box, correlation_id="q")) == ["unrelated"]


def test_receives_that_wait_are_bounded_as_expectations_are() -> None:
    mesh = Driver()
    box = mesh.agent()
    for i in range(EXPECTATIONS_MAX):
        mesh.do(Expect(box, str(i), minted=True))
    with pytest.raises(OverBudget, match="10000 answers"):
        mesh.do(Receive(box, Waiter("w", 1, "more")))


def test_the_search_is_bounded_and_begins_with_the_newest() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "too old", correlation_id="old")
    mesh.send(box, "just in reach", correlation_id="new")
    for i in range(10):
        mesh.send(box, *names(f"m{i}-", SEARCH_MAX // 10 - (i == 0)))
    assert ids(mesh.receive(box, correlation_id="new")) == ["just in reach"]
    mesh.send(box, "one more")
    assert mesh.receive(box, correlation_id="old") == []


def test_an_id_that_was_made_just_now_is_not_searched_for() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", correlation_id="q")
    mesh.do(Expect(box, "q", minted=True))
    assert ids(mesh.receive(box)) == ["m"]
