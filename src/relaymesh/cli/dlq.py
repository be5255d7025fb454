"""dlq: messages that were given up. Look at them, send them back, or remove them for good."""

from __future__ import annotations

import getpass
import logging
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import typer

from relaymesh.cli import options
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import parse_json
from relaymesh.cli.failure import Partial, UsageFailed
from relaymesh.cli.looking import look
from relaymesh.cli.messages import require_mailbox
from relaymesh.cli.moments import parse_since, span_text
from relaymesh.cli.options import Call
from relaymesh.cli.output import DIM, Output, Styled, json_text
from relaymesh.cli.table import Column, plain, short_address, short_id
from relaymesh.errors import MeshError, NotFound
from relaymesh.node.disk import RealDisk
from relaymesh.node.letter_reports import find_report
from relaymesh.sdk.letters import DeadLetter, Redriven, select
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.retention import require_report
from relaymesh.wire.letter_report import FindReport, report_text

app = typer.Typer(help="Dead letters: list, show, redrive, purge, report.")
audit = logging.getLogger("relaymesh.audit")

FILTER_WORDS = ("receiver", "sender", "reason", "code", "since")
REASONS = ("retries_exhausted", "not_retryable", "ttl_expired", "mailbox_full", "deferred_too_often")
SAMPLES = 3
PART_MIN = 4

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Message ids, or parts of ids that fit one message only."),
]
All = Annotated[bool, typer.Option("--all", help="Every pending dead letter.")]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="WORD=VALUE",
        help=f"Those that fit; WORD is {', '.join(FILTER_WORDS)}. May be given several times.",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="At most N, the oldest first.")
]

LETTERS = [
    Column("message_id", "id"),
    Column("receiver", "text", short_address),
    Column("reason", "text"),
    Column("code"),
    Column("attempts", "number"),
    Column("age", "number", span_text),
    Column("status"),
    Column("error", "text"),
]


@app.command("list")
@mesh_command
def list_letters(
    call: Call,
    receiver: Annotated[
        str | None, typer.Option("--receiver", metavar="NAME", help="Only those of this mailbox.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", metavar="NAME", help="Sent by this agent.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="REASON", help=f"Why it ended: {', '.join(REASONS)}.")
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="Error code of the last failure.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Not before: 30m, 2h, 7d, or a time.")
    ] = None,
    redriven: Annotated[bool, typer.Option("--redriven", help="Also those redriven already.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = 50,
) -> None:
    """List dead letters, the oldest first. Works beside a running process."""
    words = {"receiver": receiver, "sender": sender, "reason": reason, "code": code, "since": since}
    filters = _filters({word: value for word, value in words.items() if value is not None})
    with look(call) as seen:
        found = select(seen.letters(), status=None if redriven else "pending", **filters)
    found.sort(key=lambda letter: letter.dead_sequence)
    call.output.rows(
        LETTERS, (_row(letter, seen.now) for letter in found[:limit]), empty="no dead letters: nothing to do"
    )
    if len(found) > limit:
        call.output.note(f"{len(found) - limit} more: raise --limit, or narrow it down")


def _row(letter: DeadLetter, now_ms: int) -> dict[str, Any]:
    return {
        "message_id": letter.message_id,
        "receiver": letter.receiver,
        "reason": letter.reason,
        "code": letter.code,
        "attempts": letter.attempts,
        "age": max(0, now_ms - letter.letter.at) / 1000,
        "status": letter.status,
        "error": letter.error,
    }


@app.command("show")
@mesh_command
def show_letter(
    call: Call,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="The message id, or a part that fits one message only.")
    ],
) -> None:
    """Show the original message and every attempt, with code, reason and stack trace."""
    with look(call) as seen:
        letters = select(seen.letters(), status=None)
    for letter in named(letters, [id]):
        if call.output.json:
            call.output.object(letter.as_json())
        else:
            _print_letter(call.output, letter)


def _print_letter(output: Output, letter: DeadLetter) -> None:
    fields = letter.as_json()
    message, failures = fields.pop("message"), fields.pop("failures")
    output.record(fields)
    output.line()
    output.line(Styled("message", DIM))
    for name, value in message.items():
        output.line(f"  {name}: {_flat(value)}")
    for failure in failures:
        output.line()
        output.line(Styled(f"attempt {failure['attempt']}", DIM), f"  {failure['at']}")
        output.line(f"  code: {failure['code']}")
        output.line(f"  reason: {plain(failure['reason'])}")
        for line in failure["stack_trace"].splitlines():
            output.line(f"  | {line}")
    output.line()


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


