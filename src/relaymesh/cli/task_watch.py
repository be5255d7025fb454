"""Following a task: a tree that changes on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from relaymesh.cli.failure import TaskTimedOut
from relaymesh.cli.moments import span_text
from relaymesh.cli.output import Output, preview
from relaymesh.cli.task_rows import elapsed, in_plan_order, state_row, step_row, used_text
from relaymesh.errors import TaskFailed
from relaymesh.printable import printable
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.task import Task
from relaymesh.sdk.task_views import StepState, TaskState

STYLES = {
    "SUCCESS": "green",
    "SKIPPED": "dim",
    "RUNNING": "cyan",
    "RETRYING": "yellow",
    "ABANDONED": "yellow",
    "DEAD_LETTER": "red",
    "FAILED": "red",
    "TIMEOUT": "red",
    "CANCELLED": "red",
}
LINES_MAX = 200
"""Steps shown in a tree. Each refresh writes all of them."""


def follow(output: Output, mesh: Mesh, task: Task) -> None:
    """Show the task until it has ended. Raises `TaskFailed` for any end but a success."""
    first = task.show()
    if mesh.path is not None and first.status in ("PENDING", "RUNNING"):
        output.note(
            "this command holds the directory, so no other process can take the steps:"
            " use relaymesh serve, and --url here"
        )
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not output.json
    last = _as_tree(output, task, first) if on_terminal else _as_lines(output, task)
    if last.status == "SUCCESS":
        return
    kind = TaskTimedOut if last.status == "TIMEOUT" else TaskFailed
    reason = last.reason or "no reason was given"
    raise kind(
        f"task {last.id} ended as {last.status}: {reason}",
        hint=f"relaymesh task show {last.id} has every step; --again runs it anew",
    )


# -- in a pipe


def _as_lines(output: Output, task: Task) -> TaskState:
    seen: dict[str, tuple[Any, ...]] = {}
    told, waited = False, ""
    for state in task.watch():
        for step in in_plan_order(state.steps):
            now = (step.status, step.attempt, step.waiting, step.progress, step.code, step.reason)
            if seen.get(step.name) != now:
                seen[step.name] = now
                _print_step(output, state, step)
        if state.status == "DEAD_LETTER" and not told:
            output.note(f"a step of task {state.id} is a dead letter: {_waits(state)}")
        told = state.status == "DEAD_LETTER"
        if state.waiting and state.waiting != waited:
            output.note(f"task {state.id} {_pause(state)}")
        waited = state.waiting
        output.flush()
    if output.json:
        output.object({"event": "task", **state_row(state, datetime.now(UTC))})
    else:
        ended = f"{state.steps_ended} of {state.steps_total} steps ended"
        output.line(f"{state.updated_at:%H:%M:%S}  {state.status:<11}  task {state.id}  {ended}")
        if state.status == "SUCCESS":
            output.record({"result": _result(state)})
    return state


def _print_step(output: Output, state: TaskState, step: StepState) -> None:
    if output.json:
        row = step_row(step, datetime.now(UTC))
        output.object({"event": "step", "task": state.id, **row})
    else:
        output.line(f"{step.updated_at:%H:%M:%S}  {step.status:<11}  {step.name}  {_about(step)}".rstrip())


def _waits(state: TaskState) -> str:
    """A task with a dead letter waits for a person, who may not know it."""
    return f"it waits for you: relaymesh replay {state.id}, or relaymesh cancel {state.id}"


def _pause(state: TaskState) -> str:
    """Why it sends nothing, and what to do about a budget that is used."""
    if not state.waiting.startswith("its budget is used"):
        return state.waiting
    return f"waits, {state.waiting}: relaymesh task budget {state.id} raises it"


# -- on a terminal


def _as_tree(output: Output, task: Task, first: TaskState) -> TaskState:
    shown = [first]  # the newest state: the thread that draws reads it
    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, get_renderable=lambda: _tree(shown[-1]), refresh_per_second=4) as live:
        for state in task.watch():
            shown[:] = [state]
            live.refresh()
    if state.status == "SUCCESS":
        output.record({"result": _result(state)})
    return state


def _tree(state: TaskState) -> Tree:
    now = datetime.now(UTC)
    about = [f"{state.steps_ended}/{state.steps_total}", used_text(state), state.waiting]
    tree = Tree(_line(f"{state.workflow}  {state.id}", state.status, ", ".join(filter(None, about))))
    branches: dict[str, Tree] = {}
    ordered = in_plan_order(state.steps)
    for step in ordered[:LINES_MAX]:
        above, slash, _ = step.name.rpartition("/")
        branch = branches.get(above, tree) if slash else tree
        seconds = elapsed(step, now)
        spent = "" if seconds is None else span_text(seconds)
        branches[step.name] = branch.add(_line(step.name, step.status, f"{spent}  {_about(step)}".strip()))
    if len(ordered) > LINES_MAX:
        tree.add(Text(f"and {len(ordered) - LINES_MAX} more", style="dim"))
    if state.status == "DEAD_LETTER":
        tree.add(Text(_waits(state), style="yellow"))
    return tree


def _line(name: str, status: str, about: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(printable(name))
    line.append("  ")
    line.append(status, style=STYLES.get(status, ""))
    line.append(f"  {printable(about)}", style="dim")
    return line


def _about(step: StepState) -> str:
    """Agent, attempt, and why it waits or what went wrong."""
    parts = [step.agent]
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    if step.waiting:
        parts.append(f"waits: {step.waiting}")
    if step.uncertain:
        parts.append("unknown whether there is something to undo")
    parts += [text for text in (step.progress, step.code, step.reason) if text]
    return ", ".join(parts)


def _result(state: TaskState) -> str:
    return preview(state.result)
