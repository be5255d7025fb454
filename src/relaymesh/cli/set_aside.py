"""journal set-aside: pass over records that cannot be read, without changing a byte of a segment."""

from __future__ import annotations

import getpass
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column, short_address
from relaymesh.errors import Conflict, DirectoryError
from relaymesh.journal import FIRST_SEQUENCE, Report, list_segments, read_frames, verify
from relaymesh.journal.aside import Aside, AsideLine, write_aside
from relaymesh.journal.layout import take_lock
from relaymesh.journal.verify import UnreadableAt
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import STORE_FILE, Replayed, newest_state, replay
from relaymesh.node.setting_aside import Fate, fates
from relaymesh.server.address import server_folder
from relaymesh.server.security.audit import AuditEvent, AuditFile
from relaymesh.server.security.limits import SecuritySettings

audit = logging.getLogger("relaymesh.audit")

FATES = [
    Column("sequence", "number"),
    Column("name", title="record"),
    Column("mailbox", "text", short_address),
    Column("message_sequence", "number", title="message"),
    Column("message_id", "id"),
    Column("fate", "text"),
]


@directory_command
def set_aside(
    call: Call,
    sequence: Annotated[
        int | None, typer.Option("--sequence", min=1, metavar="N", help="The record that begins there.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Every record that cannot be read.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the file and the audit log.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this they are only shown.")] = False,
) -> None:
    """Show records that cannot be read and each message they named; with --yes, set them aside.

    Needs the directory of a stopped node. Segments stay as they are: the file aside.jsonl lists what every
    reader skips. The sequences of such a record stay used.
    """
    if (sequence is None) != all:
        raise UsageFailed("say which records: --sequence N or --all, one of them")
    if yes and not (reason and reason.strip()):
        raise UsageFailed("setting records aside needs a reason", hint="--reason TEXT")
    path = call.existing()
    disk = RealDisk(path)
    lock = take_lock(disk)
    try:
        report = _verified(disk)
        chosen = _chosen(report, sequence)
        told, checkpoint = _told(disk, report, chosen)
        call.output.rows(FATES, map(asdict, told), empty="every record can be read: nothing to set aside")
        if chosen and not yes:
            call.output.note("nothing was changed; --yes --reason TEXT sets them aside")
        elif chosen:
            _set_aside(path, disk, report, chosen, checkpoint, reason or "")
            call.output.note(f"{len(chosen)} set aside; the next start skips them")
    finally:
        lock.release()


def _verified(disk: RealDisk) -> Report:
    report = verify(disk, records=True)
    if report.damage:
        raise report.damage[0].error()
    return report


def _chosen(report: Report, sequence: int | None) -> list[UnreadableAt]:
    bad = report.unreadable
    new = [each for each in bad if not each.record.known]
    if new:
        raise new[0].record.error(f"{new[0].line.segment} at offset {new[0].line.offset}")
    if sequence is None:
        return bad
    chosen = [each for each in bad if each.line.sequence == sequence]
    if not chosen:
        done = any(each.line.sequence == sequence for each in report.set_aside)
        why = "is set aside already" if done else "is no first sequence of a record that cannot be read"
        raise Conflict(
            f"sequence {sequence} {why}; nothing was changed", hint="relaymesh journal set-aside --all"
        )
    return chosen


def _told(disk: RealDisk, report: Report, chosen: Sequence[UnreadableAt]) -> tuple[list[Fate], int]:
    """What becomes of each message when these, and all others that stop a start, are set aside."""
    state = newest_state(disk)
    checkpoint = state.sequence
    trial = Aside([each.line for each in report.found])
    for _ in replay(state, read_frames(disk, checkpoint), trial):
        pass
    return list(fates(chosen, Replayed(state), checkpoint)), checkpoint


def _set_aside(
    path: Path,
    disk: RealDisk,
    report: Report,
    chosen: Sequence[UnreadableAt],
    checkpoint: int,
    reason: str,
) -> None:
    at, by = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), _user()
    lines = [msgspec.structs.replace(each.line, reason=reason, at=at, by=by) for each in chosen]
    kept = [] if report.aside is None else list(report.aside.lines.values())
    _sync_segments(disk, lines)
    if report.first_sequence == FIRST_SEQUENCE and any(line.sequence >= checkpoint for line in lines):
        _remove_store(path)  # it may hold what these records did; a start builds it anew
    write_aside(disk, Aside([*kept, *lines]))
    _audit(path, lines, by, reason)


def _sync_segments(disk: RealDisk, lines: Sequence[AsideLine]) -> None:
    """A record that is named must not be lost with the power: it may not have been synced."""
    named = {line.segment for line in lines}
    for segment in list_segments(disk):
        if segment.name.file in named:
            file = disk.open(segment.path)
            try:
                file.sync()
            except OSError as error:
                raise DirectoryError(f"{segment.path} cannot be synced: {error}") from error
            finally:
                file.close()


def _remove_store(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (path / f"{STORE_FILE}{suffix}").unlink(missing_ok=True)


def _audit(path: Path, lines: Sequence[AsideLine], by: str, reason: str) -> None:
    limits = SecuritySettings()
    now_ms = time.time_ns() // 1_000_000
    file = AuditFile(
        server_folder(path),
        bytes_max=limits.audit_bytes_max,
        files_max=limits.audit_files_max,
        now_ms=lambda: now_ms,
    )
    events = [
        AuditEvent(
            event="journal.set_aside",
            at=now_ms,
            label=by,
            detail=f"sequence {line.sequence}, {line.count} of operation {line.operation}: {reason}",
        )
        for line in lines
    ]
    try:
        file.write(events)
    except OSError as error:
        audit.warning("the audit log cannot be written: %s", error)
    finally:
        file.close()
    audit.warning("%s set %d records aside: %s", by, len(lines), reason)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
