"""Every arrow of the table of states is walked, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from relaymesh.kernel.commands import ExtendAll, PurgeDeadLetters, Redrive, Release
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.tasks.commands import Advance, Move
from relaymesh.kernel.tasks.status import ENDED, EVENT_OF, TRANSITIONS, Event, Status
from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task
from tests.kernel.driver import MINUTE, SECOND
from tests.kernel.tasks.office import Office, office, plan, step
from tests.kernel.tasks.page import EVENTS, PAGE, STATES, page
from tests.kernel.tasks.scene import play

Arrow = tuple[Status, Event]


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Arrow]]:
    """The arrows that were walked since the test began."""
    found: set[Arrow] = set()
    move = Task.move

    def watched(self: Task, number: int, event: Event, at: int) -> StepState:
        found.add((self.steps[number].status, event))
        return move(self, number, event, at)

    monkeypatch.setattr(Task, "move", watched)
    yield found
    assert found <= set(TRANSITIONS)


def one_step(**fields: object) -> Office:
    desk = office()
    desk.submit(plan(step("only", **{"timeout_ms": 10 * MINUTE, **fields})))
    return desk


def bring_to(status: Status) -> tuple[Office, int]:
    """A step in this state, and the token of its last grant."""
    desk = one_step()
    token = desk.take()["only"]
    match status:
        case "PENDING":
            desk.do(Release([token]))
        case "RETRYING":
            desk.failed(token)
        case "ABANDONED":
            desk.abandon(token)
        case "DEAD_LETTER":
            desk.dies(token)
        case _:
            assert status == "RUNNING"
    assert desk.live("only").status == status
    return desk, token


def bring_back_for(desk: Office, ttl_ms: int) -> None:
    """Redriven with a message that expires."""
    (letter,) = desk.letters
    edited = [Envelope("edited", "default/x", b"1", ttl_ms=ttl_ms)]
    desk.do(Redrive([(letter.mailbox, letter.dead_sequence)], edited=edited))


LIVE: tuple[Status, ...] = ("PENDING", "RETRYING", "ABANDONED", "RUNNING")


@pytest.mark.parametrize("before", LIVE)
def test_a_live_step_ends_by_a_result_a_refusal_a_timeout_or_a_cancel(
    before: Status, walked: set[Arrow]
) -> None:
    desk, token = bring_to(before)
    assert desk.finish(token, b"1") == "SUCCESS"
    desk, token = bring_to(before)
    assert desk.fail_for_good(token) == "FAILED"
    desk, token = bring_to(before)
    desk.do(ExtendAll([(token, 11 * MINUTE)]))
    desk.pass_time(10 * MINUTE)
    assert desk.ended_step("only").status == "TIMEOUT"
    desk, _ = bring_to(before)
    assert desk.cancel(hard=True) == "CANCELLED"
    ends = {"succeeded", "refused", "timed_out", "cancelled"}
    assert {event for status, event in walked if status == before} >= ends


@pytest.mark.parametrize("before", ["PENDING", "RETRYING", "ABANDONED"])
def test_a_waiting_step_is_granted(before: Status, walked: set[Arrow]) -> None:
    desk, _ = bring_to(before)
    desk.pass_time(5 * SECOND)
    assert list(desk.take()) == ["only"]
    assert (before, "granted") in walked


@pytest.mark.parametrize("before", LIVE)
def test_a_live_step_dies(before: Status, walked: set[Arrow]) -> None:
    """While it waits, only a message with a TTL can: one that was edited and redriven."""
    if before == "RUNNING":
        bring_to("DEAD_LETTER")
    else:
        desk, _ = bring_to("DEAD_LETTER")
        bring_back_for(desk, ttl_ms=20 * SECOND)
        if before != "PENDING":
            token = desk.take()["only"]
            if before == "RETRYING":
                desk.failed(token, delay_ms=SECOND)
            else:
                desk.abandon(token)
        desk.pass_time(MINUTE)
        assert desk.live("only").status == "DEAD_LETTER"
        assert desk.live("only").code == "ttl_expired"
    assert (before, "died") in walked


def test_a_dead_letter_is_redriven_purged_cancelled_or_timed_out(walked: set[Arrow]) -> None:
    desk, _ = bring_to("DEAD_LETTER")
    desk.redrive(*desk.letters)
    assert desk.live("only").status == "PENDING"
    desk, _ = bring_to("DEAD_LETTER")
    (letter,) = desk.letters
    desk.do(PurgeDeadLetters([(letter.mailbox, letter.dead_sequence)]))
    assert (desk.end().status, desk.ended_step("only").code) == ("FAILED", "purged")
    desk, _ = bring_to("DEAD_LETTER")
    assert desk.cancel() == "CANCELLED"
    assert desk.ended_step("only").status == "CANCELLED"
    desk = office()
    desk.submit(plan(step("only"), deadline_ms=MINUTE))
    desk.dies(desk.take()["only"])
    desk.pass_time(MINUTE)
    assert desk.ended_step("only").status == "TIMEOUT"
    assert {event for status, event in walked if status == "DEAD_LETTER"} == {
        "redriven",
        "purged",
        "cancelled",
        "timed_out",
    }


def test_a_pending_step_is_skipped_expanded_or_fails_before_it_is_sent(walked: set[Arrow]) -> None:
    desk = office()
    desk.skips = {"off"}
    desk.items = {"each": [b"1"]}
    desk.submit(plan(step("off"), step("each", for_each="items")))
    assert desk.statuses() == {"off": "SKIPPED", "each": "RUNNING", "each/0": "PENDING"}
    desk = office()
    desk.advances = False
    desk.submit(plan(step("only")))
    desk.do(Advance("t1", [Move(0, "fail", code="expression", reason="no such name")], ["m"]))
    assert desk.ended_step("only").reason == "no such name"
    assert walked >= {("PENDING", "skipped"), ("PENDING", "expanded"), ("PENDING", "refused")}


def test_a_running_step_is_given_back_fails_or_is_abandoned(walked: set[Arrow]) -> None:
    for status in ("PENDING", "RETRYING", "ABANDONED"):
        bring_to(status)
    assert walked >= {("RUNNING", "given_back"), ("RUNNING", "failed"), ("RUNNING", "abandoned")}


def test_many_random_tasks_walk_every_arrow_and_no_other(walked: set[Arrow]) -> None:
    for seed in range(500, 1_900):
        play(seed)
    assert walked == set(TRANSITIONS)


def test_no_arrow_leaves_an_end() -> None:
    assert not {before for before, _ in TRANSITIONS} & ENDED
    for status, event in EVENT_OF.items():
        assert {after for (_, each), after in TRANSITIONS.items() if each == event} == {status}


def test_the_page_is_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "run: python -m tests.kernel.tasks.page"


def test_every_state_and_event_is_explained_and_nothing_else() -> None:
    assert set(EVENTS) == {event for _, event in TRANSITIONS}
    assert set(STATES) == set(get_args(Status))