# -- redrive


@app.command("redrive")
@mesh_command
def redrive(
    call: Call,
    ids: Ids = None,
    all: All = False,
    filter: Filter = None,
    limit: Limit = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="To this agent instead of its own mailbox.")
    ] = None,
    edit: Annotated[
        str | None, typer.Option("--edit", metavar="JSON", help="With this content, under a new id.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.1, metavar="N", help="At most N a second.")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: options.Yes = False,
) -> None:
    """Send dead letters back to their mailbox, or to another agent. Repeating it changes nothing.

    Ids are redriven at once. With --all or --filter the count and some samples are shown first.
    """
    if edit is not None:
        parse_json(edit, "--edit")
    with call.mesh() as mesh:
        if to is not None:
            require_mailbox(mesh, mesh._names.agent(to, "recipient"))
        letters = _chosen(mesh, ids, all, filter, limit)
        if not ids and not dry_run and letters:
            _show_samples(call.output, "redrive", letters)
            confirm(f"redrive {_count(letters)}?", yes=yes)
        change = None if edit is None else msgspec.Raw(edit.encode())
        done: list[Redriven] = []
        try:
            for chunk in _paced(letters, rate, call.output, at_once=dry_run):
                done += mesh.redrive(chunk, to=to, edit=change, dry_run=dry_run)
        except MeshError as error:
            if not done:
                raise
            print_redriven(call, done, dry_run)
            raise Partial(
                f"{len(done)} of {_count(letters)} redriven, then: {error.code} {error.message}",
                hint=f"{error.hint}; the same command does the rest",
            ) from error
    print_redriven(call, done, dry_run)


REDRIVEN = [
    Column("message_id", "id"),
    Column("receiver", "text", short_address),
    Column("to", "text", short_address),
    Column("sequence", "number"),
    Column("redriven_as", "id"),
    Column("outcome"),
]


def print_redriven(call: Call, done: Sequence[Redriven], dry_run: bool) -> None:
    def row(each: Redriven) -> dict[str, Any]:
        outcome = "would be redriven" if dry_run else "redriven" if each.sequence else "was redriven before"
        return {
            "message_id": each.message_id,
            "receiver": each.receiver,
            "to": each.to,
            "sequence": each.sequence,
            "redriven_as": each.redriven_as,
            "outcome": outcome,
        }

    call.output.rows(REDRIVEN, map(row, done), empty="no dead letters fit: nothing to do")


def _paced(
    letters: Sequence[DeadLetter], rate: float, output: Output, *, at_once: bool
) -> Iterator[Sequence[DeadLetter]]:
    """Pieces of at most a tenth of a second's worth, not faster than the rate."""
    size = len(letters) if at_once else max(1, int(rate / 10))
    began = time.monotonic()
    progress = sys.stderr.isatty() and not output.json and len(letters) > rate
    for start in range(0, len(letters), max(1, size)):
        if not at_once:
            time.sleep(max(0.0, began + start / rate - time.monotonic()))
        yield letters[start : start + size]
        if progress:
            sys.stderr.write(f"\rredriven {min(start + size, len(letters))} of {len(letters)}")
            sys.stderr.flush()
    if progress:
        sys.stderr.write("\n")


# -- purge


@app.command("purge")
@mesh_command
def purge(
    call: Call,
    ids: Ids = None,
    all: All = False,
    filter: Filter = None,
    limit: Limit = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why you remove them; it is logged.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: options.Yes = False,
) -> None:
    """Remove dead letters for good. Shows the count and some samples first, and needs --reason."""
    _check_reason(reason, dry_run)
    with call.mesh() as mesh:
        letters = _chosen(mesh, ids, all, filter, limit)
        purged = 0
        if letters:
            _show_samples(call.output, "purge", letters)
        if letters and not dry_run:
            confirm(f"purge {_count(letters)} for good?", yes=yes)
            purged = mesh.purge_dead_letters(letters)
            _log_purge(letters, reason or "")
    call.output.record({"chosen": len(letters), "purged": purged, "dry_run": dry_run, "reason": reason})


def _check_reason(reason: str | None, dry_run: bool) -> None:
    if reason in REASONS:
        raise UsageFailed(
            f"--reason says why you purge; {reason!r} is a reason why messages died",
            hint=f"to choose by it: --filter reason={reason}",
        )
    if not dry_run and not (reason and reason.strip()):
        raise UsageFailed("a purge needs a reason: it is kept in the audit", hint="--reason TEXT")


def _log_purge(letters: Sequence[DeadLetter], reason: str) -> None:
    try:
        who = getpass.getuser()
    except (KeyError, OSError):
        who = "unknown"
    audit.warning("%s purged %s: %s", who, _count(letters), reason)


# -- the daily report


@app.command("report")
@mesh_command
def report(
    call: Call,
    day: Annotated[
        str | None,
        typer.Option("--day", metavar="YYYY-MM-DD", help="The report of this day (UTC); else the newest."),
    ] = None,
) -> None:
    """Show the daily report: dead letters by mailbox and reason, and what is new. Works beside a process."""
    if call.remote:
        with call.mesh() as mesh:
            found = mesh.dead_letter_report(day)
    else:
        asked = FindReport(day)
        found = require_report(find_report(RealDisk(call.existing()), asked.day), asked.day)
    if call.output.json:
        call.output.object(msgspec.to_builtins(found))
    else:
        call.output.text(report_text(found))


# -- choosing


def _chosen(
    mesh: Mesh, ids: list[str] | None, all: bool, filter: list[str] | None, limit: int | None
) -> list[DeadLetter]:
    """The letters that are meant. Naming none is an error: everything must be said."""
    ways = [bool(ids), all, bool(filter)]
    if sum(ways) != 1:
        raise UsageFailed(
            "say which dead letters: ids, --filter or --all" + (", one of them" if any(ways) else ""),
            hint="relaymesh dlq list shows what is there",
        )
    if ids:
        return named(mesh.dead_letters(status=None), ids)[:limit]
    words = dict(_split(word) for word in filter or ())
    letters = mesh.dead_letters(**_filters(words))
    letters.sort(key=lambda letter: letter.dead_sequence)
    return letters[:limit]


def named(letters: Sequence[DeadLetter], ids: Sequence[str]) -> list[DeadLetter]:
    """The letters of these ids: whole ones, or parts of ids that fit one message only."""
    chosen: dict[tuple[str, int], DeadLetter] = {}
    for id in ids:
        found = [letter for letter in letters if letter.message_id == id]
        if not found:
            part = _part(id)
            found = [letter for letter in letters if part and part.search(letter.message_id)]
        fitting = sorted({letter.message_id for letter in found})
        if not fitting:
            raise NotFound(
                f"there is no dead letter of message {id!r}",
                hint="relaymesh dlq list shows those that wait, dlq list --redriven the others too",
            )
        if len(fitting) > 1:
            raise UsageFailed(
                f"{id!r} fits {len(fitting)} messages", hint=f"more of the id, for example {fitting[0]}"
            )
        newest = {(letter.receiver, letter.message_id): letter for letter in found}
        chosen.update((letter.key, letter) for letter in newest.values())
    return list(chosen.values())


def _part(id: str) -> re.Pattern[str] | None:
    """What a part of an id fits, with `…` for what is left out; None for one that is too short to mean it."""
    pieces = id.split("…")
    if sum(map(len, pieces)) < PART_MIN:
        return None
    return re.compile(".*".join(map(re.escape, pieces)))


def _split(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or name not in FILTER_WORDS:
        raise UsageFailed(
            f"--filter {word!r} is not WORD=VALUE", hint=f"WORD is one of {', '.join(FILTER_WORDS)}"
        )
    return name, value


def _filters(words: dict[str, str]) -> dict[str, Any]:
    filters: dict[str, Any] = dict(words)
    if "since" in filters:
        filters["since"] = parse_since(filters["since"])
    return filters


def _show_samples(output: Output, verb: str, letters: Sequence[DeadLetter]) -> None:
    output.note(f"about to {verb} {_count(letters)}")
    for letter in letters[:SAMPLES]:
        error = f": {letter.error}" if letter.error else ""
        where = f"{short_id(letter.message_id)} in {short_address(letter.receiver)}"
        output.note(f"  {where}, {letter.reason}{error:.100}")
    if len(letters) > SAMPLES:
        output.note(f"  and {len(letters) - SAMPLES} more")


def _count(letters: Sequence[DeadLetter]) -> str:
    return f"{len(letters)} dead letter{'' if len(letters) == 1 else 's'}"
