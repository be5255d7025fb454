"""doctor: look at everything a mesh stands on, and name the next command where something is wrong."""

from __future__ import annotations

import platform
import secrets
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import apsw

from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import CheckFailed, failure_of
from relaymesh.cli.journal import unreadable_text
from relaymesh.cli.looking import Look, look_into
from relaymesh.cli.moments import bytes_text, span_text
from relaymesh.cli.options import Call
from relaymesh.cli.output import GREEN, RED, YELLOW, Output, Styled, width_of
from relaymesh.errors import MeshError
from relaymesh.journal import JournalSettings, Report, read_owner, verify
from relaymesh.journal.checkpoint import list_checkpoints, read_checkpoint
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.layout import INCOMPLETE, LOCK, is_locked
from relaymesh.journal.standing import standing_of
from relaymesh.node.disk import RealDisk
from relaymesh.node.letter_reports import report_days
from relaymesh.node.mirroring import noted_mirror
from relaymesh.node.opening import STORE_FILE
from relaymesh.printable import printable
from relaymesh.store.connect import connect_reader, read_back
from relaymesh.store.queries import QUERIES
from relaymesh.store.schema import migrations

SYNCS = 60
SYNC_SECONDS_MAX = 1.0
SYNC_BYTES = 4096
TOO_FAST_MS = 0.02
TOO_SLOW_MS = 100.0
PYTHON_MIN = (3, 11)

