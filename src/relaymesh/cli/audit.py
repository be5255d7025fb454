"""audit: who did what through the server. Read from the files; a running server is not disturbed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import CheckFailed
from relaymesh.cli.moments import parse_since
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.errors import NotFound
from relaymesh.server.address import server_folder
from relaymesh.server.security.chain import Line, audit_files, read_lines

app = typer.Typer(help="The audit log of the server: list, verify.")

LINES = [
    Column("seq", "number"),
    Column("at", "text"),
    Column("event"),
    Column("token"),
    Column("agent", "text"),
    Column("method"),
    Column("path", "text"),
    Column("status", "number"),
    Column("remote_addr", "text"),
]


@app.command("list")
@directory_command
def list_lines(
    call: Call,
    event: Annotated[
        str | None,
        typer.Option("--event", metavar="NAME", help="Only these, such as web.write or auth.refused."),
    ] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="ID", help="Only of this token id.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Not before: 30m, 2h, 7d, or a time.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The last N.")] = 50,
) -> None:
    """List what was done, the newest last."""
    after_ms = 0.0 if since is None else parse_since(since).timestamp() * 1000
    shown: deque[Line] = deque(maxlen=limit)
    for line in _lines(call):
        if line.fault:
            call.output.note(f"{line.file} line {line.number} {line.fault}: relaymesh audit verify")
        elif (
            line.fields.get("at", 0) >= after_ms
            and event in (None, line.fields.get("event"))
            and token in (None, line.fields.get("token"))
        ):
            shown.append(line)
    call.output.rows(LINES, (_row(line) for line in shown), empty="nothing was audited yet")


@app.command("verify")
@directory_command
def verify(
    call: Call,
    contains: Annotated[
        str | None,
        typer.Option("--contains", metavar="HASH", help="A hash noted earlier: it must still be there."),
    ] = None,
) -> None:
    """Check the chain of hashes from the first line to the last. Exit code 9 names the first broken line."""
    count, first, last, found = 0, 0, Line("", 0, {}), contains is None
    for line in _lines(call):
        if line.fault:
            call.output.record({"sound": False, "lines": count, "file": line.file, "line": line.number})
            raise CheckFailed(
                f"{line.file} line {line.number} {line.fault}",
                hint="the lines before it are unchanged; from there on nothing is proven",
            )
        count += 1
        first, last = first or line.fields["seq"], line
        found = found or line.fields["hash"] == contains
    head = last.fields.get("hash")
    call.output.record({"sound": found, "lines": count, "first": first, "head": head})
    if not found:
        raise CheckFailed(
            "no line has that hash", hint="the log was cut off at its end, or is a different log"
        )


def _lines(call: Call) -> Iterator[Line]:
    folder = server_folder(call.path)
    if not audit_files(folder):
        raise NotFound(f"there is no audit log in {folder}", hint="the server writes it: relaymesh serve")
    return read_lines(folder)


def _row(line: Line) -> dict[str, Any]:
    at = datetime.fromtimestamp(line.fields.get("at", 0) / 1000, UTC).isoformat(timespec="milliseconds")
    return {column.name: None for column in LINES} | line.fields | {"at": at}
