"""report: the published tables as one page, as a proposal, as SQL and as a notebook."""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaymesh.cli import pipeline
from relaymesh.cli.commands import plain_command
from relaymesh.cli.failure import CheckFailed, UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.output import quiet
from relaymesh.cli.table import Column
from relaymesh.errors import Conflict, NotFound
from relaymesh.modes import PRIVATE, READABLE, Modes

if TYPE_CHECKING:
    from relaymesh.pipeline.advice import Proposal
    from relaymesh.pipeline.report.published import Published

app = typer.Typer(
    help="The published tables as a page, as a proposal, as SQL: build, open, advice, sql, tables."
)

NEWEST = "newest-report"
"""A file of the warehouse that says where the newest report is."""

Shared = Annotated[bool, typer.Option("--shared", help="Let every user of the machine read what is written.")]


@app.command("build")
@plain_command
def build(
    call: Call,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The page; replaced if it is there.")
    ] = Path("report.html"),
    notebook: Annotated[
        Path | None, typer.Option("--notebook", metavar="FILE", help="Write a Jupyter notebook too.")
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Show the published tables, without running the pipeline.")
    ] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="Generate some days of traffic first; --dir keeps them.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=30, metavar="N", help="Days of the sample.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the sample.")] = 0,
    shared: Shared = False,
    directory: pipeline.Dirs = None,
    warehouse: pipeline.Warehouse = None,
    master: pipeline.Master = None,
    remote: pipeline.Remote = None,
) -> None:
    """Write one HTML file with every figure, its table and its SQL. It needs no other file and no network.

    Runs the pipeline first when the tables are behind the journal. Exit code 9: the sums do not add up; the
    page is there and says so.
    """
    began = time.monotonic()
    if sample and no_run:
        raise UsageFailed("--sample makes events that only a run can show", hint="leave out --no-run")
    with _directories(call, directory, sample=sample) as directories:
        place = pipeline.warehouse_of(directories, warehouse)
        if sample:
            _make_sample(directories[0], days, seed)
        ran = not no_run and _is_behind(place, directories)
        if ran:
            settings = pipeline.settings_of(call, directories, place, "parquet")
            with pipeline.pipeline_of(call, settings, master, remote) as opened:
                opened.run()
        modes = READABLE if shared else PRIVATE
        _write(call, place, out.absolute(), notebook, modes, began=began, ran=ran, sample=sample)


@app.command("open")
@plain_command
def open_report(
    call: Call,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Else the newest of the warehouse.")
    ] = None,
    directory: pipeline.Dirs = None,
    warehouse: pipeline.Warehouse = None,
) -> None:
    """Show a report in the browser; without a browser, print the path of the file."""
    path = (file if file is not None else _newest(call, directory, warehouse)).absolute()
    if not path.is_file():
        raise NotFound(f"there is no report {path}", hint="relaymesh report build")
    call.output.record({"report": str(path), "opened": _shown(path)})


@app.command("advice")
@plain_command
def advice(
    call: Call,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where proposal.json and proposal.txt go.")
    ] = Path(),
    shared: Shared = False,
    directory: pipeline.Dirs = None,
    warehouse: pipeline.Warehouse = None,
) -> None:
    """Propose settings to change, with the reasons from the tables, and write a file. Changes no setting."""
    with _published(call, directory, warehouse) as published:
        proposal, written = _propose(published, out.absolute(), READABLE if shared else PRIVATE)
    if call.output.json:
        call.output.object(proposal.fields())
        return
    call.output.text(proposal.text().rstrip())
    call.output.note(f"also in {' and '.join(map(str, written))}")


@app.command("sql")
@plain_command
def sql(
    call: Call,
    query: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT of DuckDB, or - to read stdin.")],
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Print at most N rows.")] = 100,
    directory: pipeline.Dirs = None,
    warehouse: pipeline.Warehouse = None,
) -> None:
    """Query the published tables, the events and the runs. Reads nothing else, and writes nothing."""
    with _published(call, directory, warehouse, unpublished=True) as published:
        answer = published.ask(sys.stdin.read() if query == "-" else query, limit)
    numbers = {name for name in answer.columns if isinstance(_first(answer.column(name)), (int, float))}
    columns = [Column(name, "number" if name in numbers else "text", _cell) for name in answer.columns]
    call.output.rows(columns, (_plain(row) for row in answer.records()), empty="no rows")
    if answer.more:
        call.output.note(f"and {answer.more} more rows: --limit {answer.total} prints all")


@app.command("tables")
@plain_command
def tables(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Show the columns of this table.")
    ] = None,
    directory: pipeline.Dirs = None,
    warehouse: pipeline.Warehouse = None,
) -> None:
    """List the tables that can be queried, or the columns of one."""
    with _published(call, directory, warehouse, unpublished=True) as published:
        if name is not None:
            call.output.rows(COLUMNS, _columns(published, name))
        else:
            call.output.rows(TABLES, _tables(published))


# -- build


@contextmanager
def _directories(call: Call, given: list[Path] | None, *, sample: bool) -> Iterator[list[Path]]:
    """Those given; of a sample, the new one given, or one that is gone afterwards."""
    if not sample:
        yield [path.absolute() for path in pipeline.directories_of(call, given, exist=False)]
    elif given:
        if len(given) > 1 or (given[0] / "journal").exists():
            raise Conflict(f"a sample needs one new directory, and {given[0]} has a mesh", hint="--dir PATH")
        yield [given[0].absolute()]
    else:
        with tempfile.TemporaryDirectory(prefix="relaymesh-sample-") as folder:
            yield [Path(folder)]


