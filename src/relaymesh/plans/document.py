"""Checks a plan document, and compiles it to the plan of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.bounds import TEXT_LENGTH_MAX, shown
from relaymesh.kernel.tasks.plan import Plan, StepPlan, check_plan, check_steps
from relaymesh.plans.budget import read_budget
from relaymesh.plans.duration import duration_ms
from relaymesh.plans.group import Surroundings, compile_group
from relaymesh.plans.json_value import check_value
from relaymesh.plans.naming import NAME_HINT, is_name
from relaymesh.plans.position import Position, kind_of, one_line
from relaymesh.plans.shape import check_shape, declared_shape
from relaymesh.plans.work import PLAIN, StepDefaults
from relaymesh.wire.near import Names

_FIELDS = ("workflow", "version", "input", "deadline", "budget", "steps")


def compile_plan(document: Any, namespace: str = DEFAULT_NAMESPACE, defaults: StepDefaults = PLAIN) -> Plan:
    """The plan of a document, for the agents of a namespace. Raises `InvalidPlan`, in one line."""
    return compile_workflow(document, namespace, defaults)[0]


def compile_workflow(
    document: Any, namespace: str = DEFAULT_NAMESPACE, defaults: StepDefaults = PLAIN
) -> tuple[Plan, DeclaredInput]:
    """The same, and the input that the document declares."""
    position = _workflow(document)
    declared = DeclaredInput(document, position)
    deadline = document.get("deadline")
    deadline_ms = 0 if deadline is None else duration_ms(deadline, position.at("deadline"))
    version = document.get("version", "")
    if not isinstance(version, str):
        position.at("version").refuse(f"must be text, not {shown(version)}", "quote it")
    if len(version) > TEXT_LENGTH_MAX:
        position.at("version").refuse(f"has {len(version)} characters; {TEXT_LENGTH_MAX} are allowed")
    budget = read_budget(document.get("budget"), position)
    steps = compile_group(
        document.get("steps"), position, Surroundings(namespace, declared.shape, defaults=defaults)
    )
    plan = Plan(name=position.workflow, steps=steps, version=version, deadline_ms=deadline_ms, **budget)
    try:
        return check_plan(plan), declared
    except InvalidPlan as error:
        position.refuse_error(error)


def compile_steps(
    document: Any,
    namespace: str,
    scope_names: Mapping[str, int],
    what: str,
    defaults: StepDefaults = PLAIN,
) -> tuple[StepPlan, ...]:
    """The steps that replace a step. `document` has the form of `steps` of a workflow.

    Their expressions may also read the steps in `scope_names`, which gives their numbers in the task.
    `what`: what the document is, for errors.
    """
    position = Position(what=what)
    check_value(document, position)
    steps = compile_group(document, position, Surroundings(namespace, None, dict(scope_names), defaults))
    try:
        return check_steps(steps, what)
    except InvalidPlan as error:
        raise InvalidPlan(one_line(error.message), hint=error.hint) from None


class DeclaredInput:
    """The input that a workflow declares."""

    __slots__ = ("_position", "shape")

    def __init__(self, document: dict[str, Any], position: Position) -> None:
        self._position = position.at("input")
        self.shape = declared_shape(document.get("input"), self._position)

    def check(self, value: Any) -> None:
        """Refuses a task's input that does not agree with it."""
        check_value(value, self._position)
        check_shape(self.shape, value, self._position)


def check_input(document: Any, value: Any) -> None:
    """Refuses a task's input that does not agree with what the workflow declares."""
    DeclaredInput(document, _workflow(document)).check(value)


def _workflow(document: Any) -> Position:
    """Check the document's values, its name and the names of its fields. Returns its position."""
    if not isinstance(document, dict):
        Position().refuse(f"must be an object, not {kind_of(document)}")
    name = document.get("workflow")
    if name is None:
        Position(field="workflow").refuse("the name of the workflow is missing", "add workflow: NAME")
    if not is_name(name):
        Position(field="workflow").refuse(f"{shown(name)} is no name", NAME_HINT)
    position = Position(name)
    check_value(document, position)
    for field in document:
        if field not in _FIELDS:
            position.unknown(field, Names(_FIELDS), ", ".join(_FIELDS))
    return position


def agents_of(plan: Plan) -> list[str]:
    """The addresses of the agents that a plan names, each once: for work, for questions, and for undoing."""
    steps = [each for step in plan.steps for each in (step, step.undo) if each is not None]
    return list(dict.fromkeys([step.mailbox for step in steps if step.mailbox]))
