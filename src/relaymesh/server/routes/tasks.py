"""Tasks: submit, look, wait for news, answer, signal, cancel, run again."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET

from relaymesh.errors import RateLimited
from relaymesh.kernel.tasks.commands import Submitted
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.server.exchange import Disconnected, Exchange, Reply
from relaymesh.server.tasks import Tasks, missing
from relaymesh.wire.api import (
    AnswerRequest,
    BudgetRequest,
    CancelRequest,
    RerunRequest,
    SignalledAnswer,
    SignalRequest,
    SubmitRequest,
    SubmittedAnswer,
    TaskBody,
    TaskQuery,
    TasksAnswer,
    TasksQuery,
    TaskStatusAnswer,
    TaskStoryAnswer,
    story_body,
    summary_body,
    task_body,
)
from relaymesh.wire.tasks import FindTask, FindTasks, RerunTask, SubmitTask, TellTask, WatchTask
from relaymesh.wire.usage import budget_micros

LISTING = {name: name for name in ("status", "workflow", "namespace", "limit", "cursor")}
LOOKING = {"wait": "wait", "seen": "seen"}


async def submit(exchange: Exchange) -> Reply:
    """Run a workflow. The same request runs once: a repeated submit is answered with the same task."""
    exchange.principal.require("write")
    request = await exchange.decode(SubmitRequest)
    tasks = _tasks(exchange)
    owner = tasks.owner(request.owner)
    exchange.acted_as({owner})
    given = b"null" if request.input is UNSET else bytes(request.input)
    submitted = await tasks.submit(
        SubmitTask(
            bytes(request.workflow),
            given,
            request.key,
            owner,
            request.trace,
            request.again,
            reply_to=tasks.reply_to(request.reply_to),
            notify=tuple(request.notify),
        )
    )
    return submitted_reply(submitted)


def submitted_reply(submitted: Submitted) -> Reply:
    answer = SubmittedAnswer(task=submitted.task, duplicate=submitted.duplicate, status=submitted.status)
    return Reply(200 if submitted.duplicate else 201, msgspec.json.encode(answer))


async def rerun(exchange: Exchange) -> Reply:
    """Run a task that has ended again from one step: this step and those that depend on it run again."""
    exchange.principal.require("write")
    request = await exchange.decode(RerunRequest)
    tasks = _tasks(exchange)
    owner = tasks.owner(request.owner)
    exchange.acted_as({owner})
    given = None if request.input is UNSET else bytes(request.input)
    asked = RerunTask(exchange.parameters["id"], request.from_step, given, owner)
    return submitted_reply(await tasks.rerun(asked))


async def list_tasks(exchange: Exchange) -> TasksAnswer:
    """Tasks of the credential's namespace, the newest first; `cursor` asks for those that follow."""
    exchange.principal.require("read")
    query = exchange.query_into(TasksQuery, LISTING)
    asked = FindTasks(query.namespace, query.status, query.workflow, query.limit + 1, query.cursor)
    async with exchange.account.long_work:
        views = await _tasks(exchange).listed(asked)
    shown = views[: query.limit]
    cursor = shown[-1].sequence if len(views) > len(shown) else None
    return TasksAnswer(tasks=[summary_body(view) for view in shown], cursor=cursor)


async def show(exchange: Exchange) -> TaskBody:
    """A task and its steps. `wait`: answer once it has changed since `seen`, has ended, or the time is
    over."""
    exchange.principal.require("read")
    query = exchange.query_into(TaskQuery, LOOKING)
    asked = WatchTask(exchange.parameters["id"], query.seen, query.wait)
    if query.wait and not exchange.served.stopping.is_set():
        shown = await _news(exchange, asked)
    else:
        shown = await _tasks(exchange).find(asked.task)
    if shown is None:
        raise missing(asked.task)
    return task_body(shown)


async def story(exchange: Exchange) -> TaskStoryAnswer:
    """Everything that happened to a task and its steps, as the journal has it, oldest first."""
    exchange.principal.require("read")
    task = TellTask(exchange.parameters["id"]).task
    async with exchange.account.long_work:
        told = await _tasks(exchange).story(task)
    if told is None:
        raise missing(task)
    return story_body(told)


async def cancel(exchange: Exchange) -> TaskStatusAnswer:
    """End a task. Running steps may finish; `hard`: their leases end too."""
    exchange.principal.require("write")
    task = FindTask(exchange.parameters["id"]).task
    request = await exchange.decode(CancelRequest)
    status = await _tasks(exchange).cancel(task, request.reason, hard=request.hard)
    return TaskStatusAnswer(task=task, status=status)


async def answer(exchange: Exchange) -> TaskStatusAnswer:
    """Answer the question of a step, as the agent that was asked. The first answer counts."""
    exchange.principal.require("agent")
    task, step = exchange.parameters["id"], exchange.parameters["step"]
    request = await exchange.decode(AnswerRequest)
    tasks = _tasks(exchange)
    by = tasks.answerer(request.from_)
    exchange.acted_as({by})
    status = await tasks.answer(task, step, bytes(request.value), by)
    return TaskStatusAnswer(task=task, status=status)


async def signal(exchange: Exchange) -> SignalledAnswer:
    """Signal a task: the step that waits for this name gets the value, now or when it waits."""
    exchange.principal.require("write")
    task = exchange.parameters["id"]
    request = await exchange.decode(SignalRequest)
    value = b"null" if request.value is UNSET else bytes(request.value)
    id, duplicate = await _tasks(exchange).signal(task, request.name, request.id, value)
    return SignalledAnswer(task=task, id=id, duplicate=duplicate)


async def set_budget(exchange: Exchange) -> TaskStatusAnswer:
    """Give a task another budget. With a larger one, a task that has used its budget goes on."""
    exchange.principal.require("write")
    task = exchange.parameters["id"]
    request = await exchange.decode(BudgetRequest)
    cost = None if request.cost_usd is None else budget_micros(request.cost_usd, "costUsd")
    status = await _tasks(exchange).set_budget(task, cost, request.tokens)
    return TaskStatusAnswer(task=task, status=status)


def _tasks(exchange: Exchange) -> Tasks:
    return Tasks(exchange.served, exchange.principal, exchange.account)


async def _news(exchange: Exchange, asked: WatchTask) -> TaskShown | None:
    """A long poll: it ends with the client, and with the node."""
    served = exchange.served
    if served.counts.polls >= served.settings.receive_waits_max:
        raise RateLimited(f"{served.counts.polls} long polls wait already", hint="watch over /v1/ws instead")
    await exchange.body()
    tasks = _tasks(exchange)
    served.counts.polls += 1
    watching = asyncio.ensure_future(tasks.find(asked.task, asked.seen, asked.wait_s))
    leaving = asyncio.ensure_future(exchange.disconnected())
    stopping = asyncio.ensure_future(served.stopping.wait())
    try:
        await asyncio.wait({watching, leaving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            return watching.result()
        if leaving.done():
            raise Disconnected
        return await tasks.find(asked.task)
    finally:
        served.counts.polls -= 1
        for task in (watching, leaving, stopping):
            task.cancel()
