"""Purging old messages, tasks and dead letters: from ages to a report of what was, or would be, removed."""

from __future__ import annotations

import getpass
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from relaymesh.errors import InvalidValue, NotFound
from relaymesh.kernel.bounds import flag, number, shown
from relaymesh.wire.envelope import when
from relaymesh.wire.letter_report import LetterReport
from relaymesh.wire.retention import (
    AGE_MS_MAX,
    PreviewPurge,
    Purge,
    PurgeCounts,
    PurgePreview,
    purge_text,
)

__all__ = [
    "Age",
    "PurgeReport",
    "PurgedRows",
    "asked_preview",
    "asked_purge",
    "check_reason",
    "log_purge",
    "report_of",
    "require_report",
]

Age = timedelta | float
"""A `timedelta`, or a number of seconds."""
audit = logging.getLogger("relaymesh.audit")


@dataclass(frozen=True)
class PurgedRows:
    """What is old of one kind: `messages`, `ids`, `tasks`, `steps`, `keys` or `dead_letters`. `mailbox`: the
    address, or the target of ids; None for kinds without a mailbox.
    """

    kind: str
    mailbox: str | None
    count: int
    bytes: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True)
class PurgeReport:
    """What is old, counted before anything was removed, and how much of each kind was removed.

    `waiting_letters`: old dead letters of steps that wait for a decision, in `waiting_tasks` tasks. They stay
    unless they were included; then their steps fail.
    """

    rows: list[PurgedRows]
    purged: dict[str, int]
    dry_run: bool
    waiting_letters: int
    waiting_tasks: int
    done_before: datetime | None
    dead_before: datetime | None


def asked_preview(
    done_older_than: Any, dead_older_than: Any, mailbox: str | None, including_steps: Any
) -> PreviewPurge:
    """The request for these ages."""
    flag(including_steps, "including_steps")
    done_ms, dead_ms = _ms(done_older_than, "done_older_than"), _ms(dead_older_than, "dead_older_than")
    return PreviewPurge(done_ms, dead_ms, mailbox, including_steps)


def asked_purge(
    preview: PurgePreview, reason: Any, mailbox: str | None, including_steps: bool, after: int = 0
) -> Purge:
    """The request that removes what a preview counted."""
    return Purge(reason, preview.done_before, preview.dead_before, mailbox, including_steps, after)


def check_reason(reason: Any) -> None:
    """Refuse a purge without a reason before anything is counted."""
    Purge("" if reason is None else reason, 0)


def report_of(preview: PurgePreview, counts: PurgeCounts | None) -> PurgeReport:
    """`counts` is None: nothing was removed, it was a dry run."""
    return PurgeReport(
        rows=[
            PurgedRows(row.kind, row.mailbox, row.count, row.bytes, when(row.oldest), when(row.newest))
            for row in preview.rows
        ],
        purged={} if counts is None else msgspec.structs.asdict(counts),
        dry_run=counts is None,
        waiting_letters=preview.waiting_letters,
        waiting_tasks=preview.waiting_tasks,
        done_before=None if preview.done_before is None else when(preview.done_before),
        dead_before=None if preview.dead_before is None else when(preview.dead_before),
    )


def log_purge(request: Purge, counts: PurgeCounts) -> None:
    """One line to the logger `relaymesh.audit`: who, what, why. A node also writes its audit log."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):
        who = "unknown"
    audit.warning("%s purged: %s", who, purge_text(request, counts))


def require_report(report: LetterReport | None, day: str | None) -> LetterReport:
    """Raises `NotFound` where there is none."""
    if report is None:
        raise NotFound(
            "there is no report of dead letters" + (f" of {day}" if day else ""),
            hint="a mesh with a directory writes one at its start and at midnight UTC",
        )
    return report


def _ms(age: Any, what: str) -> int | None:
    if age is None:
        return None
    seconds = age.total_seconds() if type(age) is timedelta else number(age)
    if seconds is None or not 0 <= seconds <= AGE_MS_MAX / 1000:
        raise InvalidValue(
            f"{what} must be a timedelta or a number of seconds from 0 to 100 years, not {shown(age)}"
        )
    return int(seconds * 1000)
