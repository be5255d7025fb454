"""What a purge by age removes from the tables, and a survey of it before, by the same conditions.

Both go through the tables in windows of some thousand rows. Projecting therefore waits for one short
transaction at a time, and no read of the survey holds the WAL back for long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from relaymesh.kernel.dedup import WINDOW_MS
from relaymesh.kernel.tasks.keys import KEY_MS
from relaymesh.store.connect import connect_reader
from relaymesh.store.queries import QUERIES

__all__ = ["AgedRows", "Cut", "PurgedPart", "cut_before", "purge_part", "survey"]

WINDOW_ROWS = 5_000
ALL = (1 << 63) - 1


class Cut(NamedTuple):
    """The ages of a purge: rows of these times (ms) and earlier are removed. A row that is live never is."""

    messages_end: int
    ids_end: int
    tasks_end: int | None
    """None: tasks, steps and keys stay."""
    mailbox: str | None = None
    """Only of this mailbox."""


def cut_before(before_ms: int, now_ms: int, mailbox: str | None = None, keys_ms: int = KEY_MS) -> Cut:
    """Everything that was done before a moment.

    Ids stay for the dedup window, and tasks while their keys are known: removing either could make the same
    request run twice. Tasks belong to no mailbox. `keys_ms`: how long their keys are known.
    """
    end = before_ms - 1
    tasks_end = None if mailbox is not None else min(end, now_ms - keys_ms)
    return Cut(end, min(end, now_ms - WINDOW_MS), tasks_end, mailbox)


class AgedRows(msgspec.Struct, frozen=True):
    """What a purge would remove: of one kind, and of one mailbox or id's target where the kind has them."""

    kind: str
    mailbox: str | None
    count: int
    bytes: int
    oldest: int
    newest: int


class PurgedPart(NamedTuple):
    """What one window lost. Continue behind `after` while `more`."""

    messages: int
    ids: int
    tasks: int
    steps: int
    keys: int
    after: int
    more: bool


def purge_part(writer: apsw.Connection, cut: Cut, after: int, rows: int = WINDOW_ROWS) -> PurgedPart:
    """Remove what is old in the next window of messages and ids, and as many tasks, in one transaction."""
    with writer:
        last = _window(writer, cut, after, rows)
        messages = ids = 0
        if last is not None:
            messages = _delete(writer, "purge_messages_in", (after, last, cut.messages_end, cut.mailbox))
            ids = _delete(writer, "purge_admissions_in", (after, last, cut.ids_end, cut.mailbox))
        steps = tasks = keys = 0
        if cut.tasks_end is not None:
            steps = _delete(writer, "purge_steps", (cut.tasks_end, rows))
            tasks = _delete(writer, "purge_tasks", (cut.tasks_end, rows))
            keys = _delete(writer, "purge_keys", (cut.tasks_end, rows))
    more = last is not None or rows in (steps, tasks, keys)
    return PurgedPart(messages, ids, tasks, steps, keys, after if last is None else last, more)


def survey(path: Path, cut: Cut) -> list[AgedRows]:
    """Count what a purge would remove. Reads with a connection of its own, and changes nothing."""
    connection = connect_reader(path)
    try:
        return _survey(connection, cut)
    finally:
        connection.close()


def _survey(connection: apsw.Connection, cut: Cut) -> list[AgedRows]:
    found: dict[tuple[str, str | None], AgedRows] = {}
    after = -1
    while (last := _window(connection, cut, after, WINDOW_ROWS)) is not None:
        for kind, name, end in (
            ("messages", "survey_messages_in", cut.messages_end),
            ("ids", "survey_admissions_in", cut.ids_end),
        ):
            rows: Any = connection.execute(QUERIES[name], (after, last, end, cut.mailbox))
            for row in rows:
                _add(found, AgedRows(kind, *row))
        after = last
    if cut.tasks_end is not None:
        for kind in ("tasks", "steps", "keys"):
            numbers: Any = connection.execute(QUERIES[f"survey_{kind}"], (cut.tasks_end,)).get
            if numbers[0]:
                _add(found, AgedRows(kind, None, *numbers))
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1] or ""))]


def _add(found: dict[tuple[str, str | None], AgedRows], row: AgedRows) -> None:
    before = found.get((row.kind, row.mailbox))
    if before is not None:
        row = AgedRows(
            row.kind,
            row.mailbox,
            before.count + row.count,
            before.bytes + row.bytes,
            min(before.oldest, row.oldest),
            max(before.newest, row.newest),
        )
    found[row.kind, row.mailbox] = row


def _window(connection: apsw.Connection, cut: Cut, after: int, rows: int) -> int | None:
    """The last sequence of the next window; None behind the last one."""
    end = connection.execute(QUERIES["boundary_after"], (cut.messages_end,)).get
    last: int | None = connection.execute(QUERIES["window"], (after, ALL if end is None else end, rows)).get
    return last


def _delete(writer: apsw.Connection, name: str, bindings: tuple[object, ...]) -> int:
    writer.execute(QUERIES[name], bindings)
    return writer.changes()
