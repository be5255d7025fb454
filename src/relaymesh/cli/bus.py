"""bus: the file bus, through which any program that can rename a file takes part."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from relaymesh.cli.commands import directory_command, mesh_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column, short_address
from relaymesh.sdk.stop_signals import heeded

app = typer.Typer(help="Send and receive with files: a directory as a gateway to the mesh.")

Bus = Annotated[Path, typer.Argument(metavar="DIR", help="The bus directory (not the data directory).")]
Agents = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="NAME", help="An agent of the bus; the first is the default sender."),
]

CONTENTS = [Column("place"), Column("files", "number"), Column("meaning")]


@app.command("init")
@directory_command
def init(
    call: Call,
    bus: Bus,
    agents: Agents = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME|GID", help="Let the members of this group use it too."),
    ] = None,
) -> None:
    """Make a bus directory for one or more agents, for this user only. Files that exist stay."""
    from relaymesh.gateways.filebus.directory import make_bus

    made = make_bus(bus, agents or [], None if group is None else _group(group))
    call.output.record({"bus": str(bus), "agents": made.agents})


def _group(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) < 1 << 31:
        return int(text)
    try:
        import grp
    except ImportError:
        raise UsageFailed("this system has no groups of users", hint="leave out --group") from None
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise UsageFailed(f"there is no group {text!r}", hint="`getent group` lists them") from None


@app.command("run")
@mesh_command
def run(
    call: Call,
    bus: Bus,
    agents: Agents = None,
    window: Annotated[
        int, typer.Option("--window", min=1, metavar="N", help="Unclaimed deliveries per agent in inbox/.")
    ] = 16,
    silent: Annotated[
        float,
        typer.Option(
            "--silent", min=1, metavar="SECONDS", help="A worker silent for this long loses claims."
        ),
    ] = 300,
    poll: Annotated[
        float,
        typer.Option("--poll", min=0.05, metavar="SECONDS", help="Longest pause between two polls."),
    ] = 0.5,
    owners: Annotated[
        list[int] | None,
        typer.Option("--owner", metavar="UID", help="A user whose files are taken too; may be repeated."),
    ] = None,
    done_days: Annotated[
        int,
        typer.Option(
            "--done-retention-days", min=1, metavar="DAYS", help="How long done/ and receipts are kept."
        ),
    ] = 7,
    dead_days: Annotated[
        int, typer.Option("--dead-retention-days", min=1, metavar="DAYS", help="How long dead/ is kept.")
    ] = 30,
) -> None:
    """Serve a bus directory until stopped: send what scripts put there, hand out what the mesh has.

    Without --agent its agents are those it was made for. Ctrl-C and SIGTERM give back what no worker claimed.
    """
    from relaymesh.gateways.filebus import BusSettings, FileBus
    from relaymesh.gateways.filebus.directory import agents_of, make_bus

    names = make_bus(bus, agents).agents if agents else agents_of(bus)
    settings = BusSettings(
        window=window,
        silent_s=silent,
        poll_s_min=min(0.05, poll),
        poll_s_max=poll,
        owners=frozenset(owners or ()),
        done_retention_days=done_days,
        dead_retention_days=dead_days,
    )
    stop = threading.Event()
    for number in heeded((signal.SIGINT, signal.SIGTERM)):
        signal.signal(number, lambda *_: stop.set())
    with call.mesh(create=True, transport="http") as mesh:
        gateway = FileBus(mesh._session, bus, names, settings)
        try:
            who = ", ".join(short_address(name) for name in gateway.agents)
            call.output.note(f"serving {who} in {bus}; Ctrl-C stops")
            gateway.run(stop)
        finally:
            gateway.close()


@app.command("status")
@directory_command
def status(call: Call, bus: Bus) -> None:
    """Show how many files of a bus directory are in which state. Works beside a running gateway."""
    from relaymesh.gateways.filebus.directory import agents_of, contents_of, is_served

    call.output.rows(CONTENTS, contents_of(bus))
    who = ", ".join(short_address(name) for name in agents_of(bus))
    call.output.note(f"the bus of {who}; {'served' if is_served(bus) else 'no gateway is running'}")
