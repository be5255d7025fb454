"""purge: remove what is old, by policy: what is done, and what is dead. Of a mesh, or of a file bus.

Without --yes nothing changes. Of a directory that no process has, the preview reads the files alone: it
does not open the mesh, whose start would have effects of its own.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.looking import look_into
from relaymesh.cli.moments import bytes_text, parse_span
from relaymesh.cli.options import Call
from relaymesh.cli.output import Output, quiet
from relaymesh.cli.table import Column, short_address
from relaymesh.client.discovery import running_node
from relaymesh.errors import DirectoryInUse
from relaymesh.journal.layout import is_locked
from relaymesh.node.disk import RealDisk, RealLock
from relaymesh.node.opening import STORE_FILE
from relaymesh.node.purging import preview
from relaymesh.node.settings import DAYS_MAX, MeshSettings
from relaymesh.node.settings_file import SETTINGS_FILE
from relaymesh.node.tuning import Given, resolve
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.names import Names
from relaymesh.sdk.retention import PurgeReport, asked_preview, check_reason, report_of
from relaymesh.server.address import server_folder
from relaymesh.server.purging import BEGAN, EVENT
from relaymesh.server.security.audit import AuditEvent, AuditFile
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.wire.parameters import Parameters

if TYPE_CHECKING:
    from relaymesh.gateways.filebus.retention import OldFiles

DONE, DEAD = "--done-older-than", "--dead-older-than"
KEEP_ALL = MeshSettings(
    archive_days=DAYS_MAX, done_retention_days=DAYS_MAX, dead_letter_days=DAYS_MAX, report_days=DAYS_MAX
)
"""A mesh that is opened to be purged removes nothing by itself: only what was asked for."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a purge is asked to remove. An age that is None: nothing of that sort."""

    done: timedelta | None = None
    dead: timedelta | None = None
    mailbox: str | None = None
    including_steps: bool = False

    def ages(self, done_days: float, dead_days: float) -> Policy:
        """These ages, where none was given."""
        if self.done is None and self.dead is None:
            return replace(self, done=timedelta(days=done_days), dead=timedelta(days=dead_days))
        return self

    def __str__(self) -> str:
        """In words, for the audit log."""
        ages = (("done", self.done), ("dead", self.dead))
        words = [f"{name} older than {age}" for name, age in ages if age is not None]
        words += ["including steps"] if self.including_steps else []
        words += [] if self.mailbox is None else [f"only {self.mailbox}"]
        return ", ".join(words)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _where(address: str | None) -> str:
    return "" if address is None else short_address(address)


ROWS = [
    Column("kind"),
    Column("mailbox", "text", _where),
    Column("count", "number"),
    Column("bytes", "number", bytes_text),
    Column("oldest", show=_time),
    Column("newest", show=_time),
]


@mesh_command
def purge(
    call: Call,
    done_older_than: Annotated[
        str | None, typer.Option(DONE, metavar="AGE", help="Settled or ended longer ago than this: 7d, 12h.")
    ] = None,
    dead_older_than: Annotated[
        str | None, typer.Option(DEAD, metavar="AGE", help="Dead letters older than this: 30d.")
    ] = None,
    mailbox: Annotated[
        str | None, typer.Option("--mailbox", metavar="NAME", help="Only what belongs to this mailbox.")
    ] = None,
    including_steps: Annotated[
        bool, typer.Option("--including-steps", help="Also dead letters of waiting steps: these steps fail.")
    ] = False,
    bus: Annotated[
        Path | None,
        typer.Option("--bus", metavar="DIR", help="Purge the files of this bus instead of a mesh."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed: the default.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this it is only shown.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why you remove it; kept in the audit log.")
    ] = None,
) -> None:
    """Show old messages and tasks; with --yes and --reason, remove them. Live ones are never removed.

    Without ages: done for more than 7 days and dead for more than 30, or the retention of the node. With
    one age, only that. Dead letters are archived first.
    """
    done = None if done_older_than is None else parse_span(done_older_than, DONE)
    dead = None if dead_older_than is None else parse_span(dead_older_than, DEAD)
    policy = Policy(done, dead, mailbox, including_steps)
    if yes and dry_run:
        raise UsageFailed("--yes removes and --dry-run only shows", hint="leave out one of them")
    if yes:
        _check_reason(reason)
    if bus is not None:
        _require_no_mesh(call, policy)
        _purge_bus(call.output, bus, policy, reason if yes else None)
        return
    report = _purge(call, policy, reason if yes else None)
    _print(call.output, report, reason if yes else None, including_steps)


def _check_reason(reason: str | None) -> None:
    if not (reason and reason.strip()):
        raise UsageFailed("a purge needs a reason: it is kept in the audit log", hint="--reason TEXT")
    check_reason(reason)


# -- of a mesh


def _purge(call: Call, policy: Policy, reason: str | None) -> PurgeReport:
    """Through the node, if there is one; of the files, to look; with the directory open, to remove."""
    if call.remote or _is_served(call.existing()):
        with call.mesh() as mesh:
            return _ask(mesh, policy, reason)
    path, defaults = call.existing(), MeshSettings()
    values = resolve(Given(environment=os.environ), path / SETTINGS_FILE).values
    policy = policy.ages(values.done_retention_days, defaults.dead_letter_days)
    if reason is None:
        return _look(path, policy, values)
    with Mesh(path, settings=KEEP_ALL) as mesh:
        _audit(server_folder(path), BEGAN, f"asked to purge: {reason}; {policy}")
        report = _ask(mesh, policy, reason)
        _audit(server_folder(path), EVENT, f"removed {_counts(report.purged)}: {reason}; {policy}")
    return report


def _ask(mesh: Mesh, policy: Policy, reason: str | None) -> PurgeReport:
    with quiet("relaymesh.audit"):
        return mesh.purge(
            done_older_than=policy.done,
            dead_older_than=policy.dead,
            mailbox=policy.mailbox,
            including_steps=policy.including_steps,
            dry_run=reason is None,
            reason=reason,
        )


def _is_served(path: Path) -> bool:
    return is_locked(RealDisk(path)) and running_node(path) is not None


def _look(path: Path, policy: Policy, values: Parameters) -> PurgeReport:
    box = None if policy.mailbox is None else Names().mailbox(policy.mailbox)
    asked = asked_preview(policy.done, policy.dead, box, policy.including_steps)
    seen, store = look_into(path), path / STORE_FILE
    found = preview(asked, MeshSettings(), values, seen.now, seen.read, store if store.exists() else None)
    return report_of(found, None)


def _print(output: Output, report: PurgeReport, reason: str | None, including_steps: bool) -> None:
    rows = [{column.name: getattr(row, column.name) for column in ROWS} for row in report.rows]
    output.rows(ROWS, rows, empty="nothing is that old")
    fields = {
        "dry_run": report.dry_run,
        "count": sum([row.count for row in report.rows]),
        "bytes": sum([row.bytes for row in report.rows]),
        "waiting_letters": report.waiting_letters,
        "waiting_tasks": report.waiting_tasks,
        "purged": report.purged if output.json else _counts(report.purged),
        "reason": reason,
    }
    if output.json:
        output.object(fields)
    elif not report.dry_run:
        output.record({name: fields[name] for name in ("purged", "reason")})
    _tell_waiting(output, report, including_steps)
    if report.dry_run and report.rows:
        output.note("nothing was removed: add --yes --reason TEXT")


def _tell_waiting(output: Output, report: PurgeReport, including_steps: bool) -> None:
    if not report.waiting_letters:
        return
    what = f"{report.waiting_letters} dead letters are of steps that {report.waiting_tasks} tasks wait for"
    if not including_steps:
        output.note(f"{what}: they stay; --including-steps removes them, and the steps fail")
    else:
        output.note(f"{what}: the steps {'would fail' if report.dry_run else 'failed'}")


def _counts(counts: Mapping[str, int]) -> str:
    words = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count]
    return ", ".join(words) or "nothing"


