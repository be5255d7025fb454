"""Random documents: whatever is in them, they compile or are refused in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.tasks.plan import Plan, check_plan
from relaymesh.plans.builder import Step, Workflow
from relaymesh.plans.document import compile_plan, compile_steps
from relaymesh.plans.graph import mermaid, text_tree
from relaymesh.plans.reading import read_yaml
from relaymesh.plans.step import FIELDS, STEP_FIELDS
from relaymesh.plans.writing import write_yaml

TEXTS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "x",
        "",
        "fail",
        "continue",
        "release@3",
        "release@",
        "30s",
        "8h",
        "-1s",
        "2026-11-20T07:00:00Z",
        "2026-13-45T07:00:00Z",
        "${{ steps.a.output }}",
        "${{ steps.b.output.x }}",
        "${{ steps.outside.output }}",
        "${{ item }} ${{ index }}",
        "${{ output }}",
        "${{ uncertain ? 1 : 2 }}",
        "${{ input.x }}",
        "${{ x",
        "${{ ) }}",
        "${{ }}",
        "\ud83d",
        "a\x00b",
        "ns/x",
        "high",
    ]
) | st.text(max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
READS = st.sampled_from(
    ["${{ input.x }}", "${{ steps.a.output }}", "${{ steps.b.output.x }}", "is ${{ 1 + 1 }}", "plain", 5]
)
NAMES = st.sampled_from(["a", "b", "c", "d"])
SECONDS = st.sampled_from(["1s", 5, "500ms"])
WORK: dict[str, st.SearchStrategy[Any]] = {
    "agent": st.sampled_from(["x", "y", {"capability": "code"}]),
    "input": READS | st.lists(READS, max_size=2),
    "timeout": SECONDS,
    "attempt_timeout": SECONDS,
    "lease": st.just("20s"),
    "retry": st.just({"max_attempts": 2}),
    "priority": st.sampled_from([1, "low"]),
    "key": st.just("k"),
}
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    **WORK,
    "needs": st.lists(NAMES, max_size=1),
    "when": st.just("${{ input.x }}"),
    "for_each": st.sampled_from(["${{ input.x }}", "${{ steps.a.output }}"]),
    "on_failure": st.sampled_from(["fail", "continue", "d"]),
    "parallel": st.just(2),
    "grows": st.booleans(),
    "compensate": st.fixed_dictionaries({}, optional={**WORK, "input": READS | st.just("${{ output }}")}),
    "ask": st.just("x"),
    "question": READS,
    "options": st.sampled_from([["p", "q"], ["p"]]),
    "default": st.sampled_from(["p", "p", None, {"p": 1}]),
    "wait": SECONDS | st.sampled_from(["${{ input.x }}", {"until": "2026-11-20T07:00:00Z"}]),
    "signal": st.just("s"),
    "workflow": st.sampled_from(["release", "release@3"]),
}
MUST = {"ask": ["question", "timeout"], "signal": ["timeout"]}


@st.composite
def step_fields(draw: st.DrawFn) -> Any:
    """A step that is often right, and sometimes has one field too many or one odd value."""
    kind = draw(st.sampled_from(list(FIELDS)))
    chosen = draw(st.lists(st.sampled_from(FIELDS[kind]), max_size=3))
    if "parallel" in chosen:
        chosen.append("for_each")
    fields = {field: draw(LIKELY[field]) for field in [kind, *MUST.get(kind, []), *chosen]}
    if draw(st.integers(0, 5)) == 5:
        fields[draw(st.sampled_from(STEP_FIELDS))] = draw(VALUES)
    return fields if draw(st.integers(0, 30)) < 30 else draw(VALUES)


STEPS = st.dictionaries(NAMES, step_fields(), min_size=1, max_size=4)
BUDGETS = st.dictionaries(
    st.sampled_from(["cost_usd", "tokens"]), st.sampled_from([1, 2, 3, 0.5]), min_size=1
)


@st.composite
def documents(draw: st.DrawFn) -> Any:
    document: dict[str, Any] = {"workflow": "w", "steps": draw(STEPS)}
    if draw(st.booleans()):
        document["budget"] = draw(BUDGETS)
    if draw(st.integers(0, 5)) == 5:
        document[draw(st.sampled_from(["workflow", "steps", "budget", "version", "x"]))] = draw(VALUES)
    return document


def compiled(compile: Callable[[], Any]) -> Any:
    """What it gives; None: it was refused, in one line."""
    try:
        return compile()
    except InvalidPlan as error:
        lines = str(error).splitlines()
    assert len(lines) == 1, lines
    return None


@settings(max_examples=300, deadline=None)
@given(documents())
def test_a_random_document_is_a_plan_or_invalid(document: Any) -> None:
    plan = compiled(lambda: compile_plan(document))
    event("a plan" if plan is not None else "invalid")
    if plan is not None:
        assert check_plan(plan) is plan
        assert text_tree(plan)
        assert mermaid(plan)
        assert compile_plan(read_yaml(write_yaml(document))) == plan


@settings(max_examples=150, deadline=None)
@given(STEPS | VALUES)
def test_random_steps_are_a_group_or_invalid(document: Any) -> None:
    steps = compiled(lambda: compile_steps(document, "default", {"outside": 3}, "step 'a' of task t1"))
    event("steps" if steps is not None else "invalid")


class Rude:
    """All that is asked of it fails."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class RudeText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    def __contains__(self, part: object) -> bool:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = str.__hash__


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "rude": Rude,
    "rude text": lambda: RudeText("x"),
    "lock": threading.Lock,
    "iterator": lambda: iter(()),
    "endless": _endless,
    "number as a key": lambda: {1: 2},
    "tuple as a key": lambda: {(1,): 2},
    "set": lambda: {1, 2},
    "bytes": lambda: b"x",
    "nan": lambda: float("nan"),
    "huge": lambda: 10**400,
    "type": lambda: object,
    "reference": lambda: Workflow("v").input,
    "step": lambda: Step("nowhere"),
    "half an emoji": lambda: "\ud83d",
    "open expression": lambda: "${{",
}
"""Made anew for each test: the test runner itself looks at what it is given."""
CALLS: dict[str, dict[str, Any]] = {
    "step": dict.fromkeys(["agent", "input", "needs", "for_each", "grows", "compensate"]) | {"agent": "x"},
    "ask": dict.fromkeys(["agent", "question", "options", "timeout", "default", "priority", "when"])
    | {"agent": "x", "question": "?"},
    "wait": {"duration": None, "until": None, "on_failure": None},
    "signal": {"signal": "s", "timeout": None, "default": None},
    "include": {"workflow": "w", "input": None, "parallel": None},
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("method", CALLS)
def test_hostile_values_in_the_builder_are_refused_or_compile(method: str, hostile: str) -> None:
    for field in ["name", *CALLS[method]]:
        given = {key: value for key, value in CALLS[method].items() if value is not None}
        values = {"name": "a", **given, field: HOSTILE[hostile]()}
        compiled(lambda values=values: _built(method, values))  # type: ignore[misc]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("field", ["version", "input", "deadline", "budget"])
def test_hostile_values_of_a_workflow_are_refused_or_compile(field: str, hostile: str) -> None:
    def build() -> Plan:
        flow = Workflow("w", **{field: HOSTILE[hostile]()})
        flow.step("a", agent="x")
        return flow.compile()

    compiled(build)


def _built(method: str, values: dict[str, Any]) -> Plan:
    flow = Workflow("w")
    getattr(flow, method)(**values)
    return flow.compile()
