"""task: what was submitted, how far it is, and ending it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, cast

import typer

from relaymesh.cli import options
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import read_content
from relaymesh.cli.dlq import print_redriven
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.output import Output, preview, quiet
from relaymesh.cli.table import plain
from relaymesh.cli.task_rows import (
    ABOUT,
    EVENTS,
    TASKS,
    event_row,
    in_plan_order,
    state_row,
    step_columns,
    task_row,
    used_text,
)
from relaymesh.cli.task_watch import follow
from relaymesh.cli.workflow_file import File, Input, read_document, read_input
from relaymesh.errors import NotFound
from relaymesh.kernel.address import name_of
from relaymesh.kernel.tasks.status import TASK_STATES, Status
from relaymesh.plans.document import agents_of, compile_plan
from relaymesh.sdk.letters import DeadLetter
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.task import Task
from relaymesh.wire.tasks import step_message

app = typer.Typer(
    help="Tasks: submit a workflow, list tasks, show, follow, answer, signal, cancel or replay one."
)

PART_OF = 1000
"""Tasks among which a part of an id is looked up, the newest first."""

RequestKey = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Names the request: the same key is the same task."),
]
Again = Annotated[bool, typer.Option("--again", help="Run it again if it ended without success.")]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="The agent that the task belongs to.")
]
ReplyTo = Annotated[
    str | None, typer.Option("--reply-to", metavar="NAME", help="The agent that gets the outcome as mail.")
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify", metavar="KIND", help="Mail to the owner: update, complete or failed. May be repeated."
    ),
]
Value = Annotated[
    str, typer.Argument(metavar="VALUE", help="JSON that begins with { or [, or text; - reads it from stdin.")
]
Create = Annotated[bool, typer.Option("--create", help="Make the mailboxes of its agents, and the mesh.")]
Id = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the task, or a part with … that fits one only.")
]


@app.command("submit")
@mesh_command
def submit(
    call: Call,
    file: File,
    input: Input = None,
    key: RequestKey = None,
    again: Again = False,
    owner: Owner = None,
    reply_to: ReplyTo = None,
    notify: Notify = None,
    create: Create = False,
) -> None:
    """Submit a workflow as a task, and print its id. The same request runs once."""
    document, value = read_document(file), read_input(input)
    with call.mesh(create=create) as mesh:
        task = submit_document(
            mesh,
            document,
            value,
            create=create,
            key=key,
            again=again,
            owner=owner,
            reply_to=reply_to,
            notify=notify or [],
        )
    print_submitted(call.output, task, document)


def submit_document(
    mesh: Mesh, document: Mapping[str, Any], input: Any, *, create: bool, owner: str | None, **request: Any
) -> Task:
    """Submit it; `create` makes the mailboxes of its agents first."""
    if create:
        plan = compile_plan(document, mesh._session.namespace)
        for mailbox in agents_of(plan):
            mesh.agent(name_of(mailbox))
        if owner is not None:
            mesh.agent(owner)
    return mesh.submit(document, input, owner=owner, **request)


def print_submitted(output: Output, task: Task, document: Mapping[str, Any]) -> None:
    output.record({"id": task.id, "workflow": document["workflow"], "duplicate": task.duplicate})
    output.flush()


@app.command("list")
@mesh_command
def list_tasks(
    call: Call,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only these, such as RUNNING.")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Only tasks of this workflow.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = 50,
) -> None:
    """List tasks, the newest first."""
    wanted = _status(status)
    with call.mesh() as mesh:
        found = mesh.tasks(status=wanted, workflow=workflow, limit=limit + 1)
    call.output.rows(
        TASKS, map(task_row, found[:limit]), empty="no tasks: relaymesh task submit FILE makes one"
    )
    if len(found) > limit:
        call.output.note("there are more: raise --limit, or narrow it down")


@app.command("show")
@mesh_command
def show(
    call: Call,
    id: Id,
    story: Annotated[
        bool, typer.Option("--story", help="Show everything that happened to it, from the journal.")
    ] = False,
) -> None:
    """Show a task and its steps: agent, status, attempts, time, and why a step waits or failed."""
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        state = task.show()
        events = [event_row(event) for event in task.story()] if story else []
    row = state_row(state, datetime.now(UTC))
    if story:
        row["story"] = events
    if call.output.json:
        call.output.object(row)
        return
    steps = row.pop("steps")
    row.pop("story", None)
    row["result"] = preview(row["result"]) if state.status == "SUCCESS" else None
    row = {name: value for name, value in row.items() if name not in ABOUT}
    told = {"waiting": state.waiting, "used": used_text(state), "again_of": state.again_of}
    row |= {name: value for name, value in told.items() if value}
    call.output.record({name: _shown(value) for name, value in row.items()})
    call.output.line()
    order = {step.name: place for place, step in enumerate(in_plan_order(state.steps))}
    steps.sort(key=lambda step: order[step["name"]])
    call.output.rows(step_columns(steps), steps)
    if story:
        call.output.line()
        call.output.rows(EVENTS, events)


@app.command("watch")
@mesh_command
def watch(
    call: Call,
    id: Id,
) -> None:
    """Follow a task until it has ended. Exit code: 0 SUCCESS, 1 FAILED or CANCELLED, 6 TIMEOUT.

    On a terminal it is a tree of the steps. In a pipe it is a line for each change, and with --json an
    object for each change and one for the end.
    """
    with call.mesh() as mesh:
        follow(call.output, mesh, named_task(mesh, id))


@app.command("cancel")
@mesh_command
def cancel(
    call: Call,
    id: Id,
    hard: Annotated[bool, typer.Option("--hard", help="End the leases of steps that run, too.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the task keeps it.")] = "",
) -> None:
    """Cancel a task. Steps that run may finish, unless --hard is given; no further step starts."""
    with quiet("relaymesh.delivery"), call.mesh() as mesh:
        task = named_task(mesh, id)
        task.cancel(reason, hard=hard)
        status = task.status()
    call.output.record({"id": task.id, "status": status, "hard": hard, "reason": reason})


@app.command("answer")
@mesh_command
def answer(
    call: Call,
    id: Id,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that asks.")],
    value: Value,
    by: Annotated[
        str | None, typer.Option("--as", metavar="AGENT", help="The agent that answers; else the one asked.")
    ] = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Answer the question of a step. The first answer counts, and the task goes on."""
    content = read_content(value, call.output, as_json=content_json, as_text=content_text)
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        agent = by or task.show().step(step).agent
        task.answer(step, content, by=agent)
        status = task.status()
    call.output.record({"id": task.id, "step": step, "by": agent, "status": status})


