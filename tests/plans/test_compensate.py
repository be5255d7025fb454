"""Steps that undo others: who does it, and what they may read."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.plans.document import agents_of, compile_plan
from relaymesh.plans.expressions import ExpressionFailed, evaluate
from tests.plans.documents import flow, one, undo


def undo_of(document: dict[str, Any]) -> StepPlan:
    found = compile_plan(document, "default").steps[-1].undo
    assert found is not None
    return found


def test_the_agent_of_the_step_undoes_it_unless_another_is_named() -> None:
    assert undo_of(undo()) == StepPlan(name="a", mailbox="default/x")
    assert undo_of(undo(agent="y", input={"back": True})) == StepPlan(
        name="a", mailbox="default/y", input=b'{"back":true}'
    )
    assert undo_of(one(agent={"capability": "deploy"}, compensate={})).capability == "deploy"
    named = undo_of(one(agent={"capability": "deploy"}, compensate={"agent": "y"}))
    assert (named.mailbox, named.capability) == ("default/y", "")
    chosen = undo_of(undo(agent={"capability": "repair"}))
    assert (chosen.mailbox, chosen.capability) == ("", "repair")


def test_it_has_retries_and_times_of_its_own() -> None:
    found = undo_of(
        one(
            retry={"max_attempts": 9},
            timeout=9,
            compensate={
                "retry": {"max_attempts": 1, "max_abandoned": 2},
                "timeout": "1m",
                "attempt_timeout": "30s",
                "lease": "20s",
                "priority": 1,
                "key": "production",
            },
        )
    )
    assert (found.max_attempts, found.max_abandoned, found.priority, found.key) == (1, 2, 1, "production")
    assert (found.timeout_ms, found.attempt_timeout_ms, found.lease_ms) == (60_000, 30_000, 20_000)


def test_it_reads_the_output_of_its_step_and_of_the_steps_before() -> None:
    reads = "${{ [output, uncertain, input, steps.a.output, item, index] }}"
    document = flow(a={}, b={"for_each": "${{ input.x }}", "needs": ["a"], "compensate": {"input": reads}})
    found = undo_of(document)
    assert (found.dynamic, found.refers, found.needs) == (True, (0,), ())
    assert compile_plan(document).steps[1].refers == ()


def test_a_step_needs_what_its_compensate_reads() -> None:
    document = flow(b={"compensate": {"input": "${{ steps.a.output }}"}}, a={})
    [a, b] = compile_plan(document).steps
    assert (a.name, b.name, b.needs, b.refers) == ("a", "b", (0,), ())
    assert b.undo is not None
    assert b.undo.refers == (0,)


def test_its_agent_is_one_of_the_agents_of_the_plan() -> None:
    assert agents_of(compile_plan(undo(agent="y"))) == ["default/x", "default/y"]


def test_output_and_uncertain_are_evaluated() -> None:
    template = b'{"id":"${{ uncertain ? input.id : output.id }}","sure":"${{ !uncertain }}"}'
    done = {"input": {"id": 1}, "steps": {}, "output": {"id": 7}, "uncertain": False}
    assert evaluate(template, done) == b'{"id":7,"sure":true}'
    assert evaluate(template, {**done, "output": None, "uncertain": True}) == b'{"id":1,"sure":false}'
    with pytest.raises(ExpressionFailed, match="no field 'id' in output; it is null"):
        evaluate(b'"${{ output.id }}"', {**done, "output": None})


def test_a_loop_may_still_call_its_variable_output_elsewhere() -> None:
    """Plans that were stored before `output` had a meaning still compile."""
    expression = "${{ input.all.map(output, output.id) }}"
    [step] = compile_plan(one(input=expression)).steps
    assert evaluate(step.input, {"input": {"all": [{"id": 1}, {"id": 2}]}, "steps": {}}) == b"[1,2]"
    with pytest.raises(ExpressionFailed, match="no field 'all' in input; it has: nothing"):
        evaluate(step.input, {"input": {}, "steps": {}})