# -- the audit log


def _audit(folder: Path, event: str, detail: str) -> None:
    """Written and synced before this returns. Raises `OSError`: without its line nothing is removed."""
    limits = SecuritySettings()
    now_ms = time.time_ns() // 1_000_000
    file = AuditFile(
        folder,
        bytes_max=limits.audit_bytes_max,
        files_max=limits.audit_files_max,
        now_ms=lambda: now_ms,
    )
    try:
        file.write([AuditEvent(event=event, at=now_ms, label=_user(), method="cli", detail=detail)])
    finally:
        file.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


# -- of a file bus


def _require_no_mesh(call: Call, policy: Policy) -> None:
    if policy.mailbox is not None or policy.including_steps:
        raise UsageFailed("--mailbox and --including-steps are for a mesh", hint="leave them out with --bus")
    if call.remote:
        raise UsageFailed("--bus is a directory here, and --url a node", hint="run it where the bus is")


def _purge_bus(output: Output, path: Path, policy: Policy, reason: str | None) -> None:
    from relaymesh.gateways.filebus import BusSettings
    from relaymesh.gateways.filebus.retention import purge_files, survey_files
    from relaymesh.gateways.filebus.tree import PRIVATE, Tree

    settings = BusSettings()
    policy = policy.ages(settings.done_retention_days, settings.dead_retention_days)
    now = time.time()
    done = None if policy.done is None else now - policy.done.total_seconds()
    dead = None if policy.dead is None else now - policy.dead.total_seconds()
    tree = Tree(path)
    try:
        rows = [_bus_row(row) for row in survey_files(tree, done, dead)]
        purged: dict[str, int] = {}
        if reason is not None:
            remove = partial(purge_files, tree, done, dead)
            purged = _audited(path / PRIVATE, policy, reason, remove)
    finally:
        tree.close()
    _print_bus(output, rows, purged, reason)


def _bus_row(row: OldFiles) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "place": row.place,
        "count": row.count,
        "bytes": row.bytes,
        "oldest": datetime.fromtimestamp(row.oldest, UTC),
        "newest": datetime.fromtimestamp(row.newest, UTC),
    }


def _audited(
    folder: Path, policy: Policy, reason: str, remove: Callable[[], dict[str, int]]
) -> dict[str, int]:
    """The audit log of a bus lies in its private folder. One purge at a time."""
    try:
        lock = RealLock(folder / "audit.lock")
    except BlockingIOError as error:
        raise DirectoryInUse(
            "another purge of this file bus is under way", hint="wait for it; then look again"
        ) from error
    try:
        _audit(folder, BEGAN, f"asked to purge: {reason}; {policy}")
        purged = remove()
        _audit(folder, EVENT, f"removed {_counts(purged)}: {reason}; {policy}")
    finally:
        lock.release()
    return purged


def _print_bus(
    output: Output, rows: Sequence[Mapping[str, Any]], purged: Mapping[str, int], reason: str | None
) -> None:
    columns = [
        Column("mailbox", "text", title="place") if column.name == "mailbox" else column for column in ROWS
    ]
    output.rows(columns, rows, empty="nothing is that old")
    if output.json:
        count, size = sum([row["count"] for row in rows]), sum([row["bytes"] for row in rows])
        output.object(
            {"dry_run": reason is None, "count": count, "bytes": size, "purged": purged, "reason": reason}
        )
    elif reason is not None:
        output.record({"purged": _counts(purged), "reason": reason})
    if reason is None and rows:
        output.note("nothing was removed: add --yes --reason TEXT")
