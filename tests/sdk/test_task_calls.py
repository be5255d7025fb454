"""What comes to a task from outside while it runs, over every session: answers, signals, usage, budgets."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from relaymesh import (
    Conflict,
    Continue,
    Failed,
    InvalidPlan,
    InvalidValue,
    MeshError,
    NotFound,
    Result,
    TaskFailed,
    Unauthorized,
    Workflow,
)
from relaymesh.errors import TaskOver
from relaymesh.kernel.tasks.commands import Submit
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from tests.sdk.uniform import Uniform, World, Worlds
from tests.waiting import until_async

CHAIN: dict[str, Any] = {
    "workflow": "chain",
    "steps": {"one": {"agent": "a"}, "two": {"agent": "a", "needs": ["one"]}},
}
ALONE: dict[str, Any] = {"workflow": "alone", "steps": {"one": {"agent": "a"}}}
NOT_A_COST = [-1, 1e10, float("nan"), float("inf"), "5", True, b"5", Decimal("NaN"), Decimal("sNaN"), [1]]


async def waiting(mesh: World, wait: WaitPlan) -> Uniform:
    """A task of one step that waits."""
    mailbox = "default/a" if wait.kind == "ask" else ""
    step = StepPlan(name="ask", mailbox=mailbox, wait=wait, input=b'"Shall it?"')
    node = mesh.node
    id = node.new_ids(1)[0]
    submit = Submit(id, Plan(name="waits", steps=(step,)), b"null", id, b"", "default/mesh")
    await asyncio.to_thread(node.tasks.submit, submit)
    return Uniform(mesh.inner.task(id))


# -- answers


async def test_an_answer_to_the_question_of_a_step_is_its_output(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = await waiting(mesh, WaitPlan(kind="ask"))
        assert (await task.show()).step("ask").waiting == "answer of a"
        question = await a.receive(timeout=5)
        assert (question.type, question.content["question"]) == ("question", "Shall it?")
        receipt = await a.answer(question, {"yes": True})
        assert (receipt.id, receipt.targets, question.settled) == (question.id, 0, True)
        assert await task.result(5) == {"yes": True}
        assert await a.peek() == []
        assert (await mesh.stats()).mailboxes["default/a"].leased == 0


async def test_a_delivery_answers_as_the_agent_of_its_mailbox(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        task = await waiting(mesh, WaitPlan(kind="ask"))
        async with await a.receive(timeout=5) as question:
            await question.answer("yes")
        assert await task.result(5) == "yes"
        await b.send("a", "how are you?", type="question")
        async with await a.receive(timeout=5) as question:
            await question.answer("well")
        assert (await b.receive(timeout=5)).content == "well"


async def test_a_handler_may_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")

        def plain(delivery: Any) -> None:
            delivery.answer(["done"])

        async def awaited(delivery: Any) -> None:
            await delivery.answer(["done"])

        a.inner.handle(awaited if worlds.awaited else plain)
        task = await waiting(mesh, WaitPlan(kind="ask"))
        assert await task.result(5) == ["done"]


async def test_only_the_agent_that_was_asked_answers_once_and_with_an_option(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        task = await waiting(mesh, WaitPlan(kind="ask", options=("ja", "né")))
        with pytest.raises(Unauthorized, match="asks 'a'"):
            await task.answer("ask", "ja", by="b")
        question = await a.receive(timeout=5)
        with pytest.raises(Unauthorized, match="asks 'a'"):
            await b.answer(question, "ja")
        with pytest.raises(InvalidValue, match="is no answer"):
            await a.answer(question, "maybe")
        assert not question.settled
        with pytest.raises(NotFound, match="has no step"):
            await task.answer("two", "ja", by="a")
        assert await task.answer("ask", "né", by="a") in ("RUNNING", "SUCCESS")
        assert await task.result(5) == "né"
        with pytest.raises(TaskOver):
            await task.answer("ask", "ja", by="a")
        with pytest.raises(NotFound):
            await Uniform(mesh.inner.task("nothing")).answer("ask", "ja", by="a")


async def test_a_bad_answer_is_refused_and_the_question_waits_on(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = await waiting(mesh, WaitPlan(kind="ask"))
        question = await a.receive(timeout=5)
        for bad in (object(), float("nan"), b"bytes", "\ud800", "x" * 70_000):
            with pytest.raises(MeshError):
                await question.answer(bad)
        with pytest.raises(InvalidValue, match="priority"):
            await a.answer(question, "yes", priority=1)
        for step, by in (("", "a"), (5, "a"), ("ask", ""), ("ask", None), ("ask", 5)):
            with pytest.raises(MeshError):
                await task.answer(step, "yes", by=by)
        await question.answer("yes")
        assert await task.result(5) == "yes"


# -- signals


async def test_a_signal_ends_the_step_that_waits_for_it(worlds: Worlds) -> None:
    async with worlds() as mesh:
        task = await waiting(mesh, WaitPlan(kind="signal", signal="go"))
        assert (await task.show()).step("ask").waiting == "signal go"
        assert await task.signal("other", 1) is False
        assert await task.signal("go", {"n": 7}) is False
        assert await task.result(5) == {"n": 7}
        with pytest.raises(TaskOver, match="has ended as SUCCESS"):
            await task.signal("go")
        with pytest.raises(TaskOver):
            await task.cancel()


async def test_a_signal_that_comes_early_is_kept_and_its_id_counts_once(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        assert await task.signal("go", 1, id="s-1") is False
        assert await task.signal("go", 2, id="s-1") is True
        await (await a.receive(timeout=5)).finish("done")
        assert await task.result(5) == "done"


async def test_a_result_for_what_is_no_step_is_refused_and_settles_nothing(worlds: Worlds) -> None:
    """It would be lost: the question of a step needs an answer."""
    async with worlds() as mesh:
        a = await mesh.agent("a")
        ask = {"workflow": "ask", "steps": {"q": {"ask": "a", "question": "Shall it?"}}}
        task = Uniform(await mesh.submit(ask))
        question = await a.receive(timeout=5)
        with pytest.raises(InvalidValue, match="is no step of a task") as refused:
            await question.finish("yes")
        assert "answer(" in refused.value.hint
        assert not question.settled
        await question.answer("yes")
        assert await task.result(5) == "yes"
        await (await mesh.agent("b")).send("a", 1)
        await (await a.receive(timeout=5)).finish()


async def test_two_names_with_half_an_emoji_are_not_taken_for_one(worlds: Worlds) -> None:
    """Mended, both would be the same: one task would not run, and one signal would be a duplicate."""
    async with worlds() as mesh:
        await mesh.agent("a")
        for half in ("order-\ud83d", "order-\ude00"):
            with pytest.raises(InvalidValue, match="half an emoji"):
                await mesh.submit(ALONE, key=half)
        whole = await mesh.submit(ALONE, key="order-\ud83d\ude00")
        assert (await mesh.submit(ALONE, key="order-\U0001f600")).id == whole.id
        task = Uniform(whole)
        for half in ("\ud83d", "\ude00"):
            with pytest.raises(InvalidValue, match="half an emoji"):
                await task.signal("go", id=half)
            with pytest.raises(InvalidValue, match="half an emoji"):
                await task.signal(half)


async def test_a_bad_signal_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        for bad in (object(), float("nan"), b"bytes", "\ud800", "x" * 70_000):
            with pytest.raises(MeshError):
                await task.signal("go", bad)
        for name, id in (("", None), (5, None), ("x" * 200, None), ("go", ""), ("go", 5), ("go", "x" * 200)):
            with pytest.raises(MeshError):
                await task.signal(name, id=id)
        with pytest.raises(NotFound):
            await Uniform(mesh.inner.task("nothing")).signal("go")


# -- usage and budgets


async def test_usage_is_the_total_of_an_attempt_and_is_added_up_for_the_task(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(CHAIN))
        first = await a.receive(timeout=5)
        await first.report("half", usage={"cost_usd": 0.1})
        await first.report(usage={"cost_usd": 0.1, "tokens": 100})
        shown = await task.show()
        assert (shown.cost_usd, shown.tokens, shown.step("one").progress) == (0.1, 100, "half")
        await first.finish("one", usage={"cost_usd": Decimal("0.3000004"), "tokens": 150})
        second = await a.receive(timeout=5)
        await second.fail("no", usage={"tokens": 50})
        shown = await task.show()
        assert (shown.cost_usd, shown.tokens, shown.cost_usd_max) == (0.3, 200, None)


async def test_a_handler_says_what_it_used(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")

        def work(delivery: Any) -> Result:
            if delivery.step == "two":
                raise Failed("no", usage={"cost_usd": 0.25})
            return Result({"n": 1}, usage={"cost_usd": 1, "tokens": 9})

        a.inner.handle(work)
        task = Uniform(await mesh.submit(CHAIN))
        with pytest.raises(TaskFailed):
            await task.result(5)
        shown = await task.show()
        assert (shown.cost_usd, shown.tokens) == (1.25, 9)


async def test_a_task_that_has_used_its_budget_waits_for_a_larger_one(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(CHAIN))
        assert await task.set_budget(cost_usd=0.5, tokens=1_000) == "PENDING"
        await (await a.receive(timeout=5)).finish("one", usage={"cost_usd": 0.6})
        shown = await task.show()
        assert (shown.cost_usd_max, shown.tokens_max) == (0.5, 1_000)
        assert shown.waiting == "its budget is used: $0.60 of $0.50"
        assert await a.receive_many(1, 0) == []
        await task.set_budget(cost_usd=0)
        await (await a.receive(timeout=5)).finish("two")
        assert await task.result(5) == "two"
        shown = await task.show()
        assert (shown.cost_usd, shown.cost_usd_max, shown.waiting) == (0.6, None, "")
        with pytest.raises(TaskOver):
            await task.set_budget(tokens=5)


async def test_a_budget_is_a_number_of_dollars_with_at_most_six_decimals(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        for bad in [*NOT_A_COST, 0.0000001, Decimal("1.1234567")]:
            with pytest.raises(InvalidValue, match="cost_usd"):
                await task.set_budget(cost_usd=bad)
        for bad in (-1, 1.5, "5", True, 1 << 60):
            with pytest.raises(InvalidValue, match="tokens"):
                await task.set_budget(tokens=bad)
        for cost in (0.1, 5, Decimal("0.000001"), 999_999_999.999999):
            await task.set_budget(cost_usd=cost)
            assert (await task.show()).cost_usd_max == float(cost)


async def test_bad_usage_is_refused_and_the_step_is_still_held(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        delivery = await a.receive(timeout=5)
        bad: list[Any] = [{"cost_usd": each} for each in NOT_A_COST]
        bad += [{"tokens": each} for each in (-1, 1.5, "5", True, 1 << 60)]
        bad += [5, "cost", [1], {"cost": 1}, {1: 2}]
        for usage in bad:
            for refused in (delivery.report, delivery.finish, delivery.fail):
                with pytest.raises(InvalidValue):
                    await refused("x", usage=usage)
            with pytest.raises(InvalidValue):
                Result(1, usage=usage)
            with pytest.raises(InvalidValue):
                Failed("no", usage=usage)
        await delivery.finish("good")
        assert await task.result(5) == "good"


# -- mail about a task


async def test_a_submit_says_who_hears_of_the_task(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        await mesh.agent("boss")
        task = await mesh.submit(ALONE, owner="boss", reply_to="a", notify=["complete", "update", "complete"])
        held = mesh.node.core.read(lambda kernel: kernel.state.board.tasks[task.id])
        assert (held.reply_to, held.notify) == ("default/a", ("complete", "update"))
        with pytest.raises(InvalidPlan, match="has no mailbox"):
            await mesh.submit(ALONE, 2, reply_to="stranger")
        with pytest.raises(InvalidValue, match="owner"):
            await mesh.submit(ALONE, 3, notify=["failed"])
        for bad in ("failed", ["budget"], [5], 5, {"failed"}):
            with pytest.raises(InvalidValue, match="notify"):
                await mesh.submit(ALONE, 4, owner="boss", notify=bad)
        with pytest.raises(MeshError):
            await mesh.submit(ALONE, 5, reply_to=5)


async def test_credit_for_a_question_comes_back_with_its_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        for number in range(3):
            task = await waiting(mesh, WaitPlan(kind="ask"))
            question = await a.receive(timeout=5)
            await task.answer("ask", number, by="a")
            assert await task.result(5) == number
            await until_async(lambda: not mesh.node.core.kernel.state.leases)
            assert not question.settled


# -- growth

GROWS: dict[str, Any] = {
    "workflow": "grows",
    "steps": {
        "before": {"agent": "a"},
        "plan": {"agent": "a", "needs": ["before"], "grows": True},
        "after": {"agent": "b", "input": {"got": "${{ steps.plan.output }}"}},
    },
}
ADDED: dict[str, Any] = {
    "x": {"agent": "b", "input": {"was": "${{ steps.before.output }}"}},
    "y": {"agent": "b", "needs": ["x"]},
}


def built() -> Workflow:
    added = Workflow("added")
    first = added.step("x", agent="b", input={"was": "${{ steps.before.output }}"})
    added.step("y", agent="b", needs=[first])
    return added


@pytest.mark.parametrize(
    "steps",
    [ADDED, [{"name": name, **step} for name, step in ADDED.items()], built()],
    ids=["dict", "list", "builder"],
)
async def test_a_step_goes_on_as_steps_and_completes_with_their_outputs(worlds: Worlds, steps: Any) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        task = Uniform(await mesh.submit(GROWS))
        await (await a.receive(timeout=5)).finish("first")
        await (await a.receive(timeout=5)).grow(steps, usage={"tokens": 7})
        added = await b.receive(timeout=5)
        assert (added.step, added.input) == ("plan/x", {"was": "first"})
        await added.finish("one")
        await (await b.receive(timeout=5)).finish("two")
        after = await b.receive(timeout=5)
        assert (after.step, after.input) == ("after", {"got": "two"})
        await after.finish("done")
        assert await task.result(5) == "done"
        shown = await task.show()
        assert ([step.name for step in shown.steps], shown.tokens) == (
            ["before", "plan", "after", "plan/x", "plan/y"],
            7,
        )


async def test_a_handler_returns_the_steps_that_its_step_goes_on_as(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")

        def work(delivery: Any) -> Any:
            if delivery.step == "before":
                return "first"
            if delivery.attempt == 1:
                return Continue([{"name": "x", "agent": "nobody"}])  # refused: it is tried again
            return Continue(ADDED, usage={"cost_usd": 0.5})

        a.inner.handle(work)
        b.inner.handle(lambda delivery: delivery.step)
        task = Uniform(await mesh.submit(GROWS))
        await until_async(lambda: _failed(mesh, task.id, "plan"))
        await mesh.pass_time(60)
        assert await task.result(5) == "after"
        assert (await task.show()).cost_usd == 0.5


def _failed(mesh: World, id: str, name: str) -> bool:
    task = mesh.node.core.kernel.state.board.tasks[id]
    return bool(task.steps[task.find(name)].failed)


async def test_steps_that_are_refused_change_nothing(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, _ = await mesh.agent("a"), await mesh.agent("b")
        task = Uniform(await mesh.submit(GROWS))
        first = await a.receive(timeout=5)
        with pytest.raises(InvalidPlan, match="may not add steps"):
            await first.grow([{"name": "x", "agent": "b"}])
        await first.finish(1)
        plan = await a.receive(timeout=5)
        circle = [{"name": "x", "agent": "b", "needs": ["y"]}, {"name": "y", "agent": "b", "needs": ["x"]}]
        reads = [{"name": "x", "agent": "b", "input": "${{ steps.after.output }}"}]
        bad: list[Any] = [[], {}, [5], [{"agent": "b"}], circle, reads, [{"name": "x", "agent": "nobody"}]]
        bad += [5, "x", None, b"x", {"x": object()}, [{"name": "x", "agent": "b", "priority": 9}], {1: {}}]
        for steps in bad:
            with pytest.raises(InvalidPlan):
                await plan.grow(steps)
        with pytest.raises(InvalidValue):
            await plan.grow(ADDED, usage={"tokens": -1})
        assert len((await task.show()).steps) == 3
        await plan.finish("plain")
        with pytest.raises(InvalidPlan):
            Continue(5)  # type: ignore[arg-type]


# -- running again


async def test_a_task_runs_again_from_a_step_on(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(CHAIN, {"x": 1}))
        with pytest.raises(Conflict, match="only a task that has ended"):
            await task.rerun("two")
        await (await a.receive(timeout=5)).finish("one")
        await (await a.receive(timeout=5)).fail("no")
        assert await task.status() == "FAILED"
        if worlds.durability == "memory":
            with pytest.raises(Conflict, match="in memory"):
                await task.rerun("two")
            return
        for bad in ("", "none", 5):
            with pytest.raises(MeshError):
                await task.rerun(bad)
        again = Uniform(await task.rerun("two", {"x": 2}))
        assert (again.id == task.id, again.duplicate) == (False, False)
        assert (await task.rerun("two", {"x": 2})).id == again.id
        delivery = await a.receive(timeout=5)
        assert delivery.step == "two"
        await delivery.finish("two")
        assert await again.result(5) == "two"
        shown = await again.show()
        assert (shown.again_of, shown.step("one").status) == (task.id, "SUCCESS")
        with pytest.raises(NotFound):
            await Uniform(mesh.inner.task("none")).rerun("two")


TRIP: dict[str, Any] = {
    "workflow": "trip",
    "steps": {
        "seats": {"agent": "a"},
        "book": {"agent": "a", "needs": ["seats"], "for_each": "${{ [1, 2] }}", "compensate": {"agent": "a"}},
        "mail": {"agent": "a", "needs": ["book"]},
        "map": {"agent": "a", "needs": ["seats"]},
        "pay": {"agent": "a", "needs": ["mail", "map"]},
    },
}


@pytest.mark.parametrize("undone", [True, False])
async def test_what_was_undone_runs_again_with_what_follows_from_it(worlds: Worlds, undone: bool) -> None:
    """Its result says what is no longer so."""
    if worlds.durability == "memory":
        pytest.skip("a mesh in memory has no journal to read")
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(TRIP))
        while (delivery := await a.receive(timeout=5)).step != "pay":
            await delivery.finish(delivery.step)
        await delivery.fail("no money")
        for step in ("book/1!undo", "book/0!undo"):
            delivery = await a.receive(timeout=5)
            assert delivery.step == step
            await (delivery.finish(None) if undone else delivery.fail("too late"))
        assert await task.status() == "FAILED"
        again = await Uniform(await task.rerun("pay")).show()
        kept = [step.name for step in again.steps if step.status == "SUCCESS"]
        assert kept == (["seats", "map"] if undone else ["seats", "book", "mail", "map"])
