"""journal: what happened, whether it reads back, and how much room it takes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.events import EventRows, operation_of
from relaymesh.cli.failure import CheckFailed
from relaymesh.cli.moments import bytes_text
from relaymesh.cli.options import begin
from relaymesh.cli.output import json_text
from relaymesh.cli.table import Column, printable, short_address
from relaymesh.journal import FIRST_SEQUENCE, Report, list_segments, read_frames, verify
from relaymesh.journal.layout import ARCHIVE
from relaymesh.kernel.records import Accepted, Published
from relaymesh.node.disk import RealDisk
from relaymesh.wire.records import decode_records

app = typer.Typer(help="The journal: read it, verify it, measure it. Never changes it.")

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
def cat(
    context: typer.Context,
    start: Annotated[
        int, typer.Option("--from", min=0, metavar="SEQ", help="Begin with this sequence.")
    ] = FIRST_SEQUENCE,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after so many events.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print the messages too.")] = False,
    directory: options.Dir = None,
    json: options.Json = False,
) -> None:
    """Print the journal, one row per event, as far as it is synced. Works beside a running process."""
    call = begin(context, directory, json)
    rows = islice(_events(call.existing(), start, full), limit)
    if full and not call.output.json:
        for row in rows:
            message = row.pop("message", None)
            call.output.line(
                "  ".join(f"{name}={printable(str(v))}" for name, v in row.items() if v is not None)
            )
            if message is not None:
                call.output.line(f"    {printable(json_text(message))}")
        return
    call.output.rows(EVENTS, rows, empty="no events from there on")


def _events(path: Path, start: int, full: bool) -> Iterator[dict[str, Any]]:
    frames = read_frames(RealDisk(path), max(FIRST_SEQUENCE, start - LOOK_BACK))
    return (row for row in EventRows(full=full).rows(frames) if row["sequence"] >= start)


@app.command("verify")
def verify_journal(context: typer.Context, directory: options.Dir = None, json: options.Json = False) -> None:
    """Read every byte of the journal and say whether it reads back. Exit code 9 when something does not."""
    call = begin(context, directory, json)
    report = verify(RealDisk(call.existing()))
    call.output.record(report_fields(report, nested=call.output.json))
    if report.damage:
        first = report.damage[0]
        places = "1 place" if len(report.damage) == 1 else f"{len(report.damage)} places"
        raise CheckFailed(
            f"the journal is damaged in {places}, first in {first.segment} at offset {first.offset}",
            hint="restore the named files from a copy; delete nothing",
        )


def report_fields(report: Report, *, nested: bool) -> dict[str, Any]:
    """The report's fields; for people, damage and torn tail as words."""
    torn, damage = report.torn_tail, report.damage
    fields: dict[str, Any] = {
        "result": "damaged" if damage else "ok",
        "segments": report.segments,
        "frames": report.frames,
        "events": report.events,
        "bytes": report.bytes,
        "first_sequence": report.first_sequence,
        "next_sequence": report.next_sequence,
        "checkpoints": report.checkpoints,
    }
    if nested:
        torn_fields = None if torn is None else {name: getattr(torn, name) for name in torn.__slots__}
        return fields | {
            "torn_tail": torn_fields,
            "damage": [{name: getattr(each, name) for name in each.__slots__} for each in damage],
        }
    fields["torn_tail"] = (
        "none"
        if torn is None
        else f"{torn.segment} at {torn.offset}: {torn.bytes} bytes nobody was promised ({torn.why})"
    )
    fields["damage"] = "; ".join(f"{x.segment} at {x.offset}: {x.why}" for x in damage) or "none"
    return fields


@app.command("stat")
def stat(
    context: typer.Context,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="MSG_PER_S", help="Messages a second to plan for.")
    ] = 100,
    directory: options.Dir = None,
    json: options.Json = False,
) -> None:
    """Say how large the journal is, what is in it, and how fast it grows at a given rate."""
    call = begin(context, directory, json)
    disk = RealDisk(call.existing())
    operations: Counter[str] = Counter()
    frame_bytes = messages = first_ns = last_ns = 0
    for frame in read_frames(disk):
        frame_bytes += frame.end - frame.offset
        first_ns, last_ns = first_ns or frame.written_at_ns, frame.written_at_ns
        for record in decode_records(frame.payload):
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
