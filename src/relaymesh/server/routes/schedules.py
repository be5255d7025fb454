"""Schedules: put, look, pause, resume, remove."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from relaymesh.kernel.query import ListSchedules
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.schedules import Schedules, missing
from relaymesh.wire.api import (
    PutScheduleRequest,
    ScheduleBody,
    ScheduleRemovedAnswer,
    SchedulesAnswer,
    SchedulesQuery,
    schedule_body,
    schedule_summary,
    work_from,
)
from relaymesh.wire.schedules import PutSchedule

LISTING = {name: name for name in ("namespace", "limit", "cursor")}


async def put(exchange: Exchange) -> Reply:
    """Add a schedule. If one with the same fields exists, the answer is 200."""
    exchange.principal.require("write")
    request = await exchange.decode(PutScheduleRequest)
    schedules = _schedules(exchange)
    owner = schedules.owner(request.owner)
    exchange.acted_as({owner})
    workflow = None if request.workflow is UNSET else bytes(request.workflow)
    input = None if request.input is UNSET else bytes(request.input)
    work = work_from(workflow, input, request.message)
    stored = await schedules.put(
        PutSchedule(request.name, request.cron, work, owner, request.tz, request.missed, request.replace)
    )
    answer: ScheduleBody = schedule_body(stored.schedule, duplicate=stored.duplicate)
    return Reply(200 if stored.duplicate else 201, msgspec.json.encode(answer))


async def list_schedules(exchange: Exchange) -> SchedulesAnswer:
    """Schedules by name, without their documents, inputs and contents."""
    exchange.principal.require("read")
    query = exchange.query_into(SchedulesQuery, LISTING)
    asked = ListSchedules(query.namespace, query.limit + 1, query.cursor)
    async with exchange.account.long_work:
        views = await _schedules(exchange).all(asked)
    shown = views[: query.limit]
    last = shown[-1].schedule if len(views) > len(shown) else None
    cursor = None if last is None else f"{last.namespace}/{last.name}"
    return SchedulesAnswer(schedules=[schedule_summary(view) for view in shown], cursor=cursor)


async def show(exchange: Exchange) -> ScheduleBody:
    """A schedule with its work, the results of its last ticks, and why its tick waits if it does."""
    exchange.principal.require("read")
    name = exchange.parameters["name"]
    view = await _schedules(exchange).found(name)
    if view is None:
        raise missing(name[:128])
    return schedule_body(view)


async def pause(exchange: Exchange) -> ScheduleBody:
    """Pause a schedule: no tick runs until it is resumed."""
    exchange.principal.require("write")
    return schedule_body(await _schedules(exchange).hold(exchange.parameters["name"], paused=True))


async def resume(exchange: Exchange) -> ScheduleBody:
    """Resume a schedule at its next tick. Ticks during the pause do not run."""
    exchange.principal.require("write")
    return schedule_body(await _schedules(exchange).hold(exchange.parameters["name"], paused=False))


async def remove(exchange: Exchange) -> ScheduleRemovedAnswer:
    """Remove a schedule. Tasks that it started go on."""
    exchange.principal.require("write")
    return ScheduleRemovedAnswer(removed=await _schedules(exchange).remove(exchange.parameters["name"]))


def _schedules(exchange: Exchange) -> Schedules:
    return Schedules(exchange.served, exchange.principal, exchange.account)
