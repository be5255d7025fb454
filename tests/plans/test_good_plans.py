"""Good plans compile: needs come first, references are places, defaults are the kernel's."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relaymesh.kernel.tasks.plan import StepPlan, WaitPlan, check_plan
from relaymesh.plans.builder import Workflow
from relaymesh.plans.document import agents_of, compile_plan
from relaymesh.plans.reading import read_yaml
from tests.plans.documents import RELEASE_PLAN
from tests.project.tree import ROOT

RELEASE = """
workflow: release
version: "2"
input: {repo: string}
deadline: 90m
steps:
  plan:   {agent: planner, input: {goal: "Release ${{ input.repo }}"}}
  build:
    agent: builder
    needs: [plan]
    for_each: "${{ steps.plan.output.targets }}"
    input: {target: "${{ item }}"}
    parallel: 4
  review: {agent: reviewer, needs: [build], timeout: 20m, retry: {max_attempts: 5}}
  ship:
    agent: deployer
    needs: [review]
    when: "${{ steps.review.output.approved && size(steps.plan.output.targets) > 0 }}"
    priority: critical
    key: production
    on_failure: roll-back
  roll-back: {agent: deployer, input: {why: "${{ steps.ship.output.error }}"}}
"""


def release() -> Workflow:
    flow = Workflow("release", version="2", deadline="90m", input={"repo": "string"})
    plan = flow.step("plan", agent="planner", input={"goal": f"Release {flow.input.repo}"})
    build = flow.step(
        "build", agent="builder", for_each=plan.output["targets"], input={"target": flow.item}, parallel=4
    )
    review = flow.step("review", agent="reviewer", needs=[build], timeout="20m", retry={"max_attempts": 5})
    flow.step(
        "ship",
        agent="deployer",
        needs=[review],
        when="${{ steps.review.output.approved && size(steps.plan.output.targets) > 0 }}",
        priority="critical",
        key="production",
        on_failure="roll-back",
    )
    flow.step("roll-back", agent="deployer", input={"why": "${{ steps.ship.output.error }}"})
    return flow


def test_the_example_of_the_page_compiles_as_it_is_written() -> None:
    plan = compile_plan(read_yaml(RELEASE_PLAN))
    assert (plan.name, plan.deadline_ms) == ("release", 5_400_000)
    assert (plan.cost_micros, plan.tokens) == (5_000_000, 2_000_000)
    assert [step.name for step in plan.steps] == ["plan", "build", "review", "approve", "ship"]
    assert [step.needs for step in plan.steps] == [(), (0,), (1,), (2,), (3,)]
    approve, ship = plan.steps[3:]
    assert approve == StepPlan(
        name="approve",
        mailbox="default/release-owner",
        input=b'{"question":"Ship ${{ steps.review.output.version }}?","options":["ship","stop"]}',
        dynamic=True,
        needs=(2,),
        refers=(2,),
        timeout_ms=28_800_000,
        wait=WaitPlan(kind="ask", options=("ship", "stop"), default=b'"stop"'),
    )
    assert ship.when == "steps.approve.output == 'ship'"
    assert ship.undo == StepPlan(name="ship", mailbox="default/deployer", input=b'{"rollback":true}')
    page = (ROOT / "docs" / "reference" / "plans.md").read_text()
    [first, *others] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert first == RELEASE_PLAN
    for other in others:
        compile_plan(read_yaml(other))


def test_the_release_compiles() -> None:
    plan = compile_plan(read_yaml(RELEASE), "team")
    assert (plan.name, plan.version, plan.deadline_ms) == ("release", "2", 5_400_000)
    assert [step.name for step in plan.steps] == ["plan", "build", "review", "ship", "roll-back"]
    first, build, review, ship, back = plan.steps
    assert first == StepPlan(
        name="plan", mailbox="team/planner", input=b'{"goal":"Release ${{ input.repo }}"}', dynamic=True
    )
    assert (build.needs, build.refers, build.parallel) == ((0,), (0,), 4)
    assert build.for_each == "steps.plan.output.targets"
    assert (review.needs, review.timeout_ms, review.max_attempts, review.dynamic) == (
        (1,),
        1_200_000,
        5,
        False,
    )
    assert (ship.needs, ship.refers, ship.priority, ship.key) == ((2,), (0, 2), 1, "production")
    assert (ship.on_failure, ship.handler) == ("handle", 4)
    assert (back.needs, back.refers) == ((3,), (3,))
    assert agents_of(plan) == ["team/planner", "team/builder", "team/reviewer", "team/deployer"]


def test_the_builder_gives_the_plan_of_the_yaml() -> None:
    assert release().compile("team") != compile_plan(read_yaml(RELEASE))
    built, written = release().document(), read_yaml(RELEASE)
    written["steps"]["ship"]["needs"] = ["review", "plan"]  # the builder adds what is referred to
    written["steps"]["roll-back"]["needs"] = ["ship"]
    assert built == written


def test_steps_may_be_a_list() -> None:
    document = read_yaml(RELEASE)
    listed = {**document, "steps": [{"name": name, **step} for name, step in document["steps"].items()]}
    assert compile_plan(listed) == compile_plan(document)


def test_steps_keep_their_order_where_needs_allow_it() -> None:
    steps = {"c": {"needs": ["a"]}, "b": {}, "a": {}, "d": {}}
    document = {"workflow": "w", "steps": {name: {"agent": "x", **step} for name, step in steps.items()}}
    assert [step.name for step in compile_plan(document).steps] == ["b", "a", "c", "d"]


def test_every_field_reaches_the_kernel() -> None:
    fields = {
        "attempt_timeout": 1.5,
        "lease": "30s",
        "retry": {"max_abandoned": 0},
        "priority": 5,
        "on_failure": "continue",
        "timeout": "1d",
    }
    [step] = compile_plan({"workflow": "w", "steps": {"a": {"agent": "default/x", **fields}}}).steps
    assert (step.attempt_timeout_ms, step.lease_ms, step.max_abandoned) == (1_500, 30_000, 0)
    assert (step.priority, step.on_failure, step.timeout_ms, step.mailbox) == (
        5,
        "continue",
        86_400_000,
        "default/x",
    )


def test_ten_thousand_steps_in_a_chain_compile() -> None:
    steps: dict[str, Any] = {"s0": {"agent": "x"}}
    for number in range(1, 10_000):
        steps[f"s{number}"] = {"agent": "x", "needs": [f"s{number - 1}"]}
    assert compile_plan({"workflow": "w", "steps": steps}).steps[-1].needs == (9_998,)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A random graph, written in a random order, in which steps read some of what they need."""
    count = draw(st.integers(1, 12))
    steps: dict[str, dict[str, Any]] = {}
    for number in range(count):
        needs = draw(st.lists(st.integers(0, number - 1), unique=True)) if number else []
        read = draw(st.lists(st.sampled_from(needs), unique=True)) if needs else []
        steps[f"s-{number}"] = {
            "agent": "x",
            "needs": [f"s-{need}" for need in needs],
            "input": [f"${{{{ steps['s-{each}'].output }}}}" for each in read],
        }
    order = draw(st.permutations(list(steps)))
    return {"workflow": "w", "steps": {name: steps[name] for name in order}}


@given(documents())
def test_any_graph_compiles_with_needs_first(document: dict[str, Any]) -> None:
    plan = compile_plan(document)
    assert check_plan(plan) is plan
    names = [step.name for step in plan.steps]
    assert sorted(names) == sorted(document["steps"])
    for place, step in enumerate(plan.steps):
        written = document["steps"][step.name]
        assert {names[need] for need in step.needs} == set(written["needs"])
        assert all(need < place for need in step.needs)
        assert len(step.refers) == len(written["input"])
        assert set(step.refers) <= set(step.needs)
