"""up, ps, logs, restart, down: a team of agents, as relaymesh.toml declares it."""

from __future__ import annotations

import contextlib
import json as plain_json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.agents.declarations import Team
from relaymesh.agents.orders import Order, ask
from relaymesh.agents.places import Places
from relaymesh.agents.team_file import FILE_NAME, read_sound
from relaymesh.agents.team_status import read_status
from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.followed import followed
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column, short_id
from relaymesh.errors import DirectoryInUse, MeshError, NotFound, Unreachable
from relaymesh.modes import replace_file
from relaymesh.node.disk import RealLock

KEEPER = "relaymesh.agents.keeper"
START_S_MAX = 60.0
RESTART_S_MAX = 90.0

File = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The team's file.")]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Run in the background; relaymesh logs shows what happens.")
]


@directory_command
def up(
    call: Call,
    file: File = Path(FILE_NAME),
    detach: Detach = False,
) -> None:
    """Start the node and the agents of relaymesh.toml, keep them running, and say what happens."""
    if os.name != "posix":
        raise UsageFailed("relaymesh up needs Linux or macOS", hint="relaymesh serve runs a node here")
    team, data = read_sound(file)
    places = _places(call, team)
    places.make()
    pid = keeper_pid(places)
    if pid is not None:
        raise DirectoryInUse(
            f"relaymesh up runs on {places.directory} already (pid {pid})",
            hint="relaymesh ps shows its agents, relaymesh down stops it",
        )
    replace_file(places.sound_file, data)
    given: dict[str, Any] = {
        "directory": str(places.directory.absolute()),
        "file": str(team.path.absolute()),
        "port": team.mesh.port,
        "graceful_timeout": team.mesh.graceful_timeout,
        "json": call.output.json,
        "terminal": sys.stdin.isatty() and not detach,
    }
    if detach:
        _start_in_background(call, given)
        return
    sys.stdout.flush()
    # This process becomes the keeper: what the command line loaded need not stay in memory.
    os.execv(sys.executable, _keeper_command(given))


def _places(call: Call, team: Team) -> Places:
    """`--dir` and RELAYMESH_HOME go before the file."""
    named = call.given is not None or os.environ.get("RELAYMESH_HOME")
    return Places(call.path if named else team.mesh.directory)


def _keeper_command(given: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", KEEPER, plain_json.dumps(given)]


def _start_in_background(call: Call, given: dict[str, Any]) -> None:
    """Start the keeper without a terminal, and wait until its agents are at work."""
    heard, answer = os.pipe()
    try:
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
            keeper = subprocess.Popen(
                _keeper_command({**given, "json": False, "answer_to": answer}),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=(answer,),
                start_new_session=True,
            )
    finally:
        os.close(answer)
    with os.fdopen(heard, "rb") as file:
        said = _answer(file.fileno(), START_S_MAX)
    if not said.get("ready"):
        with contextlib.suppress(ProcessLookupError):
            keeper.terminate()
        problem = said.get("problem") or "it ended, or did not start in time"
        raise MeshError(f"the team did not start: {problem}", hint="relaymesh logs shows more")
    keeper.returncode = 0  # it goes on without this process
    call.output.record({"pid": keeper.pid, "url": said["url"], "directory": given["directory"]})


def _answer(descriptor: int, within_s: float) -> dict[str, Any]:
    import select

    until = time.monotonic() + within_s
    data = b""
    while (left := until - time.monotonic()) > 0 and select.select([descriptor], [], [], left)[0]:
        part = os.read(descriptor, 65_536)
        data += part
        if not part:
            break
    with contextlib.suppress(ValueError):
        found = plain_json.loads(data)
        if isinstance(found, dict):
            return found
    return {}


def keeper_pid(places: Places) -> int | None:
    """The process of the `relaymesh up` that runs there; None: there is none."""
    if not places.keeper_lock.exists():
        return None
    try:
        RealLock(places.keeper_lock).release()
    except BlockingIOError:
        text = places.keeper_lock.read_text(encoding="ascii", errors="replace").strip()
        return int(text) if text.isdecimal() else -1
    return None


def _running(call: Call) -> tuple[Places, int]:
    """The team that runs on the directory, and its keeper."""
    places = Places(call.path)
    pid = keeper_pid(places)
    if pid is None:
        raise Unreachable(
            f"no relaymesh up runs on {places.directory}",
            hint="relaymesh up starts it, in the folder of relaymesh.toml",
        )
    return places, pid


Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="Stop at once what still runs after this time."),
]


