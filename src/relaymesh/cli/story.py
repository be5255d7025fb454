"""story: what became of one message."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer
from msgspec import UNSET

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.looking import look_into
from relaymesh.cli.nodes import node_of
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column, short_address
from relaymesh.errors import NotFound
from relaymesh.node.opening import STORE_FILE
from relaymesh.node.story import story_in_memory, story_in_store
from relaymesh.store.views import Views
from relaymesh.wire.api import StoryAnswer, StoryEntry


def _failures(failures: list[dict[str, Any]]) -> str:
    return "; ".join(f"{each['attempt']}: {each['code']} {each['reason']}".rstrip() for each in failures)


WAITING = ("delayed", "ready", "leased")
SETTLED = "settled"
"""The journal says that it is over, and the tables do not know yet how it ended."""
STAYS = [
    Column("mailbox", show=short_address),
    Column("state"),
    Column("attempts", "number"),
    Column("accepted_at", title="accepted"),
    Column("updated_at", title="updated"),
    Column("failures", "text", _failures),
]


@mesh_command
def story(
    call: Call,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the message.")],
) -> None:
    """Show what became of a message: each mailbox it entered, its state there, and each failed attempt.

    Works beside a running process. Settled messages are known for a week.
    """
    node = node_of(call)
    if node is None:
        stays = _in_directory(call, id)
    else:
        with node:
            path = f"/v1/messages/{quote(id, safe='')}"
            stays = list(map(_row, node.get(path, StoryAnswer).entries))
    if not stays:
        raise NotFound(f"there is no message {id!r}", hint="settled messages are kept for a week")
    call.output.rows(STAYS, stays)
    if any(stay["state"] == SETTLED for stay in stays):
        call.output.note("the tables are behind the journal: relaymesh store rebuild shows the latest state")


def _in_directory(call: Call, id: str) -> list[dict[str, Any]]:
    path = call.existing()
    seen = look_into(path)
    pending = story_in_memory(id, seen.read)
    if not (path / STORE_FILE).exists():
        return list(map(_row, pending))
    views = Views(path / STORE_FILE)
    try:
        stays = story_in_store(views, id, seen.read)
    finally:
        views.close()
    known = {(stay.mailbox, stay.sequence) for stay in stays}
    late = [stay for stay in pending if (stay.mailbox, stay.sequence) not in known]
    waiting = {(stay.mailbox, stay.sequence) for stay in pending}
    rows = list(map(_row, [*stays, *late]))
    for row in rows:
        if row["state"] in WAITING and (row["mailbox"], row["sequence"]) not in waiting:
            row["state"] = SETTLED
    return rows


def _row(stay: StoryEntry) -> dict[str, Any]:
    fields = {name: getattr(stay, name) for name in stay.__struct_fields__}
    fields["failures"] = [msgspec.structs.asdict(failure) for failure in stay.failures]
    return {name: value for name, value in fields.items() if value is not UNSET}
