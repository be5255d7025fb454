"""worker run: processes that serve handlers of a Python module, restarted when they crash."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.worker_app import Order
from relaymesh.cli.worker_processes import Processes

app = typer.Typer(help="Processes that serve the handlers of a Python module.")

TARGET = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@app.command("run")
@mesh_command
def run(
    call: Call,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="A function that registers handlers on a mesh.")
    ],
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, metavar="N", help="How many; several need a node.")
    ] = 1,
    graceful_timeout: Annotated[
        float,
        typer.Option(
            "--graceful-timeout", min=0, max=86_400, metavar="SECONDS", help="For running handlers at a stop."
        ),
    ] = 15.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a file of the module changes: for development.")
    ] = False,
) -> None:
    """Serve the handlers that MODULE:APP registers, until a signal ends it.

    APP is a function that takes a `Mesh`, registers handlers and returns; a coroutine function gets an
    `AsyncMesh`. MODULE is looked up in the current directory too. SIGTERM and Ctrl-C let running handlers
    finish; a second signal stops at once. A process that crashes is started again, after a growing pause.
    """
    if not TARGET.fullmatch(target):
        raise UsageFailed(
            f"{target!r:.80} names no function", hint="write MODULE:APP, as in agents.build:app"
        )
    order = Order(
        target=target,
        url=call.url,
        directory=None if call.remote else str(call.path),
        graceful_s=graceful_timeout,
        json=call.output.json,
    )
    code = Processes(order, processes, call.output, token=call.token, reload=reload).run()
    if code:
        raise typer.Exit(code)
