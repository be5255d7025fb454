"""pipeline: the journal as tables, through Spark. Run it once, follow, compute anew, compact, look."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaymesh.cli.commands import plain_command
from relaymesh.cli.failure import CheckFailed, UsageFailed
from relaymesh.cli.moments import bytes_text, span_text
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.sdk.stop_signals import heeded

if TYPE_CHECKING:
    from rich.progress import Progress

    from relaymesh.pipeline.runs.pipeline import Pipeline
    from relaymesh.pipeline.runs.record import RunRecord
    from relaymesh.pipeline.runs.settings import PipelineSettings
    from relaymesh.pipeline.runs.stages import Observer, Stage
    from relaymesh.pipeline.runs.status import Status
    from relaymesh.pipeline.tables.store import TableStore

app = typer.Typer(
    help="Tables from the journal, through Spark: run, follow, backfill, compact, status, verify, source."
)

INSTALL = "pip install 'relaymesh[pipeline]'"

Dirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--dir",
        metavar="PATH",
        help="Data directory; may be given several times. Else RELAYMESH_HOME, else ~/.relaymesh.",
    ),
]
Warehouse = Annotated[
    Path | None,
    typer.Option(
        "--warehouse", metavar="PATH", help="Where the tables are; else tables/ in the first --dir."
    ),
]
Shared = Annotated[
    bool | None,
    typer.Option(
        "--shared/--private",
        help="Let every user of the machine read the tables, or only this user. Neither: as before.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark master; else spark-submit's, else local[*]."),
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="Spark Connect server, sc://host:port.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help="Of the published tables: parquet, delta or iceberg.")
]
BatchEvents = Annotated[
    int | None, typer.Option("--batch-events", min=1, metavar="N", help="Events in one batch at most.")
]
Quarantine = Annotated[
    str,
    typer.Option(
        "--quarantine", metavar="WORD", help="Bad frames: fail (stop before them) or rows (set aside)."
    ),
]
KeepDays = Annotated[
    int | None,
    typer.Option(
        "--keep-days",
        min=1,
        metavar="N",
        help="Forget older days whose messages are all settled; today counts. Else nothing is forgotten.",
        show_default=False,
    ),
]
KeepRuns = Annotated[
    int, typer.Option("--keep-runs", min=1, metavar="N", help="Publishes whose files are kept for readers.")
]
ContentOption = Annotated[
    str | None,
    typer.Option(
        "--content",
        metavar="WORD",
        help="keep or drop the content of new events in bronze. Else as before; a new warehouse drops it.",
        show_default=False,
    ),
]


@app.command("run")
@plain_command
def run(
    call: Call,
    directory: Dirs = None,
    warehouse: Warehouse = None,
    shared: Shared = None,
    master: Master = None,
    remote: Remote = None,
    format: Format = "parquet",
    batch_events: BatchEvents = None,
    quarantine: Quarantine = "fail",
    content: ContentOption = None,
    keep_days: KeepDays = None,
    keep_runs: KeepRuns = 3,
) -> None:
    """Read the new events of the journals, refresh the tables, check them, publish them. Idempotent.

    With nothing new it starts no Spark: it looks at the journals and at every file, and says so.
    Exit code 9: a check failed, and nothing was published. May run beside a node, and be killed at any time.
    """
    settings = settings_of(
        call,
        directory,
        warehouse,
        format,
        batch_events,
        quarantine,
        shared=shared,
        content=content,
        keep_days=keep_days,
        keep_runs=keep_runs,
    )
    with needs_the_extra():
        from relaymesh.pipeline.runs.idle import run_if_idle
        from relaymesh.pipeline.tables.store import TableStore

        record = run_if_idle(settings)
    if record is not None:
        _tell(call, TableStore.open(settings.warehouse), record)
        return
    with pipeline_of(call, settings, master, remote) as pipeline:
        _tell(call, pipeline.store, pipeline.run())


@app.command("follow")
@plain_command
def follow(
    call: Call,
    every: Annotated[
        float, typer.Option("--every", min=1, metavar="SECONDS", help="Time between publishes.")
    ] = 30.0,
    directory: Dirs = None,
    warehouse: Warehouse = None,
    shared: Shared = None,
    master: Master = None,
    remote: Remote = None,
    format: Format = "parquet",
    batch_events: BatchEvents = None,
    quarantine: Quarantine = "fail",
    content: ContentOption = None,
    keep_days: KeepDays = None,
    keep_runs: KeepRuns = 3,
) -> None:
    """Read events as they come, and publish every few seconds, until Ctrl-C."""
    settings = settings_of(
        call,
        directory,
        warehouse,
        format,
        batch_events,
        quarantine,
        publish_every_s=every,
        shared=shared,
        content=content,
        keep_days=keep_days,
        keep_runs=keep_runs,
    )
    with pipeline_of(call, settings, master, remote, lasting=True) as pipeline:
        pipeline.follow(_stop_at_a_signal(), lambda record: _tell(call, pipeline.store, record))


@app.command("backfill")
@plain_command
def backfill(
    call: Call,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="First day, as 2026-03-01 (UTC).")],
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="Last day, included.")],
    directory: Dirs = None,
    warehouse: Warehouse = None,
    master: Master = None,
    remote: Remote = None,
    format: Format = "parquet",
) -> None:
    """Rebuild the tables of some days from bronze, and publish them. Idempotent."""
    days = _day(first, "--from"), _day(last, "--to")
    settings = settings_of(call, directory, warehouse, format)
    with pipeline_of(call, settings, master, remote) as pipeline:
        _tell(call, pipeline.store, pipeline.backfill(*days))


@app.command("compact")
@plain_command
def compact(
    call: Call,
    directory: Dirs = None,
    warehouse: Warehouse = None,
    master: Master = None,
    remote: Remote = None,
    format: Format = "parquet",
    content: ContentOption = None,
) -> None:
    """Merge small files. The rows do not change, and readers see all of them at any time.

    If bronze stores no content (any more), the content of earlier events is removed.
    """
    settings = settings_of(call, directory, warehouse, format, content=content)
    with pipeline_of(call, settings, master, remote) as pipeline:
        _tell(call, pipeline.store, pipeline.compact())


@app.command("status")
@plain_command
def status(
    call: Call,
    directory: Dirs = None,
    warehouse: Warehouse = None,
    runs: Annotated[int, typer.Option("--runs", min=1, metavar="N", help="Show the last N runs.")] = 5,
) -> None:
    """Say what is published, how far it is behind the journals, how the last runs ended. Needs no Spark."""
    with needs_the_extra():
        from relaymesh.pipeline.runs.status import status_of

    place = warehouse_of(directories_of(call, directory, exist=False), warehouse)
    found = status_of(place, last_runs=runs)
    if found.published is None and not found.runs:
        raise NotFound(f"no pipeline has run in {place}", hint="relaymesh pipeline run")
    _print_status(call, found)


@app.command("verify")
@plain_command
def verify(
    call: Call,
    directory: Dirs = None,
    warehouse: Warehouse = None,
) -> None:
    """Read every file of bronze and of the tables, and compare: with what was written, with the journals.

    Needs no Spark. Exit code 9: a file is missing or changed, or bronze lacks events of a journal.
    """
    place = warehouse_of(directories_of(call, directory, exist=False), warehouse)
    with needs_the_extra():
        from relaymesh.pipeline.runs.verify import verify_warehouse

        verified = verify_warehouse(place)
    fields = {name: getattr(verified, name) for name in verified.__struct_fields__ if name != "hint"}
    if call.output.json:
        call.output.object(
            fields | {"found": [{"path": each.path, "why": each.why} for each in verified.found]}
        )
    else:
        told = {"bytes": bytes_text(verified.bytes), "found": len(verified.found)}
        call.output.record(fields | told)
        for each in verified.found:
            call.output.line(str(each))
    if verified.found:
        raise CheckFailed(
            f"{len(verified.found)} findings, the first: {verified.found[0]}", hint=verified.hint
        )


# -- what a run is told


def directories_of(call: Call, given: list[Path] | None, *, exist: bool = True) -> list[Path]:
    calls = [Call(call.output, each) for each in given] if given else [call]
    return [each.existing() if exist else each.path for each in calls]


def warehouse_of(directories: list[Path], given: Path | None) -> Path:
    from relaymesh.pipeline.tables.warehouse_folder import folder_of

    return folder_of(given if given is not None else directories[0] / "tables", "the warehouse")


def settings_of(
    call: Call,
    directory: list[Path] | None,
    warehouse: Path | None,
    format: str,
    batch_events: int | None = None,
    quarantine: str = "fail",
    **more: Any,
) -> PipelineSettings:
    from relaymesh.pipeline.runs.settings import PipelineSettings

    directories = directories_of(call, directory)
    if batch_events is not None:
        more["batch_events"] = batch_events
    return PipelineSettings(
        directories=tuple(directories),
        warehouse=warehouse_of(directories, warehouse),
        format=format,
        quarantine=quarantine,
        **more,
    )


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageFailed(f"{option} {text!r} is no day", hint="write it as 2026-03-01") from None


def _stop_at_a_signal() -> threading.Event:
    """Set by Ctrl-C and by SIGTERM. Spark's own handler would cancel the publish that is under way."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in heeded((signal.SIGINT, signal.SIGTERM)):
        signal.signal(number, end)
    return stop


