"""journal: what happened, whether it reads back, and how much room it takes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import directory_command
from relaymesh.cli.failure import CheckFailed
from relaymesh.cli.moments import bytes_text
from relaymesh.cli.options import Call
from relaymesh.cli.output import json_text
from relaymesh.cli.set_aside import set_aside
from relaymesh.cli.table import Column, short_address
from relaymesh.errors import JournalDamaged, MeshError, NotFound
from relaymesh.journal import (
    FIRST_SEQUENCE,
    Comparison,
    Report,
    compare,
    list_segments,
    read_frames,
    restore_from,
    verify,
)
from relaymesh.journal.events import EventRows
from relaymesh.journal.layout import ARCHIVE, is_locked
from relaymesh.journal.payloads import read_payload
from relaymesh.journal.verify import UnreadableAt
from relaymesh.kernel.records import Accepted, Published
from relaymesh.node.disk import RealDisk
from relaymesh.wire.operations import operation_of
from relaymesh.wire.records import read_records

app = typer.Typer(help="The journal: read it, verify it, measure it, restore it from a mirror.")

LOOK_BACK = 200_000
"""Events read before --from, to learn the ids of messages that were accepted earlier."""
DAY_S = 86_400

EVENTS = [
    Column("sequence", "number"),
    Column("timestamp", show=lambda iso: iso[5:-1].replace("T", " ")),
    Column("operation"),
    Column("mailbox", "text", short_address),
    Column("retry_count", "number", title="retry"),
    Column("message_id", "id"),
]


@app.command("cat")
@directory_command
def cat(
    call: Call,
    start: Annotated[
        int, typer.Option("--from", min=0, metavar="SEQ", help="Begin with this sequence.")
    ] = FIRST_SEQUENCE,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after N events.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print the messages too.")] = False,
) -> None:
    """Print the journal, one row per event, as far as it is synced. Works beside a running process."""
    rows = islice(_events(call.existing(), start, full), limit)
    if full and not call.output.json:
        for row in rows:
            message = row.pop("message", None)
            call.output.line("  ".join(f"{name}={v}" for name, v in row.items() if v is not None))
            if message is not None:
                call.output.line(f"    {json_text(message)}")
        return
    call.output.rows(EVENTS, rows, empty="no events from there on")


def _events(path: Path, start: int, full: bool) -> Iterator[dict[str, Any]]:
    disk = RealDisk(path)
    frames = read_frames(disk, max(FIRST_SEQUENCE, start - LOOK_BACK))
    rows = EventRows(full=full, get=partial(read_payload, disk))
    return (row for row in rows.rows(frames) if row["sequence"] >= start)


@app.command("verify")
@directory_command
def verify_journal(
    call: Call,
    mirror: Annotated[
        Path | None, typer.Option("--mirror", metavar="PATH", help="Verify its mirror too, and compare.")
    ] = None,
) -> None:
    """Read every byte of the journal and say whether it reads back. Exit code 9 when something does not.

    With --mirror both directories are read, and compared frame by frame.
    """
    if mirror is not None:
        _verify_both(call, _existing_mirror(mirror))
        return
    report = verify(RealDisk(call.existing()), records=True)
    call.output.record(report_fields(report, nested=call.output.json))
    if report.damage:
        raise CheckFailed(
            _damage_text("the journal", report), hint="restore the named files from a copy; delete nothing"
        )
    if report.unreadable:
        raise CheckFailed(unreadable_text(report), hint=SET_ASIDE_HINT)


SET_ASIDE_HINT = "relaymesh journal set-aside --all shows each one and what it named"


def unreadable_text(report: Report) -> str:
    """How many records stop a start, and the first of them."""
    bad = report.unreadable
    line = bad[0].line
    many = "1 record" if len(bad) == 1 else f"{len(bad)} records"
    return (
        f"{many} cannot be read, first operation {line.operation} at sequence {line.sequence}"
        f" in {line.segment} at offset {line.offset}"
    )


def _damage_text(what: str, report: Report) -> str:
    first = report.damage[0]
    places = "1 place" if len(report.damage) == 1 else f"{len(report.damage)} places"
    return f"{what} is damaged in {places}, first in {first.segment} at offset {first.offset}"


def _existing_mirror(path: Path) -> Path:
    if not (path / "journal").is_dir():
        raise NotFound(f"there is no journal in {path}", hint="name the directory that is the mirror")
    return path


def _verify_both(call: options.Call, mirror: Path) -> None:
    disk = RealDisk(call.existing())
    found = compare(disk, RealDisk(mirror), records=True)
    call.output.record(_comparison_fields(found, nested=call.output.json))
    if found.primary.unreadable:
        raise CheckFailed(unreadable_text(found.primary), hint=SET_ASIDE_HINT)
    waiting = found.behind and is_locked(disk)  # its node runs: what is missing may be on its way
    if found.whole == "both" or (waiting and found.whole == "the data directory" and not found.mirror.damage):
        return
    raise CheckFailed(_why_not_both(found), hint=_way_out(found, disk.root, mirror))


def _why_not_both(found: Comparison) -> str:
    reasons = []
    if found.primary.damage:
        reasons.append(_damage_text("the data directory", found.primary))
    if found.mirror.damage:
        reasons.append(_damage_text("the mirror", found.mirror))
    if found.behind:
        reasons.append(f"the mirror lacks {found.behind} acknowledged events")
    if found.ahead:
        reasons.append(f"the data directory lacks {found.ahead} acknowledged events")
    if not reasons and found.differences:
        first = found.differences[0]
        reasons.append(f"they differ in {first.file} at offset {first.offset}: {first.why}")
    return "; ".join(reasons)


def _way_out(found: Comparison, root: Path, mirror: Path) -> str:
    if found.whole == "the mirror":
        return f"relaymesh journal restore --from {quote(str(mirror))} --dir {quote(str(root))}"
    if found.whole == "the data directory":
        return "move the mirror away: the next start fills it anew; or, if it is only behind, start the node"
    return "keep both as they are; the report names what still reads back"


def _comparison_fields(found: Comparison, *, nested: bool) -> dict[str, Any]:
    counts = {"whole": found.whole, "behind": found.behind, "ahead": found.ahead}
    sides = {"primary": found.primary, "mirror": found.mirror}
    if nested:
        differences = [{"file": x.file, "offset": x.offset, "why": x.why} for x in found.differences]
        reports = {name: report_fields(report, nested=True) for name, report in sides.items()}
        return counts | reports | {"differences": differences}
    told: dict[str, Any] = dict(counts)
    for name, report in sides.items():
        fields = report_fields(report, nested=False)
        told[name] = f"{fields['result']}, {report.events} events in {report.segments} segments"
        if report.damage:
            told[f"{name}_damage"] = fields["damage"]
    told["differences"] = "; ".join(f"{x.file} at {x.offset}: {x.why}" for x in found.differences) or "none"
    return told


@app.command("restore")
@directory_command
def restore(
    call: Call,
    mirror: Annotated[Path, typer.Option("--from", metavar="MIRROR", help="The mirror to restore from.")],
    yes: options.Yes = False,
) -> None:
    """Rebuild the data directory from a mirror. Old files are set aside in it, not deleted.

    The mirror is verified first. Asks, or needs --yes, when the directory may hold what the mirror lacks.
    """
    source = RealDisk(_existing_mirror(mirror))
    if call.path.resolve() == mirror.resolve():
        raise NotFound("the data directory and the mirror are the same directory", hint="name both")
    aside = f"set-aside-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    try:
        done = restore_from(source, RealDisk(call.path), aside, lambda why: confirm(f"{why} Go on?", yes=yes))
    except JournalDamaged as error:
        raise _not_from(mirror, error) from error
    call.output.record(
        {
            "restored": str(call.path),
            "from": str(mirror),
            "events": done.report.events,
            "next_sequence": done.report.next_sequence,
            "segments": done.report.segments,
            "checkpoints": done.report.checkpoints,
            "bytes": done.bytes,
            "aside": str(call.path / done.aside) if done.aside else None,
        }
    )


def _not_from(mirror: Path, error: JournalDamaged) -> MeshError:
    return JournalDamaged(
        f"nothing is restored from {mirror}: {error.message}", hint="relaymesh journal verify --dir MIRROR"
    )


def report_fields(report: Report, *, nested: bool) -> dict[str, Any]:
    """The report's fields; for people, damage and torn tail as words."""
    torn, damage = report.torn_tail, report.damage
    fields: dict[str, Any] = {
        "result": "damaged" if damage else "unreadable" if report.unreadable else "ok",
        "segments": report.segments,
        "frames": report.frames,
        "events": report.events,
        "bytes": report.bytes,
        "first_sequence": report.first_sequence,
        "next_sequence": report.next_sequence,
        "checkpoints": report.checkpoints,
        "payloads": len(report.payloads),
        "set_aside": sum(each.record.count for each in report.set_aside),
    }
    if nested:
        torn_fields = None if torn is None else {name: getattr(torn, name) for name in torn.__slots__}
        return fields | {
            "torn_tail": torn_fields,
            "damage": [{name: getattr(each, name) for name in each.__slots__} for each in damage],
            "unreadable": [unreadable_fields(each) for each in report.unreadable],
        }
    aside = report.set_aside
    fields["set_aside"] = f"{len(aside)} records, {fields['set_aside']} events" if aside else "none"
    fields["torn_tail"] = (
        "none"
        if torn is None
        else f"{torn.segment} at {torn.offset}: {torn.bytes} bytes, promised to no caller ({torn.why})"
    )
    fields["damage"] = "; ".join(f"{x.segment} at {x.offset}: {x.why}" for x in damage) or "none"
    fields["unreadable"] = unreadable_text(report) if report.unreadable else "none"
    return fields


