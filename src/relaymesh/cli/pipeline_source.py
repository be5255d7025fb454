"""pipeline source: the meshes that feed a warehouse. List them, say where one is now, forget one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaymesh.cli.commands import plain_command
from relaymesh.cli.options import Call
from relaymesh.cli.pipeline import Dirs, Warehouse, directories_of, needs_the_extra, warehouse_of
from relaymesh.cli.table import Column
from relaymesh.errors import NotFound

if TYPE_CHECKING:
    from relaymesh.pipeline.runs.sources import SourceList
    from relaymesh.pipeline.tables.sources import Source

app = typer.Typer(help="The meshes that feed a warehouse: list, move, forget.")

Wanted = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Its id, the beginning of one that fits no other, or its path, as list shows."
    ),
]

SOURCES = [
    Column("id", "text"),
    Column("partition", "number"),
    Column("path", "text"),
    Column("events", "number"),
    Column("through", "number"),
    Column("state", "text"),
]


@app.command("list")
@plain_command
def list_sources(call: Call, directory: Dirs = None, warehouse: Warehouse = None) -> None:
    """Show each mesh that feeds the warehouse: id, partition, path, events in bronze, the last one, state.

    States: read; missing (no mesh at its path); another mesh (at its path); diverged (a copy with other
    events than the original); behind (a copy that lacks events that were read); forgotten. Needs no Spark.
    """
    place = warehouse_of(directories_of(call, directory, exist=False), warehouse)
    sources = _sources(place)
    call.output.rows(SOURCES, [_told(sources, each) for each in sources.all.values()])


@app.command("move")
@plain_command
def move(
    call: Call,
    source: Wanted,
    path: Annotated[Path, typer.Argument(metavar="NEW_PATH", help="The data directory to read it from.")],
    as_new: Annotated[
        bool,
        typer.Option(
            "--as-new",
            help="NEW_PATH is a diverged copy: read it too, as a separate source,"
            " from the first event that differs.",
        ),
    ] = False,
    directory: Dirs = None,
    warehouse: Warehouse = None,
) -> None:
    """Set the directory from which a mesh is read: after a move or a restore, or to use a copy instead.

    The directory must hold that mesh, and every event that was read: nothing is read again. A diverged copy
    is refused (exit code 8) with the first event that differs, unless --as-new is given.
    """
    place = warehouse_of(directories_of(call, directory, exist=False), warehouse)
    with _changing(place, "source move") as sources:
        found = sources.named(source)
        moved = sources.add_copy(found, path) if as_new else sources.move(found, path)
    call.output.record(_told(sources, moved))
    if as_new:
        call.output.note(f"it is read from event {moved.first} on: those before it are in the tables already")


@app.command("forget")
@plain_command
def forget(
    call: Call,
    source: Wanted,
    directory: Dirs = None,
    warehouse: Warehouse = None,
) -> None:
    """Read a mesh no longer. Its events stay in the tables.

    Retention of its node no longer waits for the warehouse. `move` with its path reads it again.
    """
    place = warehouse_of(directories_of(call, directory, exist=False), warehouse)
    with _changing(place, "source forget") as sources:
        forgotten = sources.forget(sources.named(source))
    events = sources.events(forgotten)
    call.output.record(_told(sources, forgotten))
    if events:
        call.output.note(
            f"its {events} events stay in the tables. To make them anew without it: move "
            f"{quote(str(place / 'bronze'))} and {quote(str(place / 'checkpoints'))} away, then relaymesh"
            " pipeline run"
        )


def _sources(place: Path) -> SourceList:
    with needs_the_extra():
        from relaymesh.pipeline.runs.sources import SourceList

    if not (place / "sources.json").exists():
        raise NotFound(f"no pipeline has run in {place}", hint="name it with --warehouse, or its --dir")
    return SourceList(place)


@contextmanager
def _changing(place: Path, what: str) -> Iterator[SourceList]:
    """The list, saved at the end; no run works meanwhile."""
    from relaymesh.pipeline.tables.lock import warehouse_lock

    _sources(place)  # what is not there is not made
    with warehouse_lock(place, what):
        sources = _sources(place)
        yield sources
        sources.save()


def _told(sources: SourceList, source: Source) -> dict[str, Any]:
    from relaymesh.pipeline.runs.standing import Stand

    held = sources.input(source)
    stand = sources.standing(source).stand
    state = "forgotten" if source.forgotten else "read" if stand is Stand.CONTINUES else stand.value
    return {
        "id": source.id,
        "partition": source.partition,
        "path": source.path,
        "events": 0 if held is None else held.events,
        "through": None if held is None else held.through_sequence,
        "state": state,
    }
