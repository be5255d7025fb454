"""The rules about tasks: each planted violation is found under its own name, and sound journals are sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from relaymesh.kernel import records
from relaymesh.pipeline.audit.rules import RULES
from tests.pipeline.tables.journal import bronze
from tests.pipeline.tasks.desk import CHAIN, FAN, HANDLED, PAIR, UNDONE, Desk
from tests.pipeline.tasks.fold import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from relaymesh.pipeline.catalog import Table

Story = Callable[[Desk], None]


# -- sound


def chain(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.do("t", 0, b"1")
    desk.do("t", 1, b'{"x": 2}')
    desk.over("t", b'{"x": 2}')


def late_result(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    desk.grant("t", 0)
    desk.lose("t", 0)
    token = desk.grant("t", 0)
    desk.lose("t", 0)
    desk.end("t", 0, b"1", token)
    desk.ack("t", 0)


def pair(desk: Desk) -> None:
    desk.submit("t", PAIR)
    desk.do("t", 1, b"[2]")
    desk.do("t", 0, b"1")
    desk.over("t", b'{"a":1,"b":[2]}')


def items(desk: Desk) -> None:
    desk.submit("t", FAN)
    desk.do("t", 0)
    desk.fan("t", 1, 3)
    desk.do("t", 4, b"3")
    desk.do("t", 2, b"1")
    desk.end("t", 3, None, status="SKIPPED")
    desk.over("t", b"[1,null,3]")


def no_items(desk: Desk) -> None:
    desk.submit("t", FAN)
    desk.do("t", 0)
    desk.fan("t", 1, 0)
    desk.over("t", b"[]")


def handler_skipped(desk: Desk) -> None:
    """The last step is the handler alone: it is the result, although it was skipped."""
    desk.submit("t", HANDLED)
    desk.do("t", 0, b"1")
    desk.end("t", 1, None, status="SKIPPED")
    desk.over("t", b"null")


def acked_alone(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.do("t", 0)
    desk.send("t", 1)
    desk.grant("t", 1)
    desk.ack("t", 1)
    desk.over("t", b"null")


def cancelled(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    desk.write(records.TaskClosing(1, desk.at, "t", "CANCELLED", "enough"))
    desk.end("t", 0, None, status="CANCELLED")
    desk.write(records.Dropped(1, desk.at, "default/worker", [desk.messages["t", 0]], "withdrawn"))
    desk.over("t", status="CANCELLED")


def beginning_unknown(desk: Desk) -> None:
    """Nothing of a task is judged whose submit the journal does not have."""
    desk.send("t", 1)
    desk.grant("t", 1)
    desk.end("t", 1, b"1", 99)
    desk.ack("t", 1)
    desk.end("t", 1, b"1", 99)
    desk.over("t", b"2")
    desk.send("t", 0)


def budget_raised(desk: Desk) -> None:
    """The message that waits is taken back; when the budget is larger, it is sent and granted again."""
    desk.submit("t", PAIR)
    desk.send("t", 1)
    spend(desk)
    desk.write(records.BudgetPaused(1, desk.at, "t", "its budget is used"))
    desk.write(records.StepsWithdrawn(1, desk.at, "t", [1], "budget"))
    desk.write(records.Dropped(1, desk.at, "default/worker", [desk.messages["t", 1]], "budget"))
    desk.write(records.BudgetSet(1, desk.at, "t", 9_000_000, 0))
    desk.do("t", 1, b"2")
    desk.over("t", b'{"a":1,"b":2}')


def spend(desk: Desk) -> None:
    """The first step, with two reports of what it used: the second replaces the first."""
    desk.send("t", 0)
    token = desk.grant("t", 0)
    for cost in (1_000_000, 2_500_000):
        desk.write(records.UsageNoted(1, desk.at, "t", 0, token, cost, cost // 1_000))
    desk.end("t", 0, b"1", token)
    desk.ack("t", 0)


def undone(desk: Desk) -> None:
    """A task that closes sends and grants what undoes its steps, whatever its budget is."""
    desk.submit("t", UNDONE)
    spend(desk)
    desk.write(records.BudgetPaused(1, desk.at, "t", "its budget is used"))
    desk.write(records.TaskClosing(1, desk.at, "t", "CANCELLED", "enough"))
    desk.write(records.TaskUndoing(1, desk.at, "t", [0], [False]))
    desk.do("t", 2)
    desk.over("t", status="CANCELLED")


SOUND: tuple[Story, ...] = (
    chain,
    late_result,
    pair,
    items,
    no_items,
    handler_skipped,
    acked_alone,
    cancelled,
    budget_raised,
    undone,
    beginning_unknown,
)


# -- broken


def ended_twice(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    token = desk.grant("t", 0)
    desk.end("t", 0, b"1", token)
    desk.ack("t", 0)
    desk.end("t", 0, b"1", token)


def acked_and_ended(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    token = desk.grant("t", 0)
    desk.ack("t", 0)
    desk.end("t", 0, b"1", token)


def two_messages_acked(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    for _ in range(2):
        desk.send("t", 0)
        desk.grant("t", 0)
        desk.ack("t", 0)


def sent_early(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    desk.do("t", 1)


def sent_just_before(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    desk.send("t", 1)
    desk.end("t", 0, b"1", desk.grant("t", 0))
    desk.ack("t", 0)


def fanned_out_early(desk: Desk) -> None:
    desk.submit("t", FAN)
    desk.fan("t", 1, 2)


def older_token(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.send("t", 0)
    first = desk.grant("t", 0)
    desk.lose("t", 0)
    desk.grant("t", 0)
    desk.end("t", 0, b"1", first)
    desk.ack("t", 0)


def no_grant(desk: Desk) -> None:
    desk.submit("t", PAIR)
    desk.send("t", 0)
    desk.send("t", 1)
    desk.end("t", 0, b"1", desk.grant("t", 1))


def sent_after_the_end(desk: Desk) -> None:
    chain(desk)
    desk.send("t", 1)


def ended_after_the_end(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.over("t", status="FAILED")
    desk.end("t", 0, None, status="CANCELLED")


def task_ended_twice(desk: Desk) -> None:
    chain(desk)
    desk.over("t", b'{"x": 2}')


def sent_while_closing(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.do("t", 0)
    desk.write(records.TaskClosing(1, desk.at, "t", "CANCELLED", "enough"))
    desk.send("t", 1)


def other_result(desk: Desk) -> None:
    desk.submit("t", CHAIN)
    desk.do("t", 0, b"1")
    desk.do("t", 1, b"2")
    desk.over("t", b"1")


def other_spelling(desk: Desk) -> None:
    """The same JSON in other bytes has another hash."""
    desk.submit("t", CHAIN)
    desk.do("t", 0)
    desk.do("t", 1, b'{"x": 2}')
    desk.over("t", b'{"x":2}')


def parts_swapped(desk: Desk) -> None:
    desk.submit("t", PAIR)
    desk.do("t", 0, b"1")
    desk.do("t", 1, b"2")
    desk.over("t", b'{"a":2,"b":1}')


def item_missing(desk: Desk) -> None:
    desk.submit("t", FAN)
    desk.do("t", 0)
    desk.fan("t", 1, 2)
    desk.do("t", 2, b"1")
    desk.do("t", 3, b"2")
    desk.over("t", b"[1]")


def result_of_nothing(desk: Desk) -> None:
    desk.submit("t", FAN)
    desk.do("t", 0)
    desk.fan("t", 1, 0)
    desk.over("t", b"[1]")


def granted_without_budget(desk: Desk) -> None:
    desk.submit("t", PAIR)
    desk.send("t", 1)
    spend(desk)
    desk.write(records.BudgetPaused(1, desk.at, "t", "its budget is used"))
    desk.grant("t", 1)


BROKEN: dict[Story, str] = {
    ended_twice: "step_ended_twice",
    acked_and_ended: "step_ended_twice",
    two_messages_acked: "step_ended_twice",
    sent_early: "need_not_ended",
    sent_just_before: "need_not_ended",
    fanned_out_early: "need_not_ended",
    older_token: "outcome_token",
    no_grant: "outcome_token",
    sent_after_the_end: "task_over",
    ended_after_the_end: "task_over",
    task_ended_twice: "task_over",
    sent_while_closing: "task_over",
    other_result: "result_differs",
    other_spelling: "result_differs",
    parts_swapped: "result_differs",
    item_missing: "result_differs",
    result_of_nothing: "result_differs",
    granted_without_budget: "budget_ignored",
}

STORIES = (*SOUND, *BROKEN)
OF_TASKS = {rule.name for rule in RULES[-6:]}


@pytest.fixture(scope="module")
def found(spark: SparkSession, events: list[Row]) -> dict[int, list[Row]]:
    """All findings, by story: each is a partition of one bronze. Then the work days and random scenes."""
    from relaymesh.pipeline.catalog import BRONZE, TABLES

    rows: list[Row] = []
    for number, story in enumerate(STORIES):
        desk = Desk()
        story(desk)
        rows += desk.rows(number)
    rows += [row | {"partition": len(STORIES) + row["partition"]} for row in events]
    made: dict[str, DataFrame] = {BRONZE: bronze(spark, rows)}
    for each in TABLES:
        if each.layer != "gold" and each.name not in ("agents", "traces", "dead_letters", "audit_summary"):
            made[each.name] = kept(spark, each, made)
    told: dict[int, list[Row]] = {}
    for row in made["audit_violations"].collect():
        told.setdefault(row.partition, []).append(row.asDict())
    return told


def kept(spark: SparkSession, table: Table, made: dict[str, DataFrame]) -> DataFrame:
    built = table.build(**{name: made[name] for name in table.inputs})
    return spark.createDataFrame(built.collect(), built.schema)


def test_sound_journals_are_sound(found: dict[int, list[Row]]) -> None:
    assert [found.get(number) for number in range(len(SOUND))] == [None] * len(SOUND)


def test_real_workflows_and_random_scenes_of_the_kernel_are_sound(
    found: dict[int, list[Row]], events: list[Row]
) -> None:
    others = len({row["partition"] for row in events})
    assert others > 20
    assert [found.get(len(STORIES) + number) for number in range(others)] == [None] * others


@pytest.mark.parametrize("story", BROKEN, ids=lambda story: story.__name__)
def test_exactly_the_rule_that_is_broken_is_found(story: Story, found: dict[int, list[Row]]) -> None:
    told = found.get(STORIES.index(story), [])
    assert [(each["rule"], "task t" in each["detail"]) for each in told] == [(BROKEN[story], True)]
    desk = Desk()
    story(desk)
    assert 0 < told[0]["sequence"] < desk.sequence


def test_every_rule_about_tasks_has_a_story() -> None:
    assert set(BROKEN.values()) == OF_TASKS
