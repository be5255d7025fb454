"""settings: what is in force, what differs, reading the file again, and what was read before.

A running node is asked. Without one, the settings file and the environment say what a node would take.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.nodes import node_of
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.errors import NotFound
from relaymesh.journal.layout import LOCK, is_locked
from relaymesh.kernel.moment import iso
from relaymesh.node.disk import RealDisk
from relaymesh.node.settings_file import SETTINGS_FILE
from relaymesh.node.tuning import Given, read_history, resolve
from relaymesh.wire.api import SettingBody, SettingsAnswer, SettingsHistoryAnswer, SettingsLoadBody
from relaymesh.wire.parameters import ROWS, Parameters, Value
from relaymesh.wire.settings import HISTORY_MAX, Origin

if TYPE_CHECKING:
    from relaymesh.client.asking import Asking

app = typer.Typer(help="The settings file of a node: show, diff, reload, history.")


def _plain(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value).lower()


SHOWN = [
    Column("name"),
    Column("value", show=_plain),
    Column("default", show=_plain),
    Column("origin"),
    Column("active"),
    Column("effect", "text"),
]
DIFFERING = [
    Column("name"),
    Column("in_force", show=_plain),
    Column("file", show=_plain),
    Column("default", show=_plain),
    Column("origin"),
    Column("note", "text"),
]
LOADS = [
    Column("at"),
    Column("cause"),
    Column("refused"),
    Column("by"),
    Column("changed_fields", "text"),
]
OUTRANKED: dict[Origin, str] = {
    "toml": "relaymesh.toml goes before the file",
    "flag": "an option of the node goes before the file",
    "environment": "a variable of the node goes before the file",
}
Limit = Annotated[int, typer.Option("--limit", min=1, max=HISTORY_MAX, metavar="N", help="The newest N.")]


@app.command("show")
@mesh_command
def show(
    call: Call,
) -> None:
    """List every setting: its value, where that comes from, whether it is active, and what it does."""
    with _node(call) as node:
        found, problem = _in_force(call, node)
    call.output.rows(SHOWN, [_row(each) for each in found])
    if problem:
        call.output.note(f"the current file is not applied: {problem}")


@app.command("diff")
@mesh_command
def diff(
    call: Call,
) -> None:
    """List what is not at its default, and what a reload would change. Reads the file of the directory."""
    with _node(call) as node:
        found, _ = _in_force(call, node)
    file = None if call.remote else resolve(Given(), call.path / SETTINGS_FILE).values
    rows = [_difference(each, file) for each in found]
    call.output.rows(
        DIFFERING, [row for row in rows if row is not None], empty="everything is at its default"
    )


@app.command("reload")
@mesh_command
def reload(
    call: Call,
) -> None:
    """Have the running node read the settings file now. A wrong file is refused whole: nothing changes."""
    with _node(call) as node:
        if node is None:
            resolve(_given(), call.path / SETTINGS_FILE)
            raise NotFound(
                f"no node runs on {call.path}; the settings there are valid",
                hint="the next relaymesh serve reads them",
            )
        load = node.post("/v1/settings/reload", None, SettingsLoadBody)
    if call.output.json:
        call.output.object(_load_row(load))
    elif load.changed_fields:
        call.output.line(f"reloaded; changed: {', '.join(load.changed_fields)}")
    else:
        call.output.line("reloaded; nothing changed")


@app.command("history")
@mesh_command
def history(
    call: Call,
    limit: Limit = 20,
) -> None:
    """List when the settings were read and which of them changed, the newest first. It has no values."""
    with _node(call) as node:
        loads = _loads(call, node, limit)
    call.output.rows(LOADS, [_load_row(load) for load in loads], empty="no settings were loaded yet")


def _node(call: Call) -> Any:
    """The node to ask, or None in its place."""
    if not call.remote and not call.path.is_dir():
        raise NotFound(f"there is no directory {call.path}", hint="name the data directory with --dir")
    served = call.remote or ((call.path / LOCK).exists() and is_locked(RealDisk(call.path)))
    node = node_of(call) if served else None
    return nullcontext() if node is None else node


def _given() -> Given:
    return Given(environment=os.environ.copy())


def _in_force(call: Call, node: Asking | None) -> tuple[Sequence[SettingBody], str]:
    """What is in force, or would be; and why the file is not."""
    if node is not None:
        answer = node.get("/v1/settings", SettingsAnswer)
        return answer.settings, answer.problem
    path = call.path / SETTINGS_FILE
    if not path.exists():
        call.existing()
    bodies = [
        SettingBody(
            name=each.name,
            value=each.value,
            default=each.default,
            origin=each.origin,
            active=each.active,
            effect=each.effect,
        )
        for each in resolve(_given(), path).shown()
    ]
    return bodies, ""


def _loads(call: Call, node: Asking | None, limit: int) -> Sequence[SettingsLoadBody]:
    if node is not None:
        return node.get("/v1/settings/history", SettingsHistoryAnswer, limit=limit).loads
    return [
        SettingsLoadBody(
            at=iso(load.at),
            cause=load.cause,
            changed_fields=load.changed_fields,
            refused=load.refused,
            by=load.by,
        )
        for load in read_history(RealDisk(call.path))[::-1][:limit]
    ]


def _row(setting: SettingBody) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value,
        "default": setting.default,
        "origin": setting.origin,
        "active": setting.active,
        "effect": setting.effect,
    }


def _difference(setting: SettingBody, file: Parameters | None) -> dict[str, Any] | None:
    """A line of `diff`; None: the default is in force, and the file agrees.

    `file`: None for a node elsewhere.
    """
    in_file: Value | None = None if file is None else getattr(file, ROWS[setting.name].field)
    waits = in_file is not None and in_file != setting.value
    if setting.value == setting.default and not waits:
        return None
    note = (OUTRANKED.get(setting.origin) or "relaymesh settings reload takes it") if waits else ""
    if not setting.active:
        note = "inactive until several nodes form a mesh"
    return {
        "name": setting.name,
        "in_force": setting.value,
        "file": in_file,
        "default": setting.default,
        "origin": setting.origin,
        "note": note,
    }


def _load_row(load: SettingsLoadBody) -> dict[str, Any]:
    return {
        "at": load.at,
        "cause": load.cause,
        "refused": load.refused,
        "by": load.by,
        "changed_fields": load.changed_fields,
    }
