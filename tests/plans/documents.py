"""Documents of workflows, and words of errors, that several tables share."""

from __future__ import annotations

from typing import Any

from relaymesh.plans.builder import Workflow


def flow(**steps: Any) -> dict[str, Any]:
    return {"workflow": "w", "steps": {name: {"agent": "x", **fields} for name, fields in steps.items()}}


def one(**fields: Any) -> dict[str, Any]:
    return flow(a=fields)


def bare(**fields: Any) -> dict[str, Any]:
    """A workflow of one step, without an agent."""
    return {"workflow": "w", "steps": {"a": fields}}


def ask(**fields: Any) -> dict[str, Any]:
    return bare(**{"ask": "owner", "question": "ok?", **fields})


def undo(**fields: Any) -> dict[str, Any]:
    return one(compensate=fields)


def budget(value: Any) -> dict[str, Any]:
    return {**one(), "budget": value}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NAMES_HINT = "use letters, digits, '_', '-' and '.', at most 128"
A = "workflow 'w', step 'a', "
B = "workflow 'w', step 'b', "
RETRY_MAX = 1_000_000
ASK_HINT = "its fields: ask, question, options, timeout, default, priority, needs, when, for_each, on_failure"
WAIT_HINT = "its fields: wait, needs, when, for_each, on_failure"
SIGNAL_HINT = "its fields: signal, timeout, default, needs, when, for_each, on_failure"
INCLUDE_HINT = "its fields: workflow, input, needs, when, for_each, on_failure, parallel"
AGENT_HINT = (
    "its fields: agent, input, timeout, attempt_timeout, lease, retry, priority, key, needs, when, for_each,"
    " on_failure, parallel, grows, compensate"
)
STEP_HINT = (
    "known fields: agent, input, timeout, attempt_timeout, lease, retry, priority, key, needs, when, "
    "for_each, on_failure, parallel, grows, compensate, ask, question, options, default, wait, signal, "
    "workflow"
)
UNDO_HINT = "known fields: agent, input, timeout, attempt_timeout, lease, retry, priority, key"
MOMENT_HINT = "write 2026-11-20T07:00:00Z or 2026-11-20T08:00:00+01:00"
UNTIL_HINT = 'write wait: {until: "2026-11-20T07:00:00Z"}'
DURATION_HINT = "write 500ms, 20s, 90m, 8h, 1d or a number of seconds"
BUDGET_HINT = "write budget: {cost_usd: 5, tokens: 2000000}"
NO_MOMENT = "is no timestamp of RFC 3339 with an offset, from 1970 on"

RELEASE_PLAN = """\
workflow: release
input: {repo: string}
budget: {cost_usd: 5, tokens: 2000000}
deadline: 90m
steps:
  plan:    {agent: planner, input: {goal: "Release ${{ input.repo }}"}}
  build:   {agent: builder, for_each: "${{ steps.plan.output.targets }}", input: {target: "${{ item }}"}, parallel: 4}
  review:  {agent: reviewer, needs: [build], timeout: 20m, retry: {max_attempts: 5}}
  approve: {ask: release-owner, question: "Ship ${{ steps.review.output.version }}?", options: [ship, stop], timeout: 8h, default: stop}
  ship:    {agent: deployer, when: "${{ steps.approve.output == 'ship' }}", compensate: {agent: deployer, input: {rollback: true}}}
"""  # noqa: E501  as the page has it
"""The first example of the page about plans."""


def whole() -> Workflow:
    """A workflow with every kind of step."""
    flow = Workflow("release", budget={"cost_usd": 2.5})
    plan = flow.step("plan", agent="planner", grows=True)
    build = flow.include(
        "build", workflow="build@2", for_each=plan.output.targets, parallel=4, input={"target": flow.item}
    )
    pause = flow.wait("pause", "90s", needs=[build])
    night = flow.wait("night", until="2026-11-20T07:00:00Z", needs=[pause])
    later = flow.wait("later", plan.output.pause, needs=[pause])
    paid = flow.signal(
        "paid", signal="payment", timeout="1d", default=None, needs=[night, later], on_failure="continue"
    )
    approve = flow.ask(
        "approve",
        agent="release-owner",
        question=f"Ship {plan.output.version}? Paid: {paid.output}",
        options=["ship", "stop"],
        timeout="8h",
        default="stop",
    )
    flow.step(
        "ship",
        agent={"capability": "deploy"},
        when=f"${{{{ steps.{approve.name}.output == 'ship' }}}}",
        compensate={
            "agent": "deployer",
            "input": {"id": flow.output.id, "sure": flow.uncertain, "of": plan.output.version},
        },
    )
    return flow


Bad = tuple[str, Any, str, str | None]
"""What is wrong, the document, and the message and the hint of its error; None: the usual hint."""
