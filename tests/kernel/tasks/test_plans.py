"""Plans: fan-out and fan-in, handlers, windows, advances, and what a submit is refused for."""

from __future__ import annotations

import json
import time

import pytest

from relaymesh.errors import Conflict, InvalidPlan, InvalidValue, PayloadTooLarge, StoreLagging
from relaymesh.kernel.commands import DrainAgent, RegisterAgent, Tick
from relaymesh.kernel.records import StepsSent
from relaymesh.kernel.tasks.commands import Advance, Finish, Move
from relaymesh.kernel.tasks.keys import KeyHeld
from relaymesh.kernel.tasks.looks import ready_of, to_advance
from relaymesh.kernel.tasks.plan import STEPS_MAX
from tests.kernel.driver import HOUR, MINUTE, SECOND
from tests.kernel.tasks.office import AGENT, Office, office, plan, step


def numbers(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def fan(count: int, **fields: object) -> Office:
    """One step for each of so many items."""
    desk = office()
    desk.items["each"] = numbers(count)
    desk.submit(plan(step("each", for_each="items", **fields)))
    return desk


def finish_all(desk: Office) -> None:
    while taken := desk.take():
        for name, token in taken.items():
            desk.finish(token, json.dumps(name).encode())


# -- fan-out and fan-in


def test_items_come_together_by_index_whoever_finishes_first() -> None:
    desk = fan(5)
    for name, token in reversed(desk.take().items()):
        desk.finish(token, json.dumps(name).encode())
    assert json.loads(desk.end().result or b"") == [f"each/{i}" for i in range(5)]


def test_a_skipped_item_is_null_and_a_failed_one_under_continue_is_its_error() -> None:
    desk = office()
    desk.advances = False
    desk.submit(plan(step("each", for_each="items", on_failure="continue")))
    desk.do(Advance("t1", [Move(0, "expand", items=numbers(4))], ["m"]))
    skip, fail = Move(2, "skip"), Move(3, "fail", code="expression", reason="no such name")
    desk.do(Advance("t1", [Move(1, "send"), skip, fail, Move(4, "send")], list("abcd")))
    taken = desk.take()
    desk.finish(taken["each/0"], b"1")
    desk.fail_for_good(taken["each/3"], "broken")
    assert json.loads(desk.end().result or b"") == [
        1,
        None,
        {"error": {"code": "expression", "reason": "no such name"}},
        {"error": {"code": "failed", "reason": "broken"}},
    ]


def test_an_empty_list_is_a_success_with_an_empty_list() -> None:
    assert fan(0).end().result == b"[]"


def test_one_failed_item_fails_the_task_if_nothing_catches_it() -> None:
    desk = fan(3)
    taken = desk.take(2)
    assert desk.fail_for_good(taken["each/0"]) == "RUNNING"
    assert desk.finish(taken["each/1"]) == "FAILED"
    assert desk.ended_statuses() == {
        "each": "FAILED",
        "each/0": "FAILED",
        "each/1": "SUCCESS",
        "each/2": "CANCELLED",
    }


def test_a_failed_item_under_a_handler_fails_the_step_and_the_handler_runs() -> None:
    desk = office()
    desk.items["each"] = numbers(2)
    each = step("each", for_each="items", on_failure="handle", handler=1)
    desk.submit(plan(each, step("mend", 0), step("after", 0)))
    taken = desk.take()
    desk.fail_for_good(taken["each/0"], "broken")
    desk.finish(taken["each/1"])
    assert desk.statuses()["each"] == "FAILED"
    assert (desk.statuses()["mend"], desk.statuses()["after"]) == ("PENDING", "SKIPPED")
    desk.finish(desk.take()["mend"])
    assert desk.end().status == "SUCCESS"


def test_a_cancelled_fan_out_is_cancelled_although_failures_would_be_caught() -> None:
    desk = fan(3, on_failure="continue")
    assert desk.cancel() == "CANCELLED"
    assert set(desk.ended_statuses().values()) == {"CANCELLED"}


# -- handlers


def handled() -> Office:
    desk = office()
    risky = step("risky", on_failure="handle", handler=1)
    desk.submit(plan(risky, step("mend", 0), step("after", 0), step("last", 2)))
    return desk


def test_a_handler_runs_only_after_a_failure_and_what_follows_the_failed_step_is_skipped() -> None:
    desk = handled()
    desk.fail_for_good(desk.take()["risky"])
    assert list(desk.take()) == ["mend", "last"]
    assert desk.statuses()["after"] == "SKIPPED"


def test_a_handler_is_skipped_if_nothing_failed() -> None:
    desk = handled()
    desk.finish(desk.take()["risky"])
    assert desk.statuses()["mend"] == "SKIPPED"
    assert list(desk.take()) == ["after"]


def test_a_dead_letter_calls_the_handler_too() -> None:
    desk = handled()
    desk.dies(desk.take()["risky"])
    assert "mend" in desk.take()


def test_a_handler_must_need_what_it_handles() -> None:
    with pytest.raises(InvalidPlan, match="must need"):
        office().submit(plan(step("risky", on_failure="handle", handler=1), step("mend")))


# -- windows


def sent(desk: Office) -> list[int]:
    return [record.count for record in desk.records if isinstance(record, StepsSent)]


def test_a_task_has_at_most_a_hundred_messages_out_and_sends_64_at_once() -> None:
    desk = fan(1_000)
    assert sent(desk) == [64, 36]
    assert desk.live("each/100").sequence < 0
    desk.finish(desk.take(1)["each/0"])
    assert sent(desk) == [64, 36, 1]
    assert len(desk.pending(AGENT)) == 100


def test_steps_in_several_mailboxes_share_the_window() -> None:
    desk = office("worker", "helper")
    steps = [step(f"s{i}", mailbox=f"default/{('worker', 'helper')[i % 2]}") for i in range(200)]
    desk.submit(plan(*steps))
    assert sum(sent(desk)) == 100 == desk.kernel.state.board.tasks["t1"].out
    assert max(sent(desk)) <= 64


def test_one_advance_sends_a_mebibyte_over_all_mailboxes() -> None:
    desk = office("worker", "helper")
    desk.advances = False
    names = [f"default/{('worker', 'helper')[i % 2]}" for i in range(8)]
    desk.submit(plan(*[step(f"s{i}", mailbox=name) for i, name in enumerate(names)]))
    moves = [Move(i, "send", b"x" * 300_000) for i in range(8)]
    assert desk.do(Advance("t1", moves, numbers_as_ids(8))).result.moved == 3
    large = [Move(i, "send", b"x" * 2_000_000) for i in range(8)]
    assert desk.do(Advance("t1", large, numbers_as_ids(8))).result.moved == 1


def numbers_as_ids(count: int) -> list[str]:
    return [f"id{i}" for i in range(count)]


def test_parallel_bounds_the_items_that_are_out() -> None:
    desk = fan(10, parallel=3)
    assert len(desk.pending(AGENT)) == 3
    taken = desk.take()
    desk.finish(taken["each/1"])
    assert desk.pending(AGENT) != []
    assert desk.kernel.state.board.tasks["t1"].out == 3
    moves = [Move(number, "send") for number in range(5, 10)]
    assert desk.plainly(Advance("t1", moves, numbers_as_ids(5))).result.moved == 0
    finish_all(desk)


def test_a_window_that_is_full_does_not_hold_back_other_steps() -> None:
    desk = office()
    desk.items["each"] = numbers(10)
    desk.submit(plan(step("each", for_each="items", parallel=1), step("beside")))
    assert sorted(desk.take()) == ["beside", "each/0"]


def test_ten_thousand_items_run_in_time_that_grows_with_their_number() -> None:
    desk = office("worker")
    desk.items["each"] = numbers(STEPS_MAX)
    began = time.perf_counter()
    desk.submit(plan(step("each", for_each="items", parallel=4), step("after", 0)))
    done = 0
    while desk.kernel.state.board.tasks["t1"].open > 1:
        for token in desk.take(4).values():
            desk.finish(token)
            done += 1
    assert done == STEPS_MAX
    assert time.perf_counter() - began < 20
    desk.finish(desk.take()["after"])
    assert desk.end().status == "SUCCESS"
    assert desk.kernel.state.charges.of("default/owner") == 0


def test_one_item_more_than_ten_thousand_fails_the_step() -> None:
    desk = fan(STEPS_MAX + 1)
    assert (desk.end().status, desk.ended_step("each").code) == ("FAILED", "too_many_items")


def test_items_that_are_too_large_together_fail_the_step() -> None:
    desk = office()
    desk.items["each"] = [b"x" * 1_000_000] * 5
    desk.submit(plan(step("each", for_each="items")))
    assert desk.ended_step("each").code == "items_too_large"


def test_what_a_settle_costs_does_not_grow_with_the_steps_of_the_task() -> None:
    """Counted in lines of Python, which no other load on this machine changes."""
    assert lines_of_a_settle(4_000) < 1.5 * lines_of_a_settle(400)


def lines_of_a_settle(items: int) -> int:
    import sys

    desk = fan(items, parallel=1)
    token = desk.take()["each/0"]
    desk.advances = False
    lines = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    command = Finish(token)
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        desk.do(command)
        task = desk.kernel.state.board.tasks["t1"]
        assert task.may_send(64) == [2]
    finally:
        sys.settrace(None)
    return lines


def test_timers_of_steps_that_ended_are_swept() -> None:
    desk = office()
    for i in range(1_000):
        desk.submit(plan(step("only", timeout_ms=HOUR), deadline_ms=HOUR), f"t{i}")
        desk.finish(desk.take()["only"])
    assert len(desk.kernel.state.board.deadlines) < 200


# -- advances


def test_an_advance_that_comes_twice_does_nothing() -> None:
    desk = office()
    desk.advances = False
    desk.submit(plan(step("only")))
    advance = Advance("t1", [Move(0, "send", b"1")], ["m1"])
    assert desk.do(advance).result.moved == 1
    again = Advance("t1", [Move(0, "send", b"1")], ["m2"])
    assert (desk.do(again).result.moved, desk.step.records) == (0, [])
    assert desk.do(Advance("gone", [Move(0, "send", b"1")], ["m3"])).result.moved == 0


def test_a_step_that_is_named_twice_in_one_advance_moves_once() -> None:
    desk = office()
    desk.advances = False
    desk.submit(plan(step("only"), step("other")))
    moves = [Move(0, "send"), Move(0, "send"), Move(1, "send"), Move(1, "skip")]
    assert desk.do(Advance("t1", moves, numbers_as_ids(4))).result.moved == 2
    assert len(desk.pending(AGENT)) <= 2


def test_an_item_is_not_expanded_again_nor_a_step_without_for_each() -> None:
    desk = fan(2, parallel=1)
    with pytest.raises(InvalidValue):
        desk.do(Advance("t1", [Move(2, "expand", items=[b"1"])], ["m"]))
    desk = office()
    desk.advances = False
    desk.submit(plan(step("only")))
    with pytest.raises(InvalidValue):
        desk.do(Advance("t1", [Move(0, "expand", items=[b"1"])], ["m"]))


def test_a_full_mailbox_keeps_its_steps_ready_and_says_why() -> None:
    desk = office()
    desk.agent("worker", capacity=2)
    desk.items["each"] = numbers(5)
    desk.submit(plan(step("each", for_each="items")))
    board = desk.kernel.state.board
    assert len(desk.pending(AGENT)) == 2
    assert board.tasks["t1"].blocked == f"mailbox {AGENT} is full"
    assert to_advance(desk.kernel.state) == ["t1"]
    ready = ready_of(desk.kernel.state, "t1")
    assert ready is not None
    assert [each.name for each in ready.steps] == ["each/2", "each/3", "each/4"]
    finish_all(desk)
    assert desk.end().status == "SUCCESS"


def test_a_draining_agent_gets_no_more_steps() -> None:
    desk = office()
    desk.do(RegisterAgent(AGENT))
    desk.do(DrainAgent(AGENT))
    desk.submit(plan(step("only")))
    assert (desk.pending(AGENT), desk.kernel.state.board.tasks["t1"].blocked) == ([], f"{AGENT} is draining")


def test_a_mailbox_that_became_at_most_once_gets_no_steps() -> None:
    desk = office("worker", "other")
    desk.submit(plan(step("first"), step("second", 0, mailbox="default/other")))
    token = desk.take()["first"]
    desk.agent("other", delivery_semantics="at_most_once")
    desk.finish(token)
    assert desk.pending("default/other") == []
    assert "at_most_once" in desk.kernel.state.board.tasks["t1"].blocked


# -- outputs and results


def test_an_output_is_kept_only_while_a_step_that_was_not_sent_refers_to_it() -> None:
    desk = office()
    desk.submit(plan(step("a"), step("b", 0, refers=(0,)), step("c", 1, refers=(0,)), step("d", 2)))
    desk.finish(desk.take()["a"], b'"kept"')
    task = desk.kernel.state.board.tasks["t1"]
    assert (task.steps[0].output, task.kept) == (b'"kept"', 6)
    desk.finish(desk.take()["b"], b'"nobody reads this"')
    assert (task.steps[0].output, task.steps[1].output, task.kept) == (None, None, 0)


def test_outputs_that_are_kept_are_bounded() -> None:
    desk = fan(6)
    tokens = list(desk.take().values())
    for token in tokens[:4]:
        desk.finish(token, b"1" * 1_000_000)
    with pytest.raises(PayloadTooLarge):
        desk.finish(tokens[4], b"1" * 1_000_000)
    assert desk.finish(tokens[4], b"1") == "RUNNING"


def test_the_result_is_that_of_the_last_step_or_of_all_last_steps_by_name() -> None:
    desk = office()
    desk.submit(plan(step("first"), step("left", 0), step("right", 0)))
    desk.finish(desk.take()["first"])
    taken = desk.take()
    desk.finish(taken["left"], b"[1]")
    desk.finish(taken["right"], b'{"a":2}')
    assert json.loads(desk.end().result or b"") == {"left": [1], "right": {"a": 2}}


def test_a_skipped_last_step_is_null() -> None:
    desk = office()
    desk.skips = {"last"}
    desk.submit(plan(step("first"), step("last", 0)))
    desk.finish(desk.take()["first"], b"1")
    assert (desk.end().status, desk.end().result) == ("SUCCESS", b"null")


# -- submitting


def test_a_plan_is_refused_that_names_a_mailbox_where_no_step_can_be() -> None:
    desk = office()
    desk.agent("once", delivery_semantics="at_most_once")
    for mailbox, why in [
        ("default/nobody", "no mailbox"),
        ("elsewhere/worker", "namespace"),
        ("default/once", "at_most_once"),
        (desk.subscription("t"), "subscription"),
    ]:
        with pytest.raises(InvalidPlan, match=why):
            desk.submit(plan(step("only", mailbox=mailbox)))
    assert desk.kernel.state.board.tasks == {}


def test_the_same_key_with_another_request_is_a_conflict() -> None:
    desk = office()
    desk.submit(plan(step("only")), key="k", request=b"1")
    with pytest.raises(Conflict):
        desk.submit(plan(step("only")), "t2", key="k", request=b"2")
    again = desk.submit(plan(step("only")), "t2", key="k", request=b"1")
    assert (again.task, again.duplicate, again.status) == ("t1", True, "PENDING")
    with pytest.raises(InvalidPlan):  # another namespace has keys of its own, and no such agent
        desk.submit(plan(step("only")), "t3", key="k", request=b"2", owner="elsewhere/owner")


def test_an_id_of_a_live_task_is_not_given_twice() -> None:
    desk = office()
    desk.submit(plan(step("only")), key="k1")
    with pytest.raises(Conflict):
        desk.submit(plan(step("only")), key="k2", request=b"t1")
    assert desk.finish(desk.take()["only"]) == "SUCCESS"


def test_an_unsuccessful_end_is_answered_and_runs_anew_only_if_asked() -> None:
    desk = office()
    desk.submit(plan(step("only")), key="k", request=b"1")
    desk.fail_for_good(desk.take()["only"])
    assert desk.submit(plan(step("only")), "t2", key="k", request=b"1").status == "FAILED"
    anew = desk.submit(plan(step("only")), "t2", key="k", request=b"1", again=True)
    assert (anew.task, anew.duplicate) == ("t2", False)
    desk.finish(desk.take()["only"])
    success = desk.submit(plan(step("only")), "t3", key="k", request=b"1", again=True)
    assert (success.task, success.duplicate, success.status) == ("t2", True, "SUCCESS")


def test_a_key_that_was_forgotten_is_asked_of_the_store() -> None:
    desk = office()
    desk.submit(plan(step("only")), key="k", request=b"1")
    desk.finish(desk.take()["only"])
    through = desk.end().through
    desk.kernel.state.board.forget(through, desk.now)
    with pytest.raises(StoreLagging):
        desk.submit(plan(step("only")), "t2", key="k", request=b"1", looked=through - 1)
    known = KeyHeld("t1", b"1", "SUCCESS", desk.now, through)
    told = desk.submit(plan(step("only")), "t2", key="k", request=b"1", looked=through, known=known)
    assert (told.task, told.duplicate) == ("t1", True)
    assert not desk.submit(plan(step("only")), "t2", key="new", looked=through).duplicate


def test_without_a_store_old_keys_are_forgotten_and_submits_go_on() -> None:
    desk = office()
    desk.submit(plan(step("only")), key="k", request=b"1")
    desk.finish(desk.take()["only"])
    desk.kernel.state.board.forget(None, desk.now + 8 * 24 * HOUR)
    assert not desk.submit(plan(step("only")), "t2", key="other").duplicate


def test_tasks_of_one_plan_share_it() -> None:
    desk = office()
    for i in range(3):
        desk.submit(plan(step("only")), f"t{i}")
    (shape,) = desk.kernel.state.board.shapes.values()
    assert shape.tasks == 3
    desk.restart_from_snapshot()
    (shape,) = desk.kernel.state.board.shapes.values()
    assert shape.tasks == 3


def test_what_ended_is_kept_for_a_while_where_there_is_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaymesh.kernel.tasks import board

    monkeypatch.setattr(board, "OVER_STEPS_MAX", 10)
    desk = office()
    for i in range(10):
        desk.submit(plan(step("a"), step("b", 0)), f"t{i}")
        finish_all(desk)
        desk.kernel.state.board.forget(None, desk.now)
    assert list(desk.kernel.state.board.over) == [f"t{i}" for i in range(5, 10)]
    assert desk.kernel.state.board.over_steps == 10


def test_time_passes_for_thousands_of_live_tasks_without_a_look_at_each() -> None:
    desk = office()
    for i in range(2_000):
        desk.submit(plan(step("only"), deadline_ms=HOUR), f"t{i}")
    began = time.perf_counter()
    for _ in range(1_000):
        desk.now += SECOND
        desk.plainly(Tick())
    assert time.perf_counter() - began < 1
    desk.pass_time(MINUTE)