Status = Literal["ok", "note", "fail"]
MARKS: dict[Status, tuple[str, str, str]] = {
    "ok": ("✓", "ok", GREEN),
    "note": ("!", "note", YELLOW),
    "fail": ("✗", "FAIL", RED),
}


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found; `next` is the command to run when it is not well."""

    name: str
    status: Status
    found: str
    next: str | None = None

    def fields(self) -> dict[str, Any]:
        return {"check": self.name, "status": self.status, "found": self.found, "next": self.next}


@dataclass(slots=True)
class Patient:
    """The directory that is looked at, and what earlier checks found there."""

    path: Path
    locked: bool = False
    report: Report | None = None
    seen: Look | None = None
    disk: RealDisk = field(init=False)

    def __post_init__(self) -> None:
        self.disk = RealDisk(self.path)


@directory_command
def doctor(call: Call) -> None:
    """Check Python, disk, journal, store and clocks. Exit code 9 when a check fails.

    Leaves nothing behind: a file is written and removed to measure how long this disk takes to sync.
    """
    failed: list[Check] = []
    for check in examine(call.path):
        _print(call.output, check)
        if check.status == "fail":
            failed.append(check)
    if failed:
        raise CheckFailed(
            f"{len(failed)} failed: {', '.join(check.name for check in failed)}",
            hint=next((check.next for check in failed if check.next), "see the report"),
        )


def _print(output: Output, check: Check) -> None:
    if output.json:
        output.object(check.fields())
        return
    mark, word, colour = MARKS[check.status]
    width = width_of(sys.stdout)
    head = f"{mark} {word:<4}  {check.name:<12}  "
    found = printable(check.found)
    lines = [found] if width is None else _wrapped(found, max(20, width - len(head)))
    output.line(Styled(head[:6], colour), head[6:] + lines[0])
    for line in lines[1:]:
        output.line(" " * len(head) + line)
    if check.next:
        output.line(" " * len(head) + f"next: {check.next}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def examine(path: Path) -> Iterator[Check]:
    """Every check in turn. One that cannot be made has failed; the others are made all the same."""
    patient = Patient(path)
    yield _python()
    yield _clocks()
    checks: list[tuple[str, Callable[[Patient], Check]]] = [("directory", _directory)]
    if path.is_dir():
        checks += [("disk", _disk), ("sync", _sync)]
    if (path / "journal").is_dir():
        checks += [
            ("lock", _lock),
            ("journal", _journal),
            ("mirror", _mirror),
            ("checkpoint", _checkpoint),
            ("replay", _replay),
            ("mesh time", _mesh_time),
            ("store", _store),
            ("integrity", _integrity),
            ("dead letters", _dead_letters),
        ]
    for name, check in checks:
        try:
            yield check(patient)
        except (MeshError, OSError, apsw.Error) as error:
            failure = failure_of(error)
            assert failure is not None
            yield Check(name, "fail", f"{failure.code}: {failure.message}", failure.hint or None)


# -- the machine


def _python() -> Check:
    found = f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.system()}"
    if sys.version_info < PYTHON_MIN:
        return Check("python", "fail", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def _clocks() -> Check:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return Check("clocks", "ok", "CLOCK_BOOTTIME counts suspended time; wall clock for the start only")
    return Check("clocks", "note", "no CLOCK_BOOTTIME here: time spent suspended is not counted")


def _directory(patient: Patient) -> Check:
    path = patient.path
    if not path.exists():
        return Check(
            "directory", "note", f"{path} does not exist yet", "relaymesh send NAME CONTENT --create"
        )
    probe = path / f"doctor-{secrets.token_hex(4)}.new"
    probe.write_bytes(b"")
    probe.unlink()
    if not (path / "journal").is_dir():
        return Check("directory", "note", f"{path} has no mesh yet", "relaymesh send NAME CONTENT --create")
    return Check("directory", "ok", f"{path} is writable")


def _disk(patient: Patient) -> Check:
    settings = JournalSettings()
    floor = settings.allocate_bytes + settings.checkpoint_reserve_bytes
    usage = shutil.disk_usage(patient.path)
    found = (
        f"{bytes_text(usage.free)} free of {bytes_text(usage.total)}; sends stop below {bytes_text(floor)}"
    )
    if usage.free < floor:
        return Check("disk", "fail", found, f"free space on the disk of {patient.path}")
    if usage.free < 10 * floor:
        return Check("disk", "note", found, "relaymesh journal stat")
    return Check("disk", "ok", found)


def _sync(patient: Patient) -> Check:
    """How long this disk takes to make a page durable: what every receipt waits for."""
    name = f"doctor-{secrets.token_hex(4)}.new"
    file = patient.disk.open(name, create=True)
    took: list[float] = []
    try:
        file.allocate(SYNCS * SYNC_BYTES)
        file.sync()
        began = time.perf_counter()
        for i in range(SYNCS):
            file.write_at(secrets.token_bytes(SYNC_BYTES), i * SYNC_BYTES)
            before = time.perf_counter()
            file.sync()
            took.append((time.perf_counter() - before) * 1000)
            if time.perf_counter() - began > SYNC_SECONDS_MAX:
                break
    finally:
        file.close()
        patient.disk.remove(name)
    took.sort()
    p50, p99 = took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.99))]
    found = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms over {len(took)} syncs"
    if p50 < TOO_FAST_MS:
        return Check("sync", "note", f"{found}: too fast to be a disk; does it keep data at power loss?")
    if p99 > TOO_SLOW_MS:
        return Check("sync", "note", f"{found}: each receipt waits for one; send in batches")
    return Check("sync", "ok", found)


# -- the mesh


def _lock(patient: Patient) -> Check:
    if not patient.disk.exists(LOCK):
        return Check("lock", "ok", "free: no process has opened it yet")
    patient.locked = is_locked(patient.disk)
    if patient.locked:
        pid = read_owner(patient.disk).get("pid", "unknown")
        return Check("lock", "ok", f"held by process {pid}: commands that write have to wait for it")
    return Check("lock", "ok", "free: commands that write can open it")


def _journal(patient: Patient) -> Check:
    report = patient.report = verify(patient.disk, records=True)
    found = f"{report.events} events in {report.segments} segments, {bytes_text(report.bytes)}"
    if report.payloads:
        size = sum(each.size for each in report.payloads.values())
        found = f"{found}, {len(report.payloads)} payload files, {bytes_text(size)}"
    if report.damage:
        first = report.damage[0]
        found = f"{len(report.damage)} damaged: {first.segment} at offset {first.offset}, {first.why}"
        return Check("journal", "fail", found, "relaymesh journal verify")
    if report.unreadable:
        return Check("journal", "fail", unreadable_text(report), "relaymesh journal set-aside --all")
    if report.torn_tail and not patient.locked:
        return Check(
            "journal",
            "note",
            f"{found}; a torn tail, for which no caller has a receipt, is dropped at the next start",
        )
    return Check("journal", "ok", f"{found}; every byte reads back")


def _mirror(patient: Patient) -> Check:
    """Where the mirror lies and how far it has come, by its names and its mark; verify reads it all."""
    noted = noted_mirror(patient.path, patient.disk)
    if noted is None:
        return Check("mirror", "ok", "none: this disk alone holds the journal")
    path, mode = noted
    words = mode.replace("_", " ")
    if not (path / "journal").is_dir():
        return Check("mirror", "fail", f"{words}: {path} is not there", f"mount {path}, and start the node")
    disk = RealDisk(path)
    if disk.exists(INCOMPLETE):
        return Check(
            "mirror",
            "note",
            f"{words}: {path} is incomplete: it is being filled, or its filling was interrupted",
            "start the node",
        )
    theirs, ours = standing_of(disk), standing_of(patient.disk)
    compare = f"relaymesh journal verify --mirror {quote(str(path))}"
    if theirs.acknowledged > ours.next_sequence:
        return Check("mirror", "fail", f"{words}: {path} holds more than this directory", compare)
    behind = max(0, ours.acknowledged - theirs.next_sequence)
    found = f"{words}: {path} is {f'{behind} events behind' if behind else 'in step'}"
    if path.stat().st_dev == patient.path.stat().st_dev:
        found = f"{found}, on the same disk: it dies with it"
        return Check("mirror", "note", found, "name a directory on another disk as the mirror")
    if behind and mode == "required" and not patient.locked:
        return Check("mirror", "note", f"{found}: the next start brings it in step", compare)
    return Check("mirror", "note" if behind else "ok", found, compare if behind else None)


def _checkpoint(patient: Patient) -> Check:
    end = patient.report.next_sequence if patient.report and patient.report.next_sequence else 0
    for sequence in list_checkpoints(patient.disk):
        try:
            checkpoint = read_checkpoint(patient.disk, sequence)
        except BadFrame:
            continue
        age = span_text(time.time() - checkpoint.created_at_ns / 1e9)
        return Check(
            "checkpoint", "ok", f"{age} old; a start replays {max(0, end - sequence)} events behind it"
        )
    return Check("checkpoint", "ok", f"none yet; a start replays {max(0, end - 1)} events")


def _replay(patient: Patient) -> Check:
    began = time.perf_counter()
    seen = patient.seen = look_into(patient.path)
    took = time.perf_counter() - began
    boxes = seen.mailboxes()
    pending = sum(box.pending for box in boxes.values())
    return Check("replay", "ok", f"{len(boxes)} mailboxes, {pending} pending, in {took * 1000:.0f} ms")


def _mesh_time(patient: Patient) -> Check:
    if patient.seen is None:
        return Check("mesh time", "note", "unknown: the journal could not be replayed")
    ahead = patient.seen.replayed.state.now / 1000 - time.time()
    if ahead > 5:
        found = f"the last record is {span_text(ahead)} ahead of the wall clock: mesh time goes on from there"
        return Check("mesh time", "note", found, "set the clock of this machine (timedatectl)")
    return Check("mesh time", "ok", f"the last record is {span_text(max(0.0, -ahead))} old")


def _store(patient: Patient) -> Check:
    path = patient.path / STORE_FILE
    if not path.exists():
        return Check("store", "note", "no store yet: the next start builds it", "relaymesh store rebuild")
    connection = connect_reader(path)
    try:
        applied = int(connection.execute(QUERIES["applied"]).get)
    finally:
        connection.close()
    end = patient.report.next_sequence if patient.report and patient.report.next_sequence else applied
    if applied > end and not patient.locked:
        found = f"it stands at {applied}, but the journal ends at {end}: it belongs to another journal"
        return Check("store", "fail", found, "relaymesh store rebuild")
    if applied < end and not patient.locked:
        return Check("store", "note", f"{end - applied} events behind the journal: the next start catches up")
    return Check("store", "ok", f"at {applied}, the journal at {end}")


def _integrity(patient: Patient) -> Check:
    path = patient.path / STORE_FILE
    if not path.exists():
        return Check("integrity", "note", "no store to look at")
    connection = connect_reader(path)
    try:
        words = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
        mode, version = read_back(connection, "journal_mode"), read_back(connection, "user_version")
    finally:
        connection.close()
    if words != ["ok"]:
        return Check("integrity", "fail", f"SQLite says: {'; '.join(words)}", "relaymesh store rebuild")
    wanted = migrations()[-1].number
    if mode != "wal" or version != wanted:
        found = f"journal_mode {mode} (wanted wal), schema {version} (wanted {wanted})"
        return Check("integrity", "fail", found, "relaymesh store rebuild")
    return Check("integrity", "ok", f"SQLite finds no fault; journal_mode wal, schema {version}")


def _dead_letters(patient: Patient) -> Check:
    if patient.seen is None:
        return Check("dead letters", "note", "unknown: the journal could not be replayed")
    count = patient.seen.replayed.state.letters.count
    days = report_days(patient.disk)
    report = f"dlq report has the report of {days[-1]}" if days else "there is no report yet"
    if count:
        return Check("dead letters", "note", f"{count} wait for a decision; {report}", "relaymesh dlq list")
    return Check("dead letters", "ok", f"none; {report}")