def unreadable_fields(found: UnreadableAt) -> dict[str, Any]:
    """Which record, where, and why it cannot be read."""
    line = found.line
    fields = {name: getattr(line, name) for name in ("sequence", "count", "operation", "segment", "offset")}
    return fields | {"record": line.record, "why": found.record.why}


app.command("set-aside")(set_aside)


@app.command("stat")
@directory_command
def stat(
    call: Call,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="MSG_PER_S", help="Messages a second to plan for.")
    ] = 100,
) -> None:
    """Say how large the journal is, what is in it, and how fast it grows at a given rate."""
    disk = RealDisk(call.existing())
    operations: Counter[str] = Counter()
    frame_bytes = messages = first_ns = last_ns = 0
    for frame in read_frames(disk):
        frame_bytes += frame.end - frame.offset
        first_ns, last_ns = first_ns or frame.written_at_ns, frame.written_at_ns
        for record in read_records(frame.payload):
            operations[operation_of(record)] += record.count
            if isinstance(record, (Accepted, Published)):
                messages += record.count
    segments = list_segments(disk)
    per_message = frame_bytes / messages if messages else None
    per_day = None if per_message is None else per_message * rate * DAY_S
    fields: dict[str, Any] = {
        "segments": len(segments),
        "archived": sum(segment.folder == ARCHIVE for segment in segments),
        "bytes": frame_bytes,
        "bytes_on_disk": _size_on_disk(disk.root),
        "events": sum(operations.values()),
        "operations": dict(operations.most_common()),
        "messages": messages,
        "bytes_per_message": None if per_message is None else round(per_message, 1),
        "span_s": (last_ns - first_ns) / 1e9,
        "idle_s": max(0.0, time.time() - last_ns / 1e9) if last_ns else None,
        "rate": rate,
        "gb_per_day": None if per_day is None else round(per_day / 1e9, 3),
    }
    if not call.output.json:
        counts = ", ".join(f"{name} {count}" for name, count in operations.most_common())
        fields |= {"operations": counts, "bytes": bytes_text(frame_bytes)}
        fields |= {"bytes_on_disk": bytes_text(_size_on_disk(disk.root)), "rate": f"{rate:g} messages/s"}
        fields |= {name: round(fields[name], 1) for name in ("span_s", "idle_s") if fields[name] is not None}
    call.output.record(fields)


def _size_on_disk(root: Path) -> int:
    """Both folders of segments, with what is allocated ahead."""
    files = (file for folder in ("journal", ARCHIVE) for file in (root / folder).glob("*.rmj"))
    return sum(_allocated(file.stat()) for file in files)


def _allocated(found: os.stat_result) -> int:
    return found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
