"""tail: what happens, while it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.messages import mailbox_address
from relaymesh.cli.nodes import asking
from relaymesh.cli.options import Call
from relaymesh.cli.output import json_text
from relaymesh.cli.table import Column, plain, short_address
from relaymesh.journal import FIRST_SEQUENCE, read_frames, read_mark
from relaymesh.journal.events import EventRows, Events
from relaymesh.journal.payloads import read_payload
from relaymesh.node.disk import RealDisk
from relaymesh.sdk.names import Names
from relaymesh.wire.api.journal import FramesAnswer
from relaymesh.wire.operations import OPERATIONS, RETURNS
from relaymesh.wire.payload import Get, no_payloads

LOOK_BACK = 20_000
"""Events read before the first that is shown, to learn the ids of messages accepted earlier."""
LOOK_EVERY_S = 0.2
WAIT_S = 20.0


@mesh_command
def tail(
    call: Call,
    mailbox: Annotated[
        str | None,
        typer.Option("--mailbox", metavar="NAME", help="Only this agent's, or TOPIC:SUBSCRIPTION's."),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="NAME", help="Only these, such as DEAD_LETTER; or several."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, metavar="N", help="Begin with the last N events.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Print them and stop.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the messages too.")] = False,
) -> None:
    """Print events as they happen, until Ctrl-C. Works beside a running process; --url for another machine.

    Shows only synced events: a crash cannot undo an event that was printed.
    """
    wanted = _operations(operation)
    address = None if mailbox is None else mailbox_address(mailbox, Names())
    for row in _rows(call, last, once, full):
        fits = (address is None or row["mailbox"] == address) and (not wanted or row["operation"] in wanted)
        if fits:
            _print(call, row)


def _operations(given: Sequence[str] | None) -> frozenset[str]:
    known = {*OPERATIONS.values(), *RETURNS.values()}
    wanted = frozenset(name.upper() for name in given or ())
    if not wanted <= known:
        raise UsageFailed(
            f"there is no operation {min(wanted - known)!r}", hint=f"there are {', '.join(sorted(known))}"
        )
    return wanted


def _rows(call: Call, last: int, once: bool, full: bool) -> Iterator[dict[str, Any]]:
    source = _Far(call) if call.remote else _Near(call)
    shown_from = max(FIRST_SEQUENCE, source.end() - last)
    start = max(FIRST_SEQUENCE, shown_from - LOOK_BACK)
    rows = EventRows(full=full, get=source.get)
    while True:
        frames = source.frames(start, wait=not once)
        for row in rows.rows(frames):
            if row["sequence"] >= shown_from:
                yield row
        if frames:
            start = frames[-1].first_sequence + frames[-1].events
        elif once:
            return


class _Near:
    """The journal of a directory."""

    def __init__(self, call: Call) -> None:
        self._disk = RealDisk(call.existing())
        self.get: Get = partial(read_payload, self._disk)

    def end(self) -> int:
        mark = read_mark(self._disk)
        start = FIRST_SEQUENCE if mark is None else max(FIRST_SEQUENCE, mark.sequence)
        for frame in read_frames(self._disk, start):
            start = frame.next_sequence
        return start

    def frames(self, start: int, *, wait: bool) -> Sequence[Events]:
        while True:
            found = list(read_frames(self._disk, start))
            if found or not wait:
                return found
            time.sleep(LOOK_EVERY_S)


class _Far:
    """The journal of a node, which holds the question until something happens."""

    def __init__(self, call: Call) -> None:
        assert call.url is not None
        self._node = asking(call.url, call.token)
        self.get: Get = no_payloads  # a node sends the content itself

    def end(self) -> int:
        return self._node.get("/v1/journal", FramesAnswer, last=0).next_sequence

    def frames(self, start: int, *, wait: bool) -> Sequence[Events]:
        while True:
            wait_s = WAIT_S if wait else 0.0
            query = {"from": start, "waitMs": int(wait_s * 1000)}
            found = self._node.get("/v1/journal", FramesAnswer, wait_s=wait_s, **query).frames
            if found or not wait:
                return found


COLUMNS = [
    Column("timestamp", show=lambda iso: iso[11:-1]),
    Column("operation"),
    Column("mailbox", "text", short_address),
    Column("message_id", "id"),
]


def _print(call: Call, row: Mapping[str, Any]) -> None:
    if call.output.json:
        call.output.object(row)
    else:
        time_text, operation, mailbox, id = (column.cell(row.get(column.name)) for column in COLUMNS)
        said = " ".join(f"{name}={plain(row[name])}" for name in ("code", "reason") if row.get(name))
        call.output.line(f"{time_text}  {operation:<13}  {mailbox:<24}  {id}  {said}".rstrip())
        if row.get("message") is not None:
            call.output.line(f"    {json_text(row['message'])}")
    call.output.flush()
