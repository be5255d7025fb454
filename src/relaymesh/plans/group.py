"""A group of steps: those of a workflow, or those that replace one step.

A step needs what it names in `needs`, the step whose failure it handles, and the steps that its expressions
read. They are ordered so that each step comes after its needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NoReturn

import msgspec

from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.plan import PLAN_BYTES_MAX, STEPS_MAX, StepPlan
from relaymesh.plans.cel_text import written
from relaymesh.plans.order import cycle, in_order
from relaymesh.plans.position import Position, kind_of
from relaymesh.plans.references import Readable, Reads, read_steps
from relaymesh.plans.shape import Shape
from relaymesh.plans.step import StepDocument, known_fields, read_step
from relaymesh.plans.work import PLAIN, StepDefaults
from relaymesh.wire.near import Names

SEES_MAX = 2 * PLAN_BYTES_MAX // 8
"""The limit for the steps before each step with `grows`, added up over a group: the plan lists all of
them."""


class Surroundings(msgspec.Struct, frozen=True):
    """The context of the steps: the namespace of their agents, the input, and the steps that they may
    read."""

    namespace: str
    shape: Shape | None
    outer: dict[str, int] = {}
    defaults: StepDefaults = PLAIN


def compile_group(given: Any, position: Position, around: Surroundings) -> tuple[StepPlan, ...]:
    """The kernel's steps of `steps` of a document. Raises `InvalidPlan`, in one line."""
    steps = _read(given, position, around)
    number = {step.name: each for each, step in enumerate(steps)}
    needs = [_needs(step, number, around, position) for step in steps]
    handled_by = _handlers(steps, number, position)
    for failed, handler in handled_by.items():
        if failed not in needs[handler]:
            needs[handler].append(failed)
    reads = [_reads(step, number, around, position) for step in steps]
    order, before = _ordered(steps, needs, reads, position)
    _check_seen(steps, before, position)
    at = {each: place for place, each in enumerate(order)}
    compiled = []
    for each in order:
        plan, (read, undo_read) = steps[each].plan, reads[each]
        compiled.append(
            msgspec.structs.replace(
                plan,
                needs=_places(needs[each], at),
                refers=_places(read.steps, at),
                outer=tuple(sorted(read.outer)),
                undo=None if plan.undo is None else _with_reads(plan.undo, undo_read, at),
                sees=_places(_numbers(before[each]), at) if plan.grows else (),
                on_failure="handle" if each in handled_by else plan.on_failure,
                handler=at[handled_by[each]] if each in handled_by else -1,
            )
        )
    return tuple(compiled)


def _with_reads(undo: StepPlan, reads: Reads, at: dict[int, int]) -> StepPlan:
    """The step that undoes another, with the numbers of the steps whose outputs it reads."""
    return msgspec.structs.replace(undo, refers=_places(reads.steps, at), outer=tuple(sorted(reads.outer)))


def _places(numbers: Iterable[int], at: dict[int, int]) -> tuple[int, ...]:
    """The numbers in the order of the plan, for steps that are numbered in the order of the document."""
    return tuple(sorted([at[each] for each in numbers]))


def _numbers(bits: int) -> list[int]:
    return [number for number, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]


def _read(given: Any, position: Position, around: Surroundings) -> list[StepDocument]:
    """The steps, each checked alone, in the order of the document."""
    if isinstance(given, list):
        pairs = [_named(step, number, position) for number, step in enumerate(given, 1)]
    elif isinstance(given, dict):
        pairs = list(given.items())
    elif given is None:
        pairs = []
    else:
        position.at("steps").refuse(f"must be an object or a list, not {kind_of(given)}")
    if not pairs:
        position.at("steps").refuse("at least one step is needed")
    if len(pairs) > STEPS_MAX:
        position.at("steps").refuse(f"has {len(pairs)} steps; {STEPS_MAX} are allowed")
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            position.at("steps").refuse(f"two steps have the name {shown(name)}")
        seen.add(name)
    return [read_step(name, fields, position, around.namespace, around.defaults) for name, fields in pairs]


def _named(step: Any, number: int, position: Position) -> tuple[str, Any]:
    """A step of the list form: its name, and its other fields."""
    if not isinstance(step, dict):
        position.at("steps").refuse(f"step {number} must be an object, not {kind_of(step)}")
    name = step.get("name")
    if not isinstance(name, str):
        known_fields(step, position.in_step(str(number)), ("name",))
        position.at("steps").refuse(f"step {number} needs a name that is text, not {shown(name)}")
    return name, {field: value for field, value in step.items() if field != "name"}


