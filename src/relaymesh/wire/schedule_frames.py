"""Arguments of the calls about schedules; the others are in `relaymesh.wire.frames`."""

from __future__ import annotations

from relaymesh.kernel.schedules.schedule import Missed, Work
from relaymesh.wire.frames import Arguments

__all__ = ["FindSchedules", "HoldSchedule", "OfSchedule", "PutSchedule"]


class PutSchedule(Arguments):
    """The node stamps the owner as it stamps the sender of a message."""

    name: str
    cron: str
    work: Work
    tz: str = "UTC"
    missed: Missed = "one"
    replace: bool = False
    owner: str | None = None


class OfSchedule(Arguments):
    """`namespace`: the credential's."""

    schedule: str
    namespace: str | None = None


class HoldSchedule(Arguments):
    """Pause it, or resume it."""

    schedule: str
    paused: bool
    namespace: str | None = None


class FindSchedules(Arguments):
    """By name. `after`: only those behind this `namespace/name`."""

    namespace: str | None = None
    limit: int = 100
    after: str = ""
