"""The daily report of dead letters, as it stands in its files and as the API and the SDK show it."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import plain_text, shown
from relaymesh.kernel.request import Request

__all__ = ["FindReport", "LetterReport", "ReportGroup", "parse_day", "report_text"]


class ReportGroup(msgspec.Struct, frozen=True, rename="camel"):
    """The dead letters of one mailbox that died for one reason."""

    mailbox: str
    reason: str
    count: int
    new: int
    """Those that died since the report before."""
    bytes: int
    oldest: str
    """ISO 8601, mesh time."""
    newest: str
    examples: list[str]
    """Ids of some of these messages, the oldest first."""
    look: str
    """The command that lists them."""


class LetterReport(msgspec.Struct, frozen=True, rename="camel"):
    """The dead letters that waited for a decision when the report was written."""

    day: str
    """YYYY-MM-DD, in UTC."""
    at: str
    """When it was written: ISO 8601, mesh time."""
    total: int
    new: int
    groups: list[ReportGroup]
    through: int
    """Letters with a dead sequence below this one were counted."""
    since: str | None = None
    """The day of the report before; None: this is the first, and every letter is new."""


class FindReport(Request[LetterReport | None]):
    """The report of a day, or the newest one."""

    day: str | None = None

    def __post_init__(self) -> None:
        if self.day is not None:
            self.day = parse_day(self.day)


def parse_day(value: Any) -> str:
    """A day as YYYY-MM-DD."""
    text = plain_text(value, "day")
    try:
        if len(text) == 10 and text.isascii() and date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise InvalidValue(f"day must be a date, not {shown(text)}", hint="write it as 2026-11-18")


def report_text(report: LetterReport) -> str:
    """The report for people: a line for each mailbox and reason, and the command that looks further."""
    since = "this is the first report" if report.since is None else f"the report before is of {report.since}"
    lines = [
        f"Dead letters on {report.day}: {report.total} wait for a decision, {report.new} of them new",
        f"Written at {report.at}; {since}.",
    ]
    for group in report.groups:
        lines += [
            "",
            f"{group.mailbox}  {group.reason}: {group.count}, {group.new} new, {group.bytes} bytes",
            f"  oldest {group.oldest}, newest {group.newest}",
            f"  for example {', '.join(group.examples)}",
            f"  {group.look}",
        ]
    return "".join([_printable(line) + "\n" for line in lines])


def _printable(line: str) -> str:
    """Ids and reasons were written by others: none of them may speak to a terminal."""
    return line if line.isprintable() else "".join([c if c.isprintable() else "\ufffd" for c in line])
