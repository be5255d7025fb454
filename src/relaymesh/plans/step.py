"""One step of a document, checked alone: the names of its fields, their types and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.plans.cel_text import OPENING, Malformed, bare
from relaymesh.plans.compensation import read_compensation
from relaymesh.plans.naming import NAME_HINT, is_name, split_name
from relaymesh.plans.position import Position, kind_of
from relaymesh.plans.waits import read_ask, read_signal, read_wait
from relaymesh.plans.work import (
    PLAIN,
    WORK_FIELDS,
    Expressions,
    StepDefaults,
    read_work,
    template,
    whole_within,
)
from relaymesh.wire.near import Names

_ALL = ("needs", "when", "for_each", "on_failure")
FIELDS: dict[str, tuple[str, ...]] = {
    "agent": (*WORK_FIELDS, *_ALL, "parallel", "grows", "compensate"),
    "ask": ("ask", "question", "options", "timeout", "default", "priority", *_ALL),
    "wait": ("wait", *_ALL),
    "signal": ("signal", "timeout", "default", *_ALL),
    "workflow": ("workflow", "input", *_ALL, "parallel"),
}
"""The fields of each kind of step. The first one says what the step is."""
STEP_FIELDS = tuple(dict.fromkeys([field for fields in FIELDS.values() for field in fields]))
_KEYWORDS = ("fail", "continue")


class StepDocument(msgspec.Struct, frozen=True):
    """A step of the document: the part for the kernel, and the names that are not yet replaced by numbers."""

    name: str
    plan: StepPlan
    needs: tuple[str, ...]
    handler: str
    """The step that `on_failure` names; empty: none."""
    expressions: tuple[tuple[str, str], ...]
    """The expressions, each with the name of its field."""
    undo_expressions: tuple[tuple[str, str], ...] = ()
    """Those of `compensate`."""


def read_step(
    name: Any, fields: Any, workflow: Position, namespace: str, defaults: StepDefaults = PLAIN
) -> StepDocument:
    """A step of a document. Raises `InvalidPlan` that names step and field."""
    position = workflow.in_step(name)
    if not is_name(name):
        workflow.at("steps").refuse(f"{shown(name)} is no name of a step", NAME_HINT)
    if name in _KEYWORDS:
        workflow.at("steps").refuse(f"no step can have the name {name!r}: it is a word of on_failure")
    if not isinstance(fields, dict):
        position.refuse(f"must be an object, not {kind_of(fields)}")
    kind = _kind(fields, position)
    when, for_each = _expression(fields, "when", position), _expression(fields, "for_each", position)
    written: Expressions = [("when", when)] * bool(when) + [("for_each", for_each)] * bool(for_each)
    on_failure, handler = _on_failure(fields, position)
    if kind == "agent":
        plan, in_value = read_work(name, fields, position, namespace, defaults)
    else:
        plan, in_value = _READERS[kind](name, fields, position, namespace)
    undo, in_undo = read_compensation(fields.get("compensate"), plan, position, namespace, defaults)
    plan = msgspec.structs.replace(
        plan,
        when=when,
        for_each=for_each,
        parallel=_parallel(fields, position),
        on_failure="continue" if on_failure == "continue" else "fail",
        grows=_grows(fields, position),
        undo=undo,
    )
    needs = _need_names(fields, position)
    return StepDocument(name, plan, needs, handler, (*written, *in_value), tuple(in_undo))


def known_fields(fields: dict[str, Any], position: Position, more: tuple[str, ...] = ()) -> None:
    """Refuses a field that no step has."""
    for field in fields:
        if field not in STEP_FIELDS and field not in more:
            position.unknown(field, Names(STEP_FIELDS), ", ".join(STEP_FIELDS))


def _kind(fields: dict[str, Any], position: Position) -> str:
    """The kind of the step. Fields of other kinds are refused; a field with null counts as not given."""
    known_fields(fields, position)
    kinds = [kind for kind in FIELDS if fields.get(kind) is not None]
    if not kinds:
        position.at("agent").refuse(
            "the agent is missing",
            "name the agent that does the step, or write ask, wait, signal or workflow in its place",
        )
    if len(kinds) > 1:
        position.at(kinds[1]).refuse(f"a step has {kinds[0]} or {kinds[1]}, not both", "make two steps of it")
    known = FIELDS[kinds[0]]
    for field, value in fields.items():
        if field not in known and value is not None:
            position.at(field).refuse(
                f"a step with {kinds[0]} has no {field}", f"its fields: {', '.join(known)}"
            )
    return kinds[0]


def _read_workflow(
    name: str, fields: dict[str, Any], position: Position, _: str
) -> tuple[StepPlan, Expressions]:
    """A step that runs the steps of a stored workflow."""
    here = position.at("workflow")
    given = fields["workflow"]
    if not isinstance(given, str):
        here.refuse(
            f"must be the name of a stored workflow, not {shown(given)}", "write NAME or NAME@VERSION"
        )
    if OPENING in given:
        here.refuse("must be a name: expressions are not evaluated here")
    try:
        split_name(given)
    except InvalidValue as error:
        here.refuse_error(error)
    value = fields.get("input")
    expressions = template(value, position.at("input"))
    encoded, dynamic = msgspec.json.encode(value), bool(expressions)
    return StepPlan(name=name, mailbox="", input=encoded, dynamic=dynamic, include=given), expressions


_READERS: dict[str, Callable[[str, dict[str, Any], Position, str], tuple[StepPlan, Expressions]]] = {
    "ask": read_ask,
    "wait": read_wait,
    "signal": read_signal,
    "workflow": _read_workflow,
}


def _grows(fields: dict[str, Any], position: Position) -> bool:
    grows = fields.get("grows")
    if grows is not None and not isinstance(grows, bool):
        position.at("grows").refuse(f"must be true or false, not {shown(grows)}")
    return bool(grows)


def _parallel(fields: dict[str, Any], position: Position) -> int:
    """How many items may be out at once; 0: as many as the task allows."""
    parallel = fields.get("parallel")
    if parallel is None:
        return 0
    if fields.get("for_each") is None:
        position.at("parallel").refuse("only a step with for_each runs in parallel", "add for_each")
    return whole_within(parallel, "parallel", position.at("parallel"), least=1)


def _expression(fields: dict[str, Any], field: str, position: Position) -> str:
    """A field that is one expression; empty: the field is not given."""
    value = fields.get(field)
    if value is None:
        return ""
    here = position.at(field)
    try:
        expression = bare(value)
    except Malformed as error:
        here.refuse(f"{error}, not {shown(value)}" if str(error).startswith("must") else str(error))
    if not expression:
        here.refuse("the expression is empty")
    return expression


def _need_names(fields: dict[str, Any], position: Position) -> tuple[str, ...]:
    needs = fields.get("needs")
    if needs is None:
        return ()
    if not isinstance(needs, list):
        hint = f"write [{needs}]" if isinstance(needs, str) else None
        position.at("needs").refuse(f"must be a list of step names, not {shown(needs)}", hint)
    for each in needs:
        if not isinstance(each, str):
            position.at("needs").refuse(f"must be a list of step names; {shown(each)} is none")
    return tuple(needs)


def _on_failure(fields: dict[str, Any], position: Position) -> tuple[str, str]:
    """What happens to the task, and the step that handles the failure."""
    value = fields.get("on_failure", "fail")
    if not isinstance(value, str):
        position.at("on_failure").refuse(f"must be fail, continue or the name of a step, not {shown(value)}")
    return (value, "") if value in _KEYWORDS else ("fail", value)