# -- the run


@contextmanager
def needs_the_extra() -> Iterator[None]:
    """What is missing becomes one line with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "relaymesh":
            raise
        raise InvalidSettings(
            f"the pipeline needs {missing}, which is not installed", hint=INSTALL
        ) from error


@contextmanager
def pipeline_of(
    call: Call, settings: PipelineSettings, master: str | None, remote: str | None, *, lasting: bool = False
) -> Iterator[Pipeline]:
    """A pipeline on a Spark session that ends with the command; what its checks found is an exit code.

    `lasting`: Spark is set for many events, whatever there are now.
    """
    with needs_the_extra():
        from relaymesh.pipeline.runs.failures import AuditFailed
        from relaymesh.pipeline.runs.pipeline import Pipeline
        from relaymesh.pipeline.runs.session import events_in, session_settings
        from relaymesh.pipeline.spark import spark_session
        from relaymesh.pipeline.spark_failure import spark_failures
        from relaymesh.pipeline.tables.inspection import WarehouseDamaged

    with _watched(call) as observer:
        try:
            events = sys.maxsize if lasting else events_in(settings.directories)
            tuned = session_settings(events, master) if remote is None else {}
            with spark_failures():
                spark = spark_session(master=master, remote=remote, app="relaymesh pipeline", settings=tuned)
        except NotFound as error:  # no Java
            raise NotFound(error.message, hint=f"{error.hint}; or {INSTALL}, which carries one") from error
        try:
            yield Pipeline(spark, settings, observer=observer)
        except (AuditFailed, WarehouseDamaged) as error:
            raise CheckFailed(error.message, hint=error.hint) from error
        finally:
            spark.stop()


@contextmanager
def _watched(call: Call) -> Iterator[Observer]:
    """A progress bar on stderr, on a terminal only."""
    from relaymesh.pipeline.runs.stages import unobserved

    if call.output.json or not sys.stderr.isatty():
        yield unobserved
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)


class _Bar:
    """One line that says what the run is doing."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting Spark", total=None)

    def __call__(self, stage: Stage, detail: str, done: int, of: int) -> None:
        total = of if 0 < done < of else None
        self._progress.update(
            self._task, description=f"{stage.value}: {detail}", completed=done if total else 0, total=total
        )