@app.command("signal")
@mesh_command
def signal(
    call: Call,
    id: Id,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that a step waits for.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="JSON that begins with { or [, or text; left out: null."),
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Names the signal: the same id counts once.")
    ] = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Signal a task: the step that waits for this name gets the value, now or when it waits."""
    content = None
    if value is not None:
        content = read_content(value, call.output, as_json=content_json, as_text=content_text)
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        duplicate = task.signal(name, content, id=signal_id)
        status = task.status()
    call.output.record({"id": task.id, "signal": name, "duplicate": duplicate, "status": status})


@app.command("budget")
@mesh_command
def budget(
    call: Call,
    id: Id,
    cost_usd: Annotated[
        str | None, typer.Option("--cost-usd", metavar="DOLLARS", help="What it may cost; 0: no limit.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=0, metavar="N", help="Tokens it may use; 0: no limit.")
    ] = None,
) -> None:
    """Show what a task has used of its budget, or change the budget. A larger one lets the task go on."""
    cost = None if cost_usd is None else _dollars(cost_usd)
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        if cost is not None or tokens is not None:
            task.set_budget(cost_usd=cost, tokens=tokens)
        state = task.show()
    if call.output.json:
        names = ("id", "status", "cost_usd", "cost_usd_max", "tokens", "tokens_max", "waiting")
        call.output.object({name: getattr(state, name) for name in names})
        return
    used = used_text(state) or "nothing, and there is no budget"
    told = {"id": state.id, "status": state.status, "used": used, "waiting": state.waiting}
    call.output.record({name: value for name, value in told.items() if value})


def _dollars(given: str) -> Any:
    try:
        return Decimal(given.removeprefix("$"))
    except InvalidOperation:
        raise UsageFailed(f"--cost-usd {given!r} is no number of dollars", hint="--cost-usd 2.50") from None


@app.command("rerun")
@mesh_command
def rerun(
    call: Call,
    id: Id,
    from_step: Annotated[str, typer.Option("--from", metavar="STEP", help="The first step that runs again.")],
    input: Input = None,
    owner: Owner = None,
) -> None:
    """Run a task that has ended again, from one step on, and print the id of the new task.

    This step runs again, and so do steps whose work was undone, and the steps that depend on them; all others
    keep their outcomes. The same rerun again is the same task, unless that ended without success. Without
    --input it has the input of the first run.
    """
    value = ... if input is None else read_input(input)
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        again = task.rerun(from_step, value, owner=owner)
    call.output.record({"id": again.id, "again_of": task.id, "duplicate": again.duplicate})


@app.command("replay")
@mesh_command
def replay(
    call: Call,
    id: Id,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Redrive the dead letters of a task's steps: the steps run again and the task goes on."""
    with call.mesh() as mesh:
        task = named_task(mesh, id)
        letters = _waited_for(mesh, task)
        done = mesh.redrive(letters, dry_run=dry_run) if letters else []
    print_redriven(call, done, dry_run)


def named_task(mesh: Mesh, id: str) -> Task:
    """The task of an id, or of a part of one as a narrow terminal shows it. Raises `NotFound`."""
    if "…" not in id:
        task = mesh.task(id)
        task.show()
        return task
    pieces = [piece for piece in id.split("…") if piece]
    known = [task.id for task in mesh.tasks(limit=PART_OF)]
    found = [each for each in known if pieces and all(piece in each for piece in pieces)]
    if not found:
        raise NotFound(f"there is no task {id}", hint="relaymesh task list shows tasks and their states")
    if len(found) > 1:
        raise UsageFailed(f"{id!r} fits {len(found)} tasks", hint=f"more of the id, for example {found[0]}")
    return mesh.task(found[0])


def _waited_for(mesh: Mesh, task: Task) -> list[DeadLetter]:
    """The dead letters of steps that wait for them: not of those whose failure was caught."""
    steps = {
        each.name for each in task.show().steps if each.status == "DEAD_LETTER" and each.ended_at is None
    }
    told = [(letter, step_message(letter.letter.envelope)) for letter in mesh.dead_letters()]
    return [letter for letter, step in told if step and step.task == task.id and step.step in steps]


def _status(given: str | None) -> Status | None:
    if given is None:
        return None
    known = TASK_STATES
    if given.upper() not in known:
        raise UsageFailed(f"there is no status {given!r}", hint=f"there are {', '.join(known)}")
    return cast("Status", given.upper())


def _shown(value: Any) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else plain(value)