def _make_sample(directory: Path, days: int, seed: int) -> None:
    from relaymesh.pipeline.report.sample import sample_days, sample_start
    from relaymesh.testing import ManualClock, ManualMesh

    start = sample_start(days, datetime.now(UTC))
    with (
        quiet("relaymesh.delivery"),
        quiet("relaymesh.alert"),
        ManualMesh(directory, durability="batched", clock=ManualClock(start), seed=seed) as mesh,
    ):
        sample_days(mesh, mesh.advance, days=days, seed=seed)


def _is_behind(warehouse: Path, directories: list[Path]) -> bool:
    """Whether a journal has events that the published tables have not."""
    from relaymesh.pipeline.runs.status import status_of

    found = status_of(warehouse)
    known = {Path(lag.path).resolve() for lag in found.lags}
    return (
        found.published is None
        or any(lag.not_published for lag in found.lags)
        or not known.issuperset(each.resolve() for each in directories)
    )


def _write(
    call: Call,
    place: Path,
    out: Path,
    notebook: Path | None,
    modes: Modes,
    *,
    began: float,
    ran: bool,
    sample: bool,
) -> None:
    with pipeline.needs_the_extra():
        from relaymesh.pipeline.report.notebook import write_notebook
        from relaymesh.pipeline.report.page import build_page, write_page
        from relaymesh.pipeline.report.published import Published
        from relaymesh.pipeline.tables.durable import swap_file
        from relaymesh.pipeline.tables.sharing import modes_of

    with Published(place) as published:
        page = build_page(published, made_at=datetime.now(UTC), sample=sample)
        size = write_page(page, out, modes)
        if notebook is not None:
            write_notebook(published, notebook.absolute(), modes)
        _, proposal = _propose(published, out.parent, modes)
    swap_file(place / NEWEST, str(out).encode(), modes_of(place))
    fields: dict[str, Any] = {
        "report": str(out),
        "proposal": str(proposal[1]),
        "bytes": size,
        "figures": len(page.figures),
        "run_id": page.run_id,
        "pipeline_ran": ran,
        "balanced": page.balance.holds,
        "seconds": round(time.monotonic() - began, 2),
    }
    call.output.record(fields | ({} if notebook is None else {"notebook": str(notebook.absolute())}))
    if not call.output.json:
        call.output.note(f"relaymesh report open {shlex.quote(str(out))}")
    if page.balance.judged and not page.balance.holds:
        raise CheckFailed("the sums do not add up", hint="the report says which; relaymesh journal verify")


def _propose(published: Published, directory: Path, modes: Modes) -> tuple[Proposal, tuple[Path, Path]]:
    from relaymesh.pipeline.advice import write_proposal
    from relaymesh.pipeline.report.proposal import proposal_of

    proposal = proposal_of(published, datetime.now(UTC))
    return proposal, write_proposal(proposal, directory, modes)


# -- open


def _newest(call: Call, directory: list[Path] | None, warehouse: Path | None) -> Path:
    place = pipeline.warehouse_of(pipeline.directories_of(call, directory, exist=False), warehouse)
    try:
        return Path((place / NEWEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Path("report.html")


def _shown(path: Path) -> bool:
    try:
        return webbrowser.open(path.as_uri())
    except webbrowser.Error:
        return False


# -- sql and tables

TABLES = [
    Column("table"),
    Column("layer"),
    Column("rows", "number"),
    Column("columns", "number", lambda columns: str(len(columns))),
    Column("description", "text"),
]
COLUMNS = [Column("column"), Column("type"), Column("comment", "text")]


@contextmanager
def _published(
    call: Call, directory: list[Path] | None, warehouse: Path | None, *, unpublished: bool = False
) -> Iterator[Published]:
    with pipeline.needs_the_extra():
        from relaymesh.pipeline.report.published import Published

    place = pipeline.warehouse_of(pipeline.directories_of(call, directory, exist=False), warehouse)
    with Published(place, unpublished=unpublished) as published:
        yield published


def _tables(published: Published) -> Iterator[dict[str, Any]]:
    descriptions = _descriptions()
    for table in published.manifest.tables.values():
        yield {
            "table": table.name,
            "layer": table.layer,
            "rows": table.rows,
            "columns": [each["name"] for each in table.schema["fields"]],
            "description": descriptions.get(table.name, ""),
        }
    for name, rows in published.beside.items():
        [(count,)] = published.ask(f"SELECT count(*) FROM {name}", 1).rows
        columns = list(rows.schema.names)
        described = {"layer": "beside", "description": descriptions[name]}
        yield {"table": name, "rows": count, "columns": columns, **described}


def _columns(published: Published, name: str) -> Iterator[dict[str, Any]]:
    if name in published.beside:
        for field in published.beside[name].schema:
            yield {"column": field.name, "type": str(field.type), "comment": ""}
        return
    if not published.has(name):
        raise NotFound(f"there is no table {name!r}", hint="relaymesh report tables")
    for each in published.manifest.tables[name].schema["fields"]:
        comment = each.get("metadata", {}).get("comment", "")
        yield {"column": each["name"], "type": each["type"], "comment": comment}


def _descriptions() -> dict[str, str]:
    own = {
        "pipeline_metrics": "What every run measured and expected.",
        "quarantine": "Frames of the journal that could not be read.",
    }
    with pipeline.needs_the_extra():
        from relaymesh.pipeline import catalog
        from relaymesh.pipeline.report.beside import BESIDE
    return own | BESIDE | {table.name: table.description for table in catalog.TABLES}


def _first(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _cell(value: Any) -> str:
    from relaymesh.pipeline.shown import words_of

    return words_of(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """What JSON has no type for becomes text: bytes, and integers of more than 64 bits."""
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return str(value)
    return value
