"""token: who may speak to the node. Works on the data directory; a running server follows within a second."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.looking import look_into
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.errors import DirectoryError
from relaymesh.kernel.address import name_of, namespace_of
from relaymesh.server.address import server_folder
from relaymesh.server.security.token import ROLES, Token
from relaymesh.server.security.tokens import TokenFile, wall_ms

app = typer.Typer(help="Access tokens: create, list, revoke, rotate.")

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)\Z")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

TOKENS = [
    Column("id"),
    Column("label", "text"),
    Column("namespace", "text"),
    Column("scopes", "text", " ".join),
    Column("standing"),
    Column("created_at", "text"),
    Column("expires_at", "text"),
    Column("replaces"),
]

Id = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as list shows it; not the token.")]


@app.command("create")
@directory_command
def create(
    call: Call,
    role: Annotated[
        str | None,
        typer.Option("--role", metavar="ROLE", help="ro: read; rw: read and write; admin: everything."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="NAME", help="To act as this agent; may be given several times."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="SCOPE", help="read, write, admin or agent:NAME; may be given several times."
        ),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option("--namespace", metavar="NAME", help="The namespace it is for; * with admin for all."),
    ] = "default",
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="What it is for; shown in lists and in the audit.")
    ] = "",
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="SPAN", help="Valid for so long: 12h, 30d."),
    ] = None,
) -> None:
    """Make a token and print it. It is shown this once; only its SHA-256 is kept."""
    lifetime_ms = None if expires is None else _milliseconds(expires, "--expires")
    scopes = _scopes(role, agent, scope)
    token, text = _file(call).create(
        scopes,
        namespace=namespace,
        label=label,
        lifetime_ms=lifetime_ms,
        agents=_known_agents(call, namespace) if any(map(_is_agent, scopes)) else (),
    )
    _show_secret(call, token, text)


@app.command("list")
@directory_command
def list_tokens(
    call: Call,
    all: Annotated[bool, typer.Option("--all", help="Also those that have expired or were revoked.")] = False,
) -> None:
    """List the tokens: their ids and what they allow, never the tokens themselves."""
    now = wall_ms()
    rows = [_row(token, now) for token in _file(call).read() if all or token.standing(now) == "valid"]
    call.output.rows(TOKENS, rows, empty="no tokens: relaymesh token create makes one")


@app.command("revoke")
@directory_command
def revoke(
    call: Call,
    id: Id,
    yes: options.Yes = False,
) -> None:
    """End a token. A running server refuses it, and closes its connections, within a second."""
    confirm(f"revoke token {id}? Clients that use it are cut off.", yes=yes)
    call.output.record(_row(_file(call).revoke(id), wall_ms()))


@app.command("rotate")
@directory_command
def rotate(
    call: Call,
    id: Id,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="SPAN", help="How long both are valid: 30m, 24h, 7d.")
    ] = "24h",
) -> None:
    """Make a successor with the same rights and print it; the old token ends after the overlap."""
    old, new, text = _file(call).rotate(id, _milliseconds(overlap, "--overlap"))
    _show_secret(call, new, text)
    call.output.note(f"token {old.id} is valid until {_time(old.expires_at)}")


def _is_agent(scope: str) -> bool:
    return scope.startswith("agent:")


def _known_agents(call: Call, namespace: str) -> list[str]:
    """Names of the agents that have a mailbox there, as far as the journal can be read."""
    if not (call.path / "journal").is_dir():
        return []
    try:
        mailboxes = look_into(call.path).mailboxes()
    except DirectoryError as error:
        call.output.note(f"the agents are not known, so no name is compared with theirs: {error}")
        return []
    return [name_of(each) for each in mailboxes if namespace_of(each) == namespace and ":" not in each]


def _file(call: Call) -> TokenFile:
    return TokenFile(server_folder(call.path))


def _scopes(role: str | None, agents: list[str] | None, scopes: list[str] | None) -> set[str]:
    if role is not None and role not in ROLES:
        raise UsageFailed(f"there is no role {role!r}", hint=f"roles are {', '.join(ROLES)}")
    found = set(scopes or ()) | {f"agent:{name}" for name in agents or ()}
    found |= ROLES[role] if role is not None else set()
    if not found:
        raise UsageFailed(
            "say what the token is for", hint="--agent NAME for an agent, or --role ro, rw or admin"
        )
    return found


def _milliseconds(text: str, option: str) -> int:
    match = _SPAN.match(text)
    span = float(match[1]) * _UNIT_MS[match[2]] if match else 0
    if not 0 < span < 1e13:
        raise UsageFailed(f"{option} {text!r} is no span of time", hint="write 90s, 30m, 12h or 30d")
    return int(span)


def _show_secret(call: Call, token: Token, text: str) -> None:
    fields = _row(token, wall_ms())
    if call.output.json:
        call.output.object({"token": text, **fields})
        return
    call.output.line(text)
    call.output.note(f"token {token.id}, {' '.join(token.scopes)} in {token.namespace}: shown this once")


def _row(token: Token, now_ms: int) -> dict[str, Any]:
    return {
        "id": token.id,
        "label": token.label,
        "namespace": token.namespace,
        "scopes": list(token.scopes),
        "standing": token.standing(now_ms),
        "created_at": _time(token.created_at),
        "expires_at": _time(token.expires_at),
        "revoked_at": _time(token.revoked_at),
        "replaces": token.replaces,
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
