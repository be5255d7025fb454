"""The command `relaymesh`: its commands put together, and how every run of it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from relaymesh import __version__
from relaymesh.cli import (
    agent,
    audit,
    bus,
    demo,
    dlq,
    doctor,
    init,
    journal,
    messages,
    pipeline,
    pipeline_source,
    purge,
    questions,
    report,
    schedule,
    serve,
    settings,
    status,
    store,
    story,
    tail,
    task,
    team,
    topics,
    torture,
    worker,
    workflow,
)
from relaymesh.cli import (
    token as tokens,
)
from relaymesh.cli.failure import Exit, failure_of
from relaymesh.cli.options import Dir, Globals, Json, Token, Url
from relaymesh.cli.output import Output, library_log

app = typer.Typer(
    name="relaymesh",
    help="RelayMesh: the durable post office for AI agents.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"relaymesh {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    directory: Dir = None,
    url: Url = None,
    token: Token = None,
    json: Json = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """RelayMesh: the durable post office for AI agents. Start with `relaymesh demo`."""
    context.obj = Globals(directory, json, url, token)
    _help_if_alone(context)


def _help_if_alone(context: typer.Context) -> None:
    """A group without a command answers with its help."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            sys.stdout.write(text + "\n")


app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("up")(team.up)
app.command("ps")(team.ps)
app.command("logs")(team.logs)
app.command("restart")(team.restart)
app.command("down")(team.down)
app.command("dev")(serve.dev)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("send")(messages.send)
app.command("inbox")(messages.inbox)
app.command("ask")(questions.ask)
app.command("answer")(questions.answer)
app.command("story")(story.story)
app.command("tail")(tail.tail)
app.command("submit")(task.submit)
app.command("submit-workflow")(task.submit)
app.command("tasks")(task.list_tasks)
app.command("cancel")(task.cancel)
app.command("replay")(task.replay)
app.command("purge")(purge.purge)
app.command("reload-settings")(settings.reload)
app.command("settings-history")(settings.history)
app.command("doctor")(doctor.doctor)
app.command("torture")(torture.torture)
for _name, _group in (
    ("agent", agent.app),
    ("topic", topics.app),
    ("workflow", workflow.app),
    ("task", task.app),
    ("schedule", schedule.app),
    ("dlq", dlq.app),
    ("settings", settings.app),
    ("token", tokens.app),
    ("audit", audit.app),
    ("bus", bus.app),
    ("journal", journal.app),
    ("store", store.app),
    ("pipeline", pipeline.app),
    ("report", report.app),
    ("worker", worker.app),
):
    _group.callback(invoke_without_command=True)(_help_if_alone)
    app.add_typer(_group, name=_name)
pipeline_source.app.callback(invoke_without_command=True)(_help_if_alone)
pipeline.app.add_typer(pipeline_source.app, name="source")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code. Never raises for what can be foreseen."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _write_what_can_be_written()
    output = Output(json=_wants_json(arguments))
    try:
        with library_log(output):
            code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        return Exit.OK  # the reader has seen enough
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        sys.stdout.flush()
        output.fail(failure)
        return failure.exit
    return code


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("relaymesh", arguments) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except (typer.Abort, EOFError):
        return Exit.INTERRUPTED
    return Exit.OK


def _wants_json(arguments: Sequence[str]) -> bool:
    """Also when the arguments cannot be understood, the error must come as it was asked for."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _write_what_can_be_written() -> None:
    """A terminal or pipe that has no ✓ gets a ? and no error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _let_go_of_stdout() -> None:
    """The interpreter flushes stdout once more at the end: let that go nowhere."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    sys.exit(main())