def _reads(
    step: StepDocument, number: dict[str, int], around: Surroundings, position: Position
) -> tuple[Reads, Reads]:
    """What the expressions of a step read, and what those of its `compensate` read."""
    readable = Readable(step.name, number, around.outer, around.shape, looped=bool(step.plan.for_each))
    here = position.in_step(step.name)
    return (
        read_steps(step.expressions, readable, here),
        read_steps(step.undo_expressions, readable, here, undoes=True),
    )


def _ordered(
    steps: list[StepDocument], needs: list[list[int]], reads: list[tuple[Reads, Reads]], position: Position
) -> tuple[list[int], list[int]]:
    """An order in which each step comes after its needs, and the steps before each, as bits.

    Adds to `needs` what a step reads and does not need yet.
    """
    order = in_order(needs)
    if len(order) < len(steps):
        position.at("needs").refuse(f"steps wait for each other: {_circle(steps, cycle(needs))}")
    before = _before(order, needs)
    added: list[dict[int, str]] = [
        {need: field for each in both for need, field in each.steps.items() if not ahead >> need & 1}
        for both, ahead in zip(reads, before, strict=True)
    ]
    if not any(added):
        return order, before
    for number, more in enumerate(added):
        needs[number] += more
    order = in_order(needs)
    if len(order) < len(steps):
        _refuse_circle(steps, cycle(needs), added, position)
    return order, _before(order, needs)


def _before(order: list[int], needs: list[list[int]]) -> list[int]:
    before = [0] * len(order)
    for each in order:
        for need in needs[each]:
            before[each] |= before[need] | 1 << need
    return before


def _refuse_circle(
    steps: list[StepDocument], circle: list[int], added: list[dict[int, str]], position: Position
) -> NoReturn:
    """The error names the expression that closes the cycle: without the expressions there is no cycle."""
    read, reader = next(pair for pair in pairwise(circle) if pair[0] in added[pair[1]])
    output = written(("steps", steps[read].name, "output"))
    here = position.in_step(steps[reader].name).at(added[reader][read])
    here.refuse(f"{output}: steps wait for each other: {_circle(steps, circle)}")


def _circle(steps: list[StepDocument], circle: list[int]) -> str:
    return " -> ".join([steps[each].name for each in circle])


def _check_seen(steps: list[StepDocument], before: list[int], position: Position) -> None:
    seen = sum([ahead.bit_count() for step, ahead in zip(steps, before, strict=True) if step.plan.grows])
    if seen > SEES_MAX:
        position.at("grows").refuse(
            f"the steps that grow have {seen} steps before them, in all; {SEES_MAX} are allowed"
        )


def _needs(step: StepDocument, number: dict[str, int], around: Surroundings, position: Position) -> list[int]:
    here = position.in_step(step.name).at("needs")
    found: dict[int, None] = {}
    for name in step.needs:
        if name == step.name:
            here.refuse("the step needs itself")
        if name not in number:
            meant = Names(number).nearest(name)
            hint = f"did you mean {meant!r}?" if meant else None
            here.refuse(
                f"unknown step {shown(name)}",
                "it ended before these steps: leave it out" if name in around.outer else hint,
            )
        if number[name] in found:
            here.refuse(f"names {shown(name)} twice")
        found[number[name]] = None
    return list(found)


def _handlers(steps: list[StepDocument], number: dict[str, int], position: Position) -> dict[int, int]:
    """Which step handles the failure of which: by the number of the step that may fail."""
    handled_by: dict[int, int] = {}
    failed_of: dict[str, str] = {}
    for each, step in enumerate(steps):
        name = step.handler
        if not name:
            continue
        here = position.in_step(step.name).at("on_failure")
        if name == step.name:
            here.refuse("a step cannot handle its own failure")
        if name not in number:
            meant = Names([*number, "fail", "continue"]).nearest(name)
            hint = f"did you mean {meant!r}?" if meant else "use fail, continue or the name of a step"
            here.refuse(f"unknown step {shown(name)}", hint)
        if name in failed_of:
            here.refuse(f"{name!r} handles the failure of {failed_of[name]!r} already", "use a step for each")
        failed_of[name] = step.name
        handled_by[each] = number[name]
    return handled_by
