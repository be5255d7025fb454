"""Requests about schedules to the node."""

from __future__ import annotations

from typing import get_args

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX, BYTES_MAX, flag, one_of, shown, text, whole
from relaymesh.kernel.request import Request
from relaymesh.kernel.schedules.commands import TZ_LENGTH_MAX, ScheduleStored, cron_text, schedule_name
from relaymesh.kernel.schedules.schedule import Missed, ScheduleView, Work

__all__ = ["HoldSchedule", "OfSchedules", "PutSchedule"]


class PutSchedule(Request[ScheduleStored]):
    """Keep a schedule: `work` begins at each tick of `cron` in the time zone `tz`. The node checks all of it.

    The document of its workflow is JSON, or empty for a stored one. The namespace is that of the owner.
    """

    name: str
    cron: str
    work: Work
    owner: str
    tz: str = "UTC"
    missed: Missed = "one"
    replace: bool = False
    budget: int = 0

    def __post_init__(self) -> None:
        self.name = schedule_name(self.name)
        self.cron = cron_text(self.cron)
        if self.work.__class__ is not Work:
            raise InvalidValue(f"the work of a schedule must be a Work, not {shown(self.work)}")
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)
        self.tz = text(self.tz, "tz", 1, TZ_LENGTH_MAX)
        one_of(self.missed, "missed", get_args(Missed))
        flag(self.replace, "replace")
        self.budget = whole(self.budget, "budget", 0, BYTES_MAX)


class HoldSchedule(Request[ScheduleView]):
    """Pause a schedule, or resume it: it then waits for the next tick. Raises `NotFound` if there is none."""

    namespace: str
    name: str
    paused: bool
    by: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = schedule_name(self.name)
        flag(self.paused, "paused")
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


OfSchedules = PutSchedule | HoldSchedule
"""Requests that the node answers: the kernel knows no calendar."""
