"""schedule: run a workflow, or send a message, at the times of a cron line."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Annotated, Any, get_args

import typer

from relaymesh.cli import options, task
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import parse_json
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.cli.workflow_file import Input, read_document, read_input
from relaymesh.cli.workflow_name import file_or_name, stored_name
from relaymesh.kernel.bounds import one_of
from relaymesh.kernel.schedules.schedule import Missed as When
from relaymesh.kernel.schedules.schedules import missing
from relaymesh.plans.writing import write_yaml
from relaymesh.sdk.schedule import Schedule

app = typer.Typer(help="Schedules: run a workflow, or send a message, at the times of a cron line.")


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


LISTED = [
    Column("name", "text"),
    Column("cron", "text"),
    Column("tz", "text"),
    Column("work", "text"),
    Column("state", "text"),
    Column("next_at", show=_time, title="next (UTC)"),
    Column("last_tick", show=_time, title="last (UTC)"),
    Column("runs", "number"),
    Column("skipped", "number"),
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.")]
Cron = Annotated[
    str,
    typer.Option(
        "--cron",
        metavar="LINE",
        help="Minute, hour, day of month, month, day of week: '0 7 * * *' is 7:00 every day.",
    ),
]
Zone = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="Time zone of the line, such as Europe/Berlin.")
]
WorkflowOption = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME|FILE",
        help="Run this workflow: a stored one, NAME or NAME@VERSION, or a file. Without a version the one"
        " put last is looked up at each run; a file is kept as it is now.",
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="AGENT", help="Or send a message to this agent.")]
Content = Annotated[
    str | None, typer.Option("--content", metavar="JSON", help="The content of the message: JSON.")
]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The type of the message.")]
Priority = Annotated[
    str | None, typer.Option("--priority", metavar="1..5", help="The priority of the message; 1 is first.")
]
Missed = Annotated[
    str,
    typer.Option(
        "--missed",
        metavar="one|none",
        help="For ticks that passed while the mesh was down: one run for all of them, or none.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Put other fields under a name that is taken.")]
Create = Annotated[
    bool, typer.Option("--create", help="Make the mailbox of --to and of --owner, and the mesh.")
]
EITHER = "--workflow NAME --input JSON, or --to AGENT --content JSON"


@app.command("add")
@mesh_command
def add(
    call: Call,
    name: Name,
    cron: Cron,
    tz: Zone = "UTC",
    workflow: WorkflowOption = None,
    input: Input = None,
    to: To = None,
    content: Content = None,
    type: Type = None,
    priority: Priority = None,
    missed: Missed = "one",
    replace: Replace = False,
    owner: task.Owner = None,
    create: Create = False,
) -> None:
    """Add a schedule. Each tick runs once, even after a crash. The same fields again change nothing.

    It runs while the mesh is open in some process: relaymesh serve, or a program of yours.
    """
    if workflow is None:
        work = _sending(to, content, type, priority, input)
    elif (to, content, type, priority) == (None, None, None, None):
        work = {"workflow": stored_name(workflow) or read_document(workflow), "input": read_input(input)}
    else:
        raise UsageFailed("a schedule has --workflow or --to, not both", hint=EITHER)
    with call.mesh(create=create) as mesh:
        for agent in (to, owner):
            if create and agent is not None:
                mesh.agent(agent)
        with _naming(work.get("workflow")):
            made = mesh.put_schedule(
                name, cron, tz=tz, missed=_missed(missed), replace=replace, owner=owner, **work
            )
    call.output.record({**_row(made, call.output.json), "duplicate": made.duplicate})


def _sending(
    to: str | None, content: str | None, type: str | None, priority: str | None, input: str | None
) -> dict[str, Any]:
    """The message of each tick, as `put_schedule` takes it."""
    if to is None:
        raise UsageFailed("a schedule needs --workflow or --to", hint=EITHER)
    if input is not None:
        raise UsageFailed("--input belongs to --workflow", hint=EITHER)
    fields: dict[str, Any] = {"to": to}
    if content is not None:
        fields["content"] = parse_json(content, "--content")
    if type is not None:
        fields["type"] = type
    if priority is not None:
        fields["priority"] = int(priority) if priority.isascii() and priority.isdigit() else priority
    return fields


def _naming(workflow: Any) -> AbstractContextManager[None]:
    """A stored workflow that is not there may have been meant as a file."""
    return file_or_name(workflow) if isinstance(workflow, str) else nullcontext()


def _missed(given: str) -> Any:
    return one_of(given, "--missed", get_args(When))


@app.command("list")
@mesh_command
def list_schedules(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = 100,
) -> None:
    """List schedules by name: what they run, when next, and whether a tick waits."""
    with call.mesh() as mesh:
        found = mesh.schedules(limit=limit + 1)
    call.output.rows(
        LISTED,
        [_row(each) for each in found[:limit]],
        empty="no schedules: relaymesh schedule add NAME --cron LINE --workflow NAME keeps one",
    )
    if len(found) > limit:
        call.output.note("there are more: raise --limit")


@app.command("show")
@mesh_command
def show(
    call: Call,
    name: Name,
) -> None:
    """Show a schedule: its next tick, its last run, and why a tick waits or was skipped."""
    with call.mesh() as mesh:
        found = mesh.schedule(name)
    whole = {"document": found.document, "input": found.input, "content": found.content}
    if call.output.json:
        call.output.object({**_all(found), **whole})
        return
    call.output.record(_all(found, shown=True))
    for what, value in whole.items():
        if value is not None:
            call.output.line()
            call.output.line(f"{what}:")
            call.output.text(write_yaml(value))


@app.command("pause")
@mesh_command
def pause(
    call: Call,
    name: Name,
) -> None:
    """Pause a schedule: no tick runs until it is resumed."""
    with call.mesh() as mesh:
        call.output.record(_row(mesh.pause_schedule(name), call.output.json))


@app.command("resume")
@mesh_command
def resume(
    call: Call,
    name: Name,
) -> None:
    """Resume a schedule at its next tick. Ticks during the pause never run, with any --missed."""
    with call.mesh() as mesh:
        call.output.record(_row(mesh.resume_schedule(name), call.output.json))


@app.command("remove")
@mesh_command
def remove(
    call: Call,
    name: Name,
    yes: options.Yes = False,
) -> None:
    """Remove a schedule. Tasks that it started go on."""
    with call.mesh() as mesh:
        confirm(f"remove schedule {name} for good?", yes=yes)
        removed = mesh.remove_schedule(name)
    if not removed:
        raise missing(name)
    call.output.record({"name": name, "removed": removed})


def _row(kept: Schedule, raw: bool = True) -> dict[str, Any]:
    row = {
        "name": kept.name,
        "cron": kept.cron,
        "tz": kept.tz,
        "work": f"run {kept.workflow}" if kept.workflow else f"send to {kept.to}",
        "state": "paused" if kept.paused else "waiting" if kept.waiting else "active",
        "next_at": kept.next_at,
        "last_tick": kept.last_tick,
        "runs": kept.runs,
        "skipped": kept.skipped,
    }
    return row if raw else {name: _plain(value) for name, value in row.items()}


def _all(kept: Schedule, *, shown: bool = False) -> dict[str, Any]:
    fields = {
        **_row(kept),
        "missed": kept.missed,
        "owner": kept.owner,
        "workflow": kept.workflow,
        "to": kept.to,
        "last_run": kept.last_run,
        "last_run_at": kept.last_run_at,
        "waiting": kept.waiting,
        "tries": kept.tries,
        "reason": kept.reason,
        "created_at": kept.created_at,
    }
    if not shown:
        return fields
    return {name: _plain(value) for name, value in fields.items() if value not in (None, 0, "")}


def _plain(value: Any) -> Any:
    return f"{_time(value)} UTC" if isinstance(value, datetime) else "" if value is None else value
