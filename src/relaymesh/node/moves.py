"""Evaluates a ready step: its condition, its items, its input, its wait. This is done outside the lock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from relaymesh.errors import InvalidValue, MeshError
from relaymesh.kernel.bounds import LEASE_MS_MAX, MOMENT_MS_MAX, number, shown
from relaymesh.kernel.payload import REFERENCE_MARK
from relaymesh.kernel.query import ShowWorkflow
from relaymesh.kernel.tasks.commands import ITEM_MAX, MESSAGE_MAX, Move
from relaymesh.kernel.tasks.looks import ReadyStep, ReadyTask
from relaymesh.kernel.tasks.stored import WorkflowView, missing
from relaymesh.plans.document import compile_workflow
from relaymesh.plans.expressions import (
    Effort,
    ExpressionFailed,
    effort_of,
    evaluate,
    evaluate_list,
    evaluate_when,
)
from relaymesh.plans.naming import split_name
from relaymesh.plans.work import PLAIN, StepDefaults
from relaymesh.wire.tasks import question_content, step_content

__all__ = ["included", "move_of", "takes_long"]

SHARED_BYTES_MIN = 1_024
SHARED_MAX = 8
"""Inputs and outputs of at least so many bytes, and how many of them, whose values are kept for the next
advance of their task.
"""

QUICK_BYTES_MAX = 65_536
"""The most bytes that the expressions of all ready steps may read on an event loop."""

FindWorkflow = Callable[[ShowWorkflow], WorkflowView | None]
Resolve = Callable[[bytes], bytes]


def takes_long(task: ReadyTask) -> bool:
    """Whether an event loop should leave the moves of the ready steps to another thread: their expressions
    read files or much, or loop, or a step includes a workflow.
    """
    size = 0
    for step in task.steps:
        if step.include:
            return True
        if step.when or step.for_each or step.dynamic:
            reads = [task.input if step.scope is None else step.scope, step.item or b"", step.output or b""]
            reads += [output for _, output in step.outputs]
            effort = _effort(step)
            size += sum(map(len, reads)) if effort else 0
            if effort == Effort.LOOPS or size > QUICK_BYTES_MAX:
                return True
            if any(REFERENCE_MARK in text for text in reads):
                return True
    return False


def _effort(step: ReadyStep) -> Effort:
    bare = [msgspec.json.encode(f"${{{{{each}}}}}") for each in (step.when, step.for_each) if each]
    return max(map(effort_of, [*bare, step.input] if step.dynamic else bare))


def _as_it_is(text: bytes) -> bytes:
    return text


def move_of(task: ReadyTask, step: ReadyStep, resolve: Resolve = _as_it_is) -> Move:
    """Evaluates the condition of a step, its items and its input. `resolve`: reads payload files."""
    if step.action == "skip":
        return Move(step.number, "skip")
    if step.parked is not None:
        return Move(step.number, "send", step.parked)
    context: dict[str, Any] = {}
    try:
        if step.when or step.for_each or step.dynamic:
            context = _context(task, step, resolve)
        if step.when and not evaluate_when(step.when, context):
            return Move(step.number, "skip")
        if step.for_each:
            return _expanded(step.number, evaluate_list(step.for_each, context))
        input = evaluate(step.input, context) if step.dynamic else step.input
    except ExpressionFailed as error:
        return Move(step.number, "fail", code="expression", reason=error.message)
    if step.wait is not None:
        return _waits(task, step, input)
    if step.include:
        return Move(step.number, "include", input)
    content = step_content(
        task.task,
        step.name,
        task.workflow,
        input,
        task.deadline_at,
        undoes=step.undoes,
        uncertain=step.uncertain,
    )
    return _sent(step.number, "send", content, len(input))


def _sent(number: int, action: Any, content: bytes, size: int, wait_ms: int = -1) -> Move:
    if len(content) > MESSAGE_MAX:
        reason = f"its input has {size} bytes: its message may have {MESSAGE_MAX}"
        return Move(number, "fail", code="input_too_large", reason=reason)
    return Move(number, action, content, wait_ms=wait_ms)


def _waits(task: ReadyTask, step: ReadyStep, input: bytes) -> Move:
    """A question, a signal, or a time: its input is a number of seconds, or a timestamp."""
    assert step.wait is not None, "only a step that waits comes here"
    wait_ms = step.timeout_ms or -1
    if step.wait.kind == "signal":
        return Move(step.number, "wait", wait_ms=wait_ms)
    if step.wait.kind == "ask":
        asked = msgspec.json.decode(input)
        question = asked.get("question") if isinstance(asked, dict) else asked
        content = question_content(
            task.task, step.name, task.workflow, question, list(step.wait.options), step.timeout_ms
        )
        return _sent(step.number, "wait", content, len(input), wait_ms)
    try:
        return _waits_for_time(step.number, msgspec.json.decode(input))
    except InvalidValue as error:
        return Move(step.number, "fail", code="wait", reason=error.message)


def _waits_for_time(step: int, value: Any) -> Move:
    seconds = number(value)
    if seconds is not None and 0 <= seconds <= LEASE_MS_MAX / 1000:
        return Move(step, "wait", wait_ms=round(seconds * 1000))
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(value)
        until = round(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(
            f"wait: {shown(value)} is neither seconds, up to a year, nor a timestamp with an offset"
        ) from None
    return Move(step, "wait", until=min(max(until, 0), MOMENT_MS_MAX))


def included(
    step: ReadyStep, move: Move, namespace: str, find: FindWorkflow, defaults: StepDefaults = PLAIN
) -> Move:
    """The steps of the stored workflow that replace a step. `find`: finds it in the kernel."""
    try:
        wanted = ShowWorkflow(namespace, *split_name(step.include))
        found = find(wanted)
        if found is None or found.document is None:
            raise missing(wanted.name, wanted.version)
        document = msgspec.json.decode(found.document)
        plan, input = compile_workflow(document, namespace, defaults)
        input.check(msgspec.json.decode(move.content))
    except MeshError as error:
        return Move(step.number, "fail", code="invalid_plan", reason=error.message)
    return Move(step.number, "include", move.content, plans=plan.steps)


def _expanded(number: int, items: list[Any]) -> Move:
    encoded = [msgspec.json.encode(item) for item in items]
    for index, item in enumerate(encoded):
        if len(item) > ITEM_MAX:
            reason = f"item {index} of its for_each has {len(item)} bytes; {ITEM_MAX} are allowed"
            return Move(number, "fail", code="items_too_large", reason=reason)
    return Move(number, "expand", items=encoded)


def _context(task: ReadyTask, step: ReadyStep, resolve: Resolve) -> dict[str, Any]:
    """What expressions may read."""
    context: dict[str, Any] = {
        "input": _decoded(resolve(task.input if step.scope is None else step.scope)),
        "steps": {name: {"output": _decoded(resolve(output))} for name, output in step.outputs},
    }
    if step.item is not None:
        context |= {"item": _decoded(step.item), "index": step.index}
    if step.undoes:
        context |= {"output": _decoded(resolve(step.output or b"null")), "uncertain": step.uncertain}
    return context


def _decoded(data: bytes) -> Any:
    """The value of JSON. It must not be changed: the items of a step share large values."""
    return msgspec.json.decode(data) if len(data) < SHARED_BYTES_MIN else _shared(data)


@lru_cache(maxsize=SHARED_MAX)
def _shared(data: bytes) -> Any:
    return msgspec.json.decode(data)