@directory_command
def down(
    call: Call,
    timeout: Timeout = None,
) -> None:
    """Stop the team: no new work; running steps may finish, the rest goes back without a counted attempt."""
    places, pid = _running(call)
    began = time.monotonic()
    patience = _graceful(places) if timeout is None else timeout
    os.kill(pid, signal.SIGTERM)
    hurried = False
    while keeper_pid(places) is not None:
        over = time.monotonic() - began
        if over > patience and not hurried:
            hurried = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # the second one cuts it short
        if over > patience + START_S_MAX:
            raise MeshError(f"process {pid} does not end", hint=f"look at it: ps -fp {pid}")
        time.sleep(0.02)
    call.output.record(
        {"stopped": pid, "seconds": round(time.monotonic() - began, 1), "in_order": not hurried}
    )


def _graceful(places: Places) -> float:
    """How long it takes at most by itself, and some time more."""
    return 1.0 + float(_keeper_said(places).get("graceful_timeout", 15.0))


def _keeper_said(places: Places) -> dict[str, Any]:
    try:
        found = plain_json.loads(places.keeper.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


TEAM = [
    Column("agent"),
    Column("kind"),
    Column("state"),
    Column("pids", "text"),
    Column("running", "text", lambda running: ", ".join(map(_shown_run, running)) or "-"),
    Column("done", "number"),
    Column("failed", "number"),
    Column("restarts", "number"),
    Column("last_error", "text"),
]


@directory_command
def ps(
    call: Call,
) -> None:
    """List the agents of the team: state, processes, running steps, restarts, last error."""
    places, _ = _running(call)
    keeper, status = _keeper_said(places), read_status(places)
    supervisor = keeper.get("supervisor", {}).get("pid")
    rows = status.get("agents", []) if status.get("pid") == supervisor else []
    pids = _pids(places)
    call.output.rows(TEAM, [_row(each, pids) for each in rows], empty="the agents are being started")
    if not call.output.json:
        node, url = keeper.get("node", {}), keeper.get("url") or "starting"
        again = node.get("starts", 1) - 1
        call.output.note(
            f"node {url} (pid {node.get('pid')}, {again} restarts), supervisor pid {supervisor},"
            f" keeper pid {keeper.get('pid')}"
        )


def _row(agent: dict[str, Any], pids: dict[str, list[int]]) -> dict[str, Any]:
    marks = [each.get("run", "") for each in agent.get("running", [])]
    found = [pid for mark in marks for pid in pids.get(mark, [])]
    if agent.get("mark"):
        found += [pid for mark, some in pids.items() if mark.startswith(f"{agent['mark']}.") for pid in some]
    return {**agent, "pids": sorted(set(found))}


def _pids(places: Places) -> dict[str, list[int]]:
    """The processes of agents, by the marks that they carry."""
    from relaymesh.agents.processes import marks_alive

    try:
        mark = places.mark.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return marks_alive(f"{mark}.") if mark else {}


def _shown_run(run: Any) -> str:
    what = f"{run['step']} of {short_id(run['task'])}" if run.get("step") else short_id(run["message"])
    again = f" (attempt {run['attempt']})" if run.get("attempt", 1) > 1 else ""
    return f"{what}{again}{': ' + run['progress'] if run.get('progress') else ''}"


@directory_command
def restart(
    call: Call,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="The agent.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Every agent.")] = False,
) -> None:
    """Restart an agent: running steps may finish within its grace. The node and the others go on."""
    if (agent is None) == (not all):
        raise UsageFailed("name one agent, or say --all", hint="relaymesh ps lists the agents")
    places, _ = _running(call)
    answer = ask(places.orders, Order("restart", () if agent is None else (agent,)), RESTART_S_MAX)
    if answer is None:
        raise MeshError("the supervisor did not answer", hint="relaymesh ps shows whether it runs")
    if answer.problem:
        raise NotFound(answer.problem, hint="relaymesh ps lists the agents, relaymesh logs says more")
    call.output.record({"restarted": list(answer.done)})


@directory_command
def logs(
    call: Call,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="The log of this agent; else that of the team.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="The last N lines.")] = 50,
) -> None:
    """Show what the team did, or what one agent wrote to stderr and how its steps ended."""
    places = Places(call.path)
    if agent is not None and ("/" in agent or "\0" in agent):
        raise UsageFailed("the name of an agent has no slash", hint="relaymesh ps lists the agents")
    path = places.team_log if agent is None else places.log_of(agent)
    for line in followed(path, lines, follow=follow):
        if call.output.json:
            call.output.object({"line": line})
        else:
            call.output.line(line)
        if follow:
            call.output.flush()
