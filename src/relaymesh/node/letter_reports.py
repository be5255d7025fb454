"""The daily report of dead letters: two files a day, made from what the kernel holds.

    reports/dead-letters-2026-11-18.json   for programs: see `wire/letter_report.py`
    reports/dead-letters-2026-11-18.txt    the same for people

A day has its report if its JSON file exists. So a node that was off at midnight writes it at its next start,
and a node that is started often writes it once. Which dead letters are new follows from the sequence that the
newest report reached, never from a clock.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import NamedTuple

import msgspec

from relaymesh.journal import Disk
from relaymesh.journal.layout import NEW, REPORTS
from relaymesh.kernel.aging import letter_mailboxes
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.looks import Looked
from relaymesh.kernel.moment import iso
from relaymesh.node.core import Core
from relaymesh.wire.letter_report import LetterReport, ReportGroup, report_text

__all__ = ["LetterReports", "find_report", "make_report", "report_days"]

log = logging.getLogger("relaymesh.node")

DAY_MS = 86_400_000
EXAMPLES = 3
REPORT_BYTES_MAX = 64_000_000
_NAME = re.compile(r"dead-letters-([0-9]{4}-[0-9]{2}-[0-9]{2})\.(?:json|txt)(?:\.new)?")


class LetterReports:
    """Writes the reports of one data directory. One thread at a time. `disk` is None: there are none."""

    def __init__(self, core: Core, disk: Disk | None, keep_days: float) -> None:
        self._core = core
        self._disk = disk
        self._keep_ms = int(keep_days * DAY_MS)

    def write_if_due(self) -> str | None:
        """Write the report of this day, unless there is one. Returns its name. Raises `OSError`."""
        if self._disk is None:
            return None
        day = day_of(self._core.time.wall_ns() // 1_000_000)
        self._drop_old()
        if self._disk.exists(_file(day, "json")):
            return None
        before = _furthest(self._disk)
        report = make_report(_letters(self._core), day, self._core.time.now(), before)
        self._disk.make_folder(REPORTS)
        self._disk.sync_folder("")
        write_whole(self._disk, _file(day, "txt"), report_text(report).encode("utf-8", "replace"))
        write_whole(self._disk, _file(day, "json"), msgspec.json.encode(report) + b"\n")
        log.info(
            "dead letters: %d wait, %d new since %s; see relaymesh dlq report",
            report.total,
            report.new,
            report.since or "the start",
        )
        return _file(day, "json")

    def _drop_old(self) -> None:
        """By mesh time: a wall clock that jumps ahead removes nothing."""
        assert self._disk is not None
        last = day_of(max(0, self._core.time.now() - self._keep_ms))
        for name in self._disk.list(REPORTS):
            match = _NAME.fullmatch(name)
            if match and (match[1] < last or name.endswith(NEW)):
                self._disk.remove(f"{REPORTS}/{name}")


class _Letters(NamedTuple):
    """Dead letters of the kernel, and the sequence they reach."""

    letters: list[DeadLetter]
    through: int


def _letters(core: Core) -> _Letters:
    """Read mailbox by mailbox: the core's lock is held for one mailbox at a time."""
    through = core.read(lambda kernel: kernel.state.sequence)
    found: list[DeadLetter] = []
    for mailbox in core.read(letter_mailboxes):
        found += core.read(partial(_of_mailbox, mailbox))
    return _Letters([letter for letter in found if letter.dead_sequence < through], through)


def _of_mailbox(mailbox: str, of: Looked) -> list[DeadLetter]:
    return list(of.state.letters.of(mailbox).letters.values())


def make_report(found: _Letters, day: str, now_ms: int, before: LetterReport | None) -> LetterReport:
    """The report of letters that wait; redriven ones do not."""
    reached = 0 if before is None else before.through
    groups: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in found.letters:
        if letter.status == "pending":
            groups.setdefault((letter.mailbox, letter.reason), []).append(letter)
    rows = [_group(name, groups[name], reached) for name in sorted(groups)]
    return LetterReport(
        day=day,
        at=iso(now_ms),
        total=sum([row.count for row in rows]),
        new=sum([row.new for row in rows]),
        groups=rows,
        through=found.through,
        since=None if before is None else before.day,
    )


def _group(name: tuple[str, str], letters: list[DeadLetter], reached: int) -> ReportGroup:
    mailbox, reason = name
    return ReportGroup(
        mailbox=mailbox,
        reason=reason,
        count=len(letters),
        new=sum([letter.dead_sequence >= reached for letter in letters]),
        bytes=sum([letter.size for letter in letters]),
        oldest=iso(letters[0].at),
        newest=iso(letters[-1].at),
        examples=[letter.envelope.id for letter in letters[:EXAMPLES]],
        look=f"relaymesh dlq list --receiver {quote(mailbox)} --reason {quote(reason)}",
    )


# -- files


def day_of(ms: int) -> str:
    """The UTC day of a moment."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


def report_days(disk: Disk) -> list[str]:
    """Days that have a report, the oldest first."""
    matches = [_NAME.fullmatch(name) for name in disk.list(REPORTS) if name.endswith(".json")]
    return [match[1] for match in matches if match]


def find_report(disk: Disk, day: str | None) -> LetterReport | None:
    """The report of a day, or the newest; None: there is none, or it cannot be read."""
    days = report_days(disk) if day is None else [day]
    return _read(disk, days[-1]) if days else None


def _furthest(disk: Disk) -> LetterReport | None:
    """The report that reached furthest: the newest, unless the clock was wrong. Of equal ones the last."""
    found: Iterable[LetterReport | None] = (_read(disk, day) for day in reversed(report_days(disk)[-3:]))
    return max(filter(None, found), key=lambda report: report.through, default=None)


def _read(disk: Disk, day: str) -> LetterReport | None:
    try:
        file = disk.open(_file(day, "json"), write=False)
        try:
            return msgspec.json.decode(file.read_at(0, REPORT_BYTES_MAX), type=LetterReport)
        finally:
            file.close()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _file(day: str, kind: str) -> str:
    return f"{REPORTS}/dead-letters-{day}.{kind}"


def write_whole(disk: Disk, name: str, data: bytes) -> None:
    """The whole file or none of it: written under another name, synced, renamed."""
    new = name + NEW
    try:
        file = disk.open(new, create=True)
        try:
            file.write_at(data, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(new, name)
    except OSError:
        if disk.exists(new):
            disk.remove(new)
        raise
    disk.sync_folder(name.rpartition("/")[0])