def _tell(call: Call, store: TableStore, record: RunRecord) -> None:
    manifest = store.manifest()
    fields: dict[str, Any] = {
        "run_id": record.run_id,
        "status": record.status,
        "events": record.events,
        "days": record.days if call.output.json else len(record.days),
        "tables": 0 if manifest is None else len(manifest.tables),
        "rows": 0 if manifest is None else sum(table.rows for table in manifest.tables.values()),
    }
    if call.output.json:
        sums = None if manifest is None else manifest.reconciliation
        fields |= {"seconds": record.seconds, "reconciliation": sums, "expectations": record.expectations}
    else:
        fields["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in record.seconds.items())
    call.output.record(fields | {"warehouse": str(store.root)})
    for each in record.expectations:
        call.output.note(_unmet(each))


def _unmet(each: dict[str, Any]) -> str:
    of = f"{each['table']} ({each['column']})" if each.get("column") else each["table"]
    return f"{each['severity']}: {each['metric']} of {of} is {each['value']:g}"


# -- status

RUNS = [
    Column("run_id"),
    Column("kind"),
    Column("status"),
    Column("events", "number"),
    Column("days", "number", lambda days: str(len(days))),
    Column("error", "text"),
]
LAGS = [
    Column("path", "text"),
    Column("source", "text"),
    Column("synced", "number"),
    Column("not_in_bronze", "number"),
    Column("not_published", "number"),
    Column("seconds", "number", span_text, title="behind"),
]


def _print_status(call: Call, found: Status) -> None:
    import msgspec

    published = found.published
    fields: dict[str, Any] = {
        "warehouse": found.warehouse,
        "published": None if published is None else published.run_id,
        "published_at": None if published is None else published.ended_at,
        "tables": 0 if published is None else len(published.tables),
        "rows": 0 if published is None else sum(table.rows for table in published.tables.values()),
        "bytes": 0 if published is None else _size(published),
        "bronze_events": found.bronze_events,
        "bronze_files": found.bronze_files,
        "generation": found.generation,
        "content": found.content,
        "running": found.running,
    }
    if call.output.json:
        call.output.object(
            fields
            | {
                "reconciliation": None if published is None else published.reconciliation,
                "lags": msgspec.to_builtins(found.lags),
                "runs": msgspec.to_builtins(found.runs),
                "failed_expectations": found.failed_expectations,
            }
        )
        return
    call.output.record(fields | {"bytes": bytes_text(fields["bytes"])})
    call.output.line()
    call.output.rows(LAGS, msgspec.to_builtins(found.lags))
    call.output.line()
    call.output.rows(RUNS, msgspec.to_builtins(found.runs))
    for lag in found.lags:
        if lag.error:
            call.output.note(f"{lag.path} cannot be looked at: {lag.error}")
    for each in found.failed_expectations:
        call.output.note(_unmet(each))


def _size(published: Any) -> int:
    files = (file for table in published.tables.values() for part in table.parts for file in part.files)
    return sum(file.bytes for file in files)
