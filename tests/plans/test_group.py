"""Steps together: what is read is needed, and what a step goes on as may read the steps before it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.tasks.plan import STEPS_MAX, check_steps
from relaymesh.plans.document import compile_plan, compile_steps
from tests.plans.documents import flow

SCOPE = {"plan": 0, "build": 7}
WHAT = "step 'plan' of task t1"


def test_a_step_needs_what_its_expressions_read() -> None:
    plan = compile_plan(
        flow(
            d={"for_each": "${{ steps.c.output }}"},
            c={"when": "${{ steps.b.output }}"},
            b={"input": ["${{ steps['a'].output.x }}"]},
            a={},
        )
    )
    assert [step.name for step in plan.steps] == ["a", "b", "c", "d"]
    assert [step.needs for step in plan.steps] == [(), (0,), (1,), (2,)]
    assert [step.refers for step in plan.steps] == [(), (0,), (1,), (2,)]


def test_what_is_needed_through_others_is_not_added() -> None:
    """So plans that were written with all their needs stay the same."""
    plan = compile_plan(flow(a={}, b={"needs": ["a"]}, c={"needs": ["b"], "input": "${{ steps.a.output }}"}))
    assert (plan.steps[2].needs, plan.steps[2].refers) == ((1,), (0,))


def test_a_step_that_grows_sees_all_steps_before_it() -> None:
    plan = compile_plan(
        flow(
            d={"needs": ["c"], "grows": True},
            other={},
            a={},
            b={"needs": ["a"]},
            c={"input": "${{ steps.b.output }}"},
            first={"grows": True},
        )
    )
    names = [step.name for step in plan.steps]
    [d] = [step for step in plan.steps if step.name == "d"]
    assert [names[each] for each in d.sees] == ["a", "b", "c"]
    assert [step.sees for step in plan.steps if step.name == "first"] == [()]


def test_added_steps_read_each_other_and_the_steps_before() -> None:
    [first, second] = compile_steps(
        {
            "second": {"agent": "x", "input": "${{ [steps.first.output, steps.build.output] }}"},
            "first": {"agent": "y", "grows": True, "input": "${{ steps.plan.output }}"},
        },
        "team",
        SCOPE,
        WHAT,
    )
    assert (first.name, first.mailbox, first.outer, first.refers) == ("first", "team/y", (0,), ())
    assert (second.needs, second.refers, second.outer) == ((0,), (0,), (7,))


def test_a_step_of_the_group_hides_one_of_the_same_name() -> None:
    [plan, reader] = compile_steps(
        [{"name": "plan", "agent": "x"}, {"name": "r", "agent": "x", "input": "${{ steps.plan.output }}"}],
        "default",
        SCOPE,
        WHAT,
    )
    assert (plan.name, reader.refers, reader.outer) == ("plan", (0,), ())


def test_in_a_group_compensate_reads_outside_and_grows_sees_inside() -> None:
    [_, b] = compile_steps(
        {
            "a": {"agent": "x"},
            "b": {
                "agent": "x",
                "needs": ["a"],
                "grows": True,
                "compensate": {"input": "${{ [output, steps.build.output, steps.a.output] }}"},
            },
        },
        "default",
        SCOPE,
        WHAT,
    )
    assert b.undo is not None
    assert (b.sees, b.outer, b.undo.refers, b.undo.outer) == ((0,), (), (0,), (7,))


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ([], f"{WHAT}, steps: at least one step is needed", None),
        (5, f"{WHAT}, steps: must be an object or a list, not a number", None),
        ({"a": 5}, f"{WHAT}, step 'a': must be an object, not a number", None),
        ({"a": {"agent": "x", "input": {1}}}, f"{WHAT}: a.input: a set is not JSON", None),
        (
            {"a": {"agent": "x", "input": "${{ steps.paln.output }}"}},
            f"{WHAT}, step 'a', input: steps.paln: there is no step 'paln'",
            "did you mean 'plan'?",
        ),
        (
            {"a": {"agent": "x", "needs": ["plan"]}},
            f"{WHAT}, step 'a', needs: unknown step 'plan'",
            "it ended before these steps: leave it out",
        ),
        (
            {"plan": {"agent": "x", "input": "${{ steps.plan.output }}"}},
            f"{WHAT}, step 'plan', input: steps.plan.output: a step cannot read its own output",
            None,
        ),
        (
            {"a": {"agent": "x", "needs": ["b"]}, "b": {"agent": "x", "needs": ["a"]}},
            f"{WHAT}, needs: steps wait for each other: a -> b -> a",
            None,
        ),
        (
            [{"name": "a", "agent": "x"}, {"name": "a", "agent": "x"}],
            f"{WHAT}, steps: two steps have the name 'a'",
            None,
        ),
        (
            {f"s{number}": {"agent": "x"} for number in range(STEPS_MAX + 1)},
            f"{WHAT}, steps: has 10001 steps; 10000 are allowed",
            None,
        ),
        (
            {"a": {"agent": "x", "input": "x" * 1_048_576}},
            f"{WHAT}: has 1048606 bytes as JSON; 1048576 are allowed",
            None,
        ),
    ],
)
def test_a_bad_group_is_refused_in_one_line(document: Any, message: str, hint: str | None) -> None:
    with pytest.raises(InvalidPlan) as caught:
        compile_steps(document, "default", SCOPE, WHAT)
    assert caught.value.message == message
    assert caught.value.hint == (InvalidPlan.default_hint if hint is None else hint)


def test_ten_thousand_steps_that_read_each_other_compile() -> None:
    names = [f"s{number}" for number in range(STEPS_MAX)]
    steps: dict[str, Any] = {names[0]: {"agent": "x"}}
    for before, name in pairwise(names):
        steps[name] = {"agent": "x", "input": f"${{{{ steps.{before}.output }}}}"}
    document = dict(reversed(steps.items()))
    assert compile_steps(document, "default", {}, WHAT)[-1].needs == (STEPS_MAX - 2,)


@st.composite
def reading(draw: st.DrawFn) -> dict[str, Any]:
    """Steps that read some of those before them, written in any order, with and without saying so."""
    count = draw(st.integers(1, 10))
    steps: dict[str, dict[str, Any]] = {}
    for number in range(count):
        earlier = st.sets(st.integers(0, number - 1)) if number else st.just(set())
        needs, read, undo = draw(earlier), draw(earlier), draw(earlier)
        steps[f"s{number}"] = {
            "agent": "x",
            "needs": [f"s{each}" for each in sorted(needs)],
            "input": [f"${{{{ steps.s{each}.output }}}}" for each in sorted(read)],
            "grows": draw(st.booleans()),
            "compensate": {"input": [f"${{{{ steps.s{each}.output }}}}" for each in sorted(undo)]},
        }
    order = draw(st.permutations(list(steps)))
    return {name: steps[name] for name in order}


@settings(deadline=None)  # the first expression loads the library
@given(reading())
def test_every_step_stands_behind_all_that_it_reads(document: dict[str, Any]) -> None:
    steps = check_steps(compile_steps(document, "default", {}, WHAT), WHAT)
    names = [step.name for step in steps]
    before: list[set[int]] = []
    for number, step in enumerate(steps):
        assert step.undo is not None
        before.append(set(step.needs).union(*[before[need] for need in step.needs]))
        assert {*step.refers, *step.undo.refers} <= before[number]
        assert {names[each] for each in step.refers} == {
            text.split(".")[1] for text in document[step.name]["input"]
        }
        assert set(step.sees) == (before[number] if step.grows else set())
