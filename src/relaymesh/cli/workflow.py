"""workflow: check a workflow's file, draw it, run it; keep workflows under versions and run them by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from relaymesh.cli import options, task
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.options import Call, begin
from relaymesh.cli.table import Column
from relaymesh.cli.task_watch import follow
from relaymesh.cli.workflow_file import STDIN, File, Input, read_checked, read_document, read_input
from relaymesh.cli.workflow_name import FileOrName, Name, file_or_name, find_document, stored_name
from relaymesh.errors import NotFound
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.plans.document import compile_plan
from relaymesh.plans.graph import doing, kind_of, levels, mermaid, text_tree
from relaymesh.plans.naming import split_name
from relaymesh.plans.writing import write_yaml
from relaymesh.sdk.stored_workflow import StoredWorkflow

app = typer.Typer(help="Workflows: check a file, draw it, run it; keep versions and run them by name.")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


STORED = [
    Column("name", "text"),
    Column("version", "text"),
    Column("versions", "number"),
    Column("owner", "text"),
    Column("size", "number", title="bytes"),
    Column("created_at", show=_time, title="put"),
    Column("digest", "id"),
]


@app.command("check")
def check(
    context: typer.Context,
    file: File,
    directory: options.Dir = None,
    json: options.Json = False,
) -> None:
    """Check a workflow's file. Needs no mesh. The first mistake is one line, with exit code 2."""
    output = begin(context, directory, json).output
    plan = read_checked(file)
    fields = {
        "file": "stdin" if file == STDIN else file,
        "workflow": plan.name,
        "version": plan.version,
        "steps": len(plan.steps),
        "agents": len(_agents(plan)),
        "levels": len(levels(plan)),
    }
    if output.json:
        output.object(fields)
    else:
        counts = ", ".join(_counted(fields[name], name) for name in ("steps", "agents", "levels"))
        output.line(f"{fields['file']}: ok: workflow {plan.name!r}, {counts}")


@app.command("graph")
@mesh_command
def graph(
    call: Call,
    file: FileOrName,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
) -> None:
    """Draw a workflow: its steps by level, or a Mermaid flowchart. A file needs no mesh."""
    output, name = call.output, stored_name(file)
    if name is None:
        plan = read_checked(file)
    else:
        with call.mesh() as mesh:
            plan = compile_plan(find_document(mesh, name), mesh._session.namespace)
    if output.json:
        output.object(_drawn(plan))
    else:
        output.text(mermaid(plan) if as_mermaid else text_tree(plan))


@app.command("run")
@mesh_command
def run(
    call: Call,
    file: FileOrName,
    input: Input = None,
    key: task.RequestKey = None,
    again: task.Again = False,
    owner: task.Owner = None,
    reply_to: task.ReplyTo = None,
    notify: task.Notify = None,
    create: task.Create = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it has ended.")] = False,
) -> None:
    """Run a workflow: submit it as a task, and print its id. The same request runs once.

    With --watch it follows the task and ends as task watch does. A file is submitted as it is; of a stored
    workflow the version that was put last, or the one named.
    """
    name, value = stored_name(file), read_input(input)
    document: Mapping[str, Any] = {} if name else read_document(file)
    with call.mesh(create=create) as mesh:
        if name and not create:
            with file_or_name(name):
                submitted = mesh.submit(
                    name, value, key=key, again=again, owner=owner, reply_to=reply_to, notify=notify or []
                )
            document = {"workflow": split_name(name)[0]}
        else:
            document = find_document(mesh, name) if name else document
            submitted = task.submit_document(
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
        task.print_submitted(call.output, submitted, document)
        if watch:
            follow(call.output, mesh, submitted)


@app.command("put")
@mesh_command
def put(
    call: Call,
    file: File,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="VERSION", help="Such as 3 or 2.1.0; else the next whole number."),
    ] = None,
    owner: task.Owner = None,
    create: Annotated[bool, typer.Option("--create", help="Make the mesh.")] = False,
) -> None:
    """Keep a workflow under a version, to run it by name. The same document again is no new version.

    Another document under a version that exists is refused. Tasks that run keep the plan they have.
    """
    document = read_document(file)
    with call.mesh(create=create) as mesh:
        stored = mesh.put_workflow(document, version, owner=owner)
    call.output.record({**_row(stored), "duplicate": stored.duplicate})


@app.command("list")
@mesh_command
def list_workflows(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show every version of this workflow.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = 50,
) -> None:
    """List stored workflows, each with its last version; or every version of one. The newest first."""
    with call.mesh() as mesh:
        found = mesh.workflows(name, limit=limit + 1)
    call.output.rows(
        STORED, map(_row, found[:limit]), empty="no workflows: relaymesh workflow put FILE keeps one"
    )
    if len(found) > limit:
        call.output.note("there are more: raise --limit")


@app.command("show")
@mesh_command
def show(
    call: Call,
    name: Name,
) -> None:
    """Show a stored workflow: its version, its owner, and its document as YAML."""
    with call.mesh() as mesh:
        stored = mesh.workflow(name)
    if call.output.json:
        call.output.object({**_row(stored), "document": stored.document})
        return
    call.output.record({**_row(stored), "created_at": _time(stored.created_at)})
    call.output.line()
    call.output.text(write_yaml(stored.document or {}))


@app.command("remove")
@mesh_command
def remove(
    call: Call,
    name: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="What to remove; without a version all of them.")
    ],
    yes: options.Yes = False,
) -> None:
    """Remove a version of a stored workflow, or all of them. Tasks that run go on."""
    with call.mesh() as mesh:
        confirm(f"remove {name} for good?", yes=yes)
        removed = mesh.remove_workflow(name)
    if not removed:
        raise NotFound(
            f"there is no workflow {name!r} here", hint="relaymesh workflow list shows names and versions"
        )
    call.output.record({"name": name, "removed": removed})


def _row(stored: StoredWorkflow) -> dict[str, Any]:
    return {column.name: getattr(stored, column.name) for column in STORED}


def _drawn(plan: Plan) -> dict[str, Any]:
    steps = [
        {
            "name": step.name,
            "kind": kind_of(step),
            "agent": step.who,
            "doing": doing(step),
            "needs": [plan.steps[need].name for need in step.needs],
            "when": step.when,
            "for_each": step.for_each,
            "grows": step.grows,
            "compensate": "" if step.undo is None else step.undo.who,
            "on_failure": plan.steps[step.handler].name if step.on_failure == "handle" else step.on_failure,
        }
        for step in plan.steps
    ]
    by_level = [[plan.steps[place].name for place in places] for places in levels(plan)]
    return {
        "workflow": plan.name,
        "version": plan.version,
        "levels": by_level,
        "steps": steps,
        "mermaid": mermaid(plan),
    }


def _agents(plan: Plan) -> set[str]:
    """The agents that work, are asked, or undo something."""
    steps = [each for step in plan.steps for each in (step, step.undo) if each is not None]
    return {step.who for step in steps} - {""}


def _counted(number: Any, name: str) -> str:
    return f"{number} {name.removesuffix('s') if number == 1 else name}"
