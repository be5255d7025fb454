"""Requests that remove what is old: a preview, and the purge itself, part by part."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX, MOMENT_MS_MAX, flag, text, whole
from relaymesh.kernel.moment import iso
from relaymesh.kernel.request import Request

__all__ = [
    "AGE_MS_MAX",
    "DONE_PASSED",
    "REASON_LENGTH_MAX",
    "PreviewPurge",
    "Purge",
    "PurgeCounts",
    "PurgePart",
    "PurgePreview",
    "PurgeRow",
    "purge_text",
]

AGE_MS_MAX = 36_500 * 86_400_000
"""A hundred years, as for the settings in days."""
REASON_LENGTH_MAX = 160
"""The reason stands in a line of the audit log, which is cut at 300 characters."""
DONE_PASSED = 1 << 62
"""`after` when all that is done was looked at."""


class PurgeRow(msgspec.Struct, frozen=True):
    """What a purge removes of one kind: `messages`, `ids`, `tasks`, `steps`, `keys` or `dead_letters`.

    `mailbox`: an address, or the target of ids; None for kinds that belong to none. Times are mesh time, ms.
    Bytes of what is in the store's tables are about right.
    """

    kind: str
    mailbox: str | None
    count: int
    bytes: int
    oldest: int
    newest: int


class PurgePreview(msgspec.Struct, frozen=True):
    """What a purge would remove now. None: nothing of that sort was asked for."""

    rows: list[PurgeRow]
    done_before: int | None
    dead_before: int | None
    waiting_letters: int
    """Old dead letters of steps that wait for a decision about them."""
    waiting_tasks: int
    """The tasks of these steps. If their letters are removed, the steps fail."""


class PurgeCounts(msgspec.Struct, frozen=True):
    """How much was removed of each kind."""

    messages: int = 0
    ids: int = 0
    tasks: int = 0
    steps: int = 0
    keys: int = 0
    dead_letters: int = 0

    def plus(self, other: PurgeCounts) -> PurgeCounts:
        names = self.__struct_fields__
        return PurgeCounts(*[getattr(self, name) + getattr(other, name) for name in names])


class PurgePart(msgspec.Struct, frozen=True):
    """What one request removed. While `more`, ask again with this `after`."""

    counts: PurgeCounts
    after: int
    more: bool


class PreviewPurge(Request[PurgePreview]):
    """Count what is older than these ages (ms). Without any age: the retention that the node has itself.

    `mailbox`: messages, ids and dead letters of this one alone. Changes nothing.
    """

    done_ms: int | None = None
    dead_ms: int | None = None
    mailbox: str | None = None
    including_steps: bool = False

    def __post_init__(self) -> None:
        self.done_ms = _optional(self.done_ms, "done_ms", AGE_MS_MAX)
        self.dead_ms = _optional(self.dead_ms, "dead_ms", AGE_MS_MAX)
        self.mailbox = _mailbox(self.mailbox)
        self.including_steps = flag(self.including_steps, "including_steps")


class Purge(Request[PurgePart]):
    """Remove what was done, and what died, before these times (mesh time, ms), for about a second.

    Dead letters are archived first. Those of waiting steps stay unless `including_steps`.
    """

    reason: str
    done_before: int | None = None
    dead_before: int | None = None
    mailbox: str | None = None
    including_steps: bool = False
    after: int = 0

    def __post_init__(self) -> None:
        self.reason = text(self.reason, "reason", 0, REASON_LENGTH_MAX).strip()
        if not self.reason:
            raise InvalidValue("a purge needs a reason: it is kept in the audit log", hint="say why")
        self.done_before = _optional(self.done_before, "done_before", MOMENT_MS_MAX)
        self.dead_before = _optional(self.dead_before, "dead_before", MOMENT_MS_MAX)
        if self.done_before is None and self.dead_before is None:
            raise InvalidValue("a purge needs done_before or dead_before", hint="a preview names both")
        self.mailbox = _mailbox(self.mailbox)
        self.including_steps = flag(self.including_steps, "including_steps")
        self.after = whole(self.after, "after", 0, DONE_PASSED)


def purge_text(request: Purge, counts: PurgeCounts | None) -> str:
    """A purge in one line, for the audit log: what it removed, why, by which policy. No counts: it begins."""
    numbers = {} if counts is None else msgspec.structs.asdict(counts)
    removed = ", ".join([f"{count} {name.replace('_', ' ')}" for name, count in numbers.items() if count])
    what = "asked to purge" if counts is None else f"removed {removed or 'nothing'}"
    ages = ((request.done_before, "done"), (request.dead_before, "dead"))
    policy = [f"{name} before {iso(before)}" for before, name in ages if before is not None]
    if request.including_steps:
        policy.append("including steps")
    if request.mailbox is not None:
        policy.append(f"only {request.mailbox}")
    return f"{what}: {request.reason}; {', '.join(policy)}"


def _optional(value: Any, what: str, most: int) -> int | None:
    return None if value is None else whole(value, what, 0, most)


def _mailbox(value: Any) -> str | None:
    return None if value is None else text(value, "mailbox", 1, ADDRESS_LENGTH_MAX)
