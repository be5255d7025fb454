"""All other operations of a session, by name: `call{name, arguments}`.

| needs | calls |
|---|---|
| `agent` | deliver_due |
| `agent`, and the mailbox | open_mailbox, subscribe, unsubscribe, expect, unexpect, complete, ended_by |
| `agent`, and the mailbox | note_run |
| `agent`, and its own name | register, drain |
| `agent`, and the mailbox of the lease | finish_step, grow_step, fail_step, report_step |
| `agent`, and the mailbox of the lease | abandon, step_bounds |
| `agent`, and the agent that was asked | answer_step |
| `read` | dead_letters, letters, find_report; peek, unless the mailbox is the credential's |
| `read`, and its namespace | find_task, tell_task, watch_task, find_tasks, find_workflow, find_workflows |
| `write`, and its namespace | submit_task, cancel_task, signal_task, set_budget, rerun_task |
| `write`, and its namespace | put_workflow, remove_workflow |
| `read`, and its namespace | find_schedule, find_schedules |
| `write`, and its namespace | put_schedule, hold_schedule, remove_schedule |
| `read` or `agent` | stats: of an agent's own token, that agent's mailboxes alone |
| `write` | redrive, purge, reprioritise, set_breaker, force_delayed |
| any credential | show_settings |
| `admin` of every namespace | checkpoint, preview_purge, purge_old |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, NotFound, RateLimited
from relaymesh.kernel.bounds import COUNT_MAX
from relaymesh.kernel.commands import (
    Complete,
    Expect,
    ForceDelayed,
    OpenMailbox,
    PurgeDeadLetters,
    Redrive,
    Reprioritise,
    SetBreaker,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import (
    DeadLetters,
    FindLetters,
    ListSchedules,
    ListWorkflows,
)
from relaymesh.kernel.schedules.commands import ScheduleStored
from relaymesh.kernel.schedules.schedule import ScheduleView
from relaymesh.kernel.tasks.commands import Stored, Submitted
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.server.ended_attempts import ended_by
from relaymesh.server.pages import letter_size, letters_after, page, pending_page
from relaymesh.server.purging import find_report, preview_purge, purge_old
from relaymesh.server.routes.agents import handshake_ack
from relaymesh.server.schedules import Schedules
from relaymesh.server.tasks import Tasks
from relaymesh.server.tuning import show_settings
from relaymesh.server.workflows import Workflows
from relaymesh.server.ws import step_calls
from relaymesh.server.ws.operations import Operations
from relaymesh.wire import frames, schedule_frames
from relaymesh.wire.api import HandshakeAck
from relaymesh.wire.envelope import check_envelope
from relaymesh.wire.housekeeping import Checkpoint
from relaymesh.wire.letter_report import FindReport, LetterReport
from relaymesh.wire.retention import PreviewPurge, Purge, PurgePart, PurgePreview
from relaymesh.wire.schedules import PutSchedule
from relaymesh.wire.settings import SettingsShown
from relaymesh.wire.stats import MeshStats
from relaymesh.wire.tasks import (
    FindTask,
    FindTasks,
    PutWorkflow,
    RerunTask,
    SubmitTask,
    TaskStory,
    TellTask,
    WatchTask,
    notify_kinds,
)

NOTE_LENGTH_MAX = 500
EXPECTED_MAX = 10_000
"""Answers that one session may expect at a time."""


class Page(msgspec.Struct, frozen=True):
    """A part of a long list, and whether it goes on."""

    rows: list[Any]
    more: bool = False


async def _open_mailbox(on: Operations, given: frames.OpenMailbox) -> None:
    mailbox = on.mailbox(given.mailbox)
    may_reject = not on.principal.owner_of(mailbox)
    settings = on.served.opening(mailbox, given.settings)
    await on.served.session.execute(OpenMailbox(mailbox, settings, on.served.budget, may_reject))


async def _subscribe(on: Operations, given: frames.Subscribe) -> None:
    on.principal.require("agent")
    pattern = on.principal.pattern(given.pattern)
    mailbox = on.principal.subscription(given.pattern, given.name)
    on.principal.require_mailbox(mailbox)
    owner = on.principal.owner_of(mailbox)
    settings = on.served.roster.config.mailbox_settings(given.settings)
    await on.served.session.execute(
        Subscribe(pattern, mailbox, settings, owner, on.served.budget, may_reject=not owner)
    )


async def _unsubscribe(on: Operations, given: frames.OfMailbox) -> int:
    return await on.served.session.execute(Unsubscribe(on.mailbox(given.mailbox)))


async def _expect(on: Operations, given: frames.Correlation) -> None:
    """What is expected ends with the session at the latest."""
    mailbox = on.mailbox(given.mailbox)
    renewed = (mailbox, given.correlation_id) in on.session.expected
    if len(on.session.expected) >= EXPECTED_MAX and not renewed:
        raise RateLimited(
            f"{EXPECTED_MAX} answers are expected already",
            hint="wait until some of them are answered, or give some up with unexpect",
        )
    await on.served.session.execute(Expect(mailbox, given.correlation_id, on.served.budget))
    on.session.expected.add((mailbox, given.correlation_id))


async def _unexpect(on: Operations, given: frames.Correlation) -> None:
    mailbox = on.mailbox(given.mailbox)
    on.session.expected.discard((mailbox, given.correlation_id))
    await on.served.session.execute(Unexpect(mailbox, given.correlation_id))


async def _complete(on: Operations, given: frames.Complete) -> bool:
    return await on.served.session.execute(Complete(on.mailbox(given.mailbox), given.sequence))


async def _ended_by(on: Operations, given: frames.Attempts) -> list[bool]:
    for mailbox in {mailbox for mailbox, *_ in given.attempts}:
        on.mailbox(mailbox)
    return await asyncio.to_thread(ended_by, on.served, given.attempts)


async def _register(on: Operations, given: frames.Register) -> HandshakeAck:
    agent = on.mailbox(given.agent)
    registration = await on.served.roster.register(
        agent,
        on.served.now,
        role=given.role,
        capabilities=given.capabilities,
        protocol=given.protocol_version,
        metadata=given.metadata,
        settles=on.settles if given.settles is None else given.settles,
    )
    on.speaks_for(agent)
    return handshake_ack(on.served, agent, registration)


async def _drain(on: Operations, given: frames.OfAgent) -> None:
    await on.served.roster.drain(on.mailbox(given.agent))


# -- looking


async def _stats(on: Operations, given: frames.Nothing) -> MeshStats:  # noqa: ARG001 - takes nothing
    may_look = on.principal.may_look
    on.principal.require_looking()
    stats = await on.served.counting.stats()
    if on.principal.everywhere:
        return stats
    seen = {address: box for address, box in stats.mailboxes.items() if may_look(address)}
    kept = {payer: size for payer, size in stats.kept.items() if may_look(payer.split(" ")[-1])}
    dead_letters = sum(box.dead_letters for box in seen.values())
    return msgspec.structs.replace(stats, mailboxes=seen, dead_letters=dead_letters, kept=kept)


async def _peek(on: Operations, given: frames.Peek) -> Page:
    address = on.principal.mailbox(given.mailbox)
    if not on.principal.may_receive(address):
        on.principal.require("read")
    look = partial(pending_page, address, min(max(0, given.limit), COUNT_MAX), given.after)
    async with on.account.long_work:
        rows, more = on.served.node.core.read(look)
        await asyncio.sleep(0)
        return Page(await on.served.session.whole(rows), more)


async def _dead_letters(on: Operations, given: frames.LettersPage) -> Page:
    async with on.account.long_work:
        letters = await on.served.session.look(DeadLetters())
        seen = await letters_after(letters, given.after or (0, ""), on.principal.sees)
        rows, more = page(seen, letter_size)
        return Page(await on.served.session.whole(rows), more)


async def _letters(on: Operations, given: frames.Letters) -> Page:
    """The letters of these names, in their order; `more`: ask again for those that are left."""
    rows, more = page(await _named(on, given.letters), letter_size)
    return Page(await on.served.session.whole(rows), more)


async def _named(on: Operations, names: Sequence[tuple[str, int]]) -> list[DeadLetter]:
    found = []
    letters = await on.served.session.look(FindLetters(names))
    for name, letter in zip(names, letters, strict=True):
        if letter is None or not on.principal.sees(letter.mailbox):
            raise NotFound(
                f"there is no dead letter {name[1]} of {name[0]}", hint="the call dead_letters lists them"
            )
        found.append(letter)
    return found


# -- changing


async def _redrive(on: Operations, given: frames.Redrive) -> list[int | None]:
    letters = await _named(on, given.letters)
    to = None if given.to is None else on.principal.address(given.to, "recipient")
    edited = None if given.edited is None else _edited(on, letters, given.edited)
    return await on.served.session.execute(Redrive(given.letters, to, edited))


def _edited(
    on: Operations, letters: list[DeadLetter], edited: Sequence[Envelope | None]
) -> list[Envelope | None]:
    """What the client made of each letter's message: its content and id; the rest stays as it was."""
    if len(edited) != len(letters):
        raise InvalidEnvelope(f"{len(letters)} letters are named and {len(edited)} edited")
    made: list[Envelope | None] = []
    for letter, envelope in zip(letters, edited, strict=True):
        if envelope is None:
            made.append(None)
            continue
        # Only its content and its id are taken: the old message's own fields need not be sound today.
        check_envelope(msgspec.structs.replace(envelope, extra=None), on.served.session.payload_bytes_max)
        old = letter.envelope
        made.append(
            msgspec.structs.replace(
                old,
                id=envelope.id,
                content=envelope.content,
                encoding=envelope.encoding,
                origin=old.origin or old.id,
            )
        )
    return made


async def _purge(on: Operations, given: frames.Letters) -> int:
    await _named(on, given.letters)
    return await on.served.session.execute(PurgeDeadLetters(given.letters))


async def _reprioritise(on: Operations, given: frames.Reprioritise) -> int:
    ids = None if given.ids is None else frozenset(given.ids)
    if not 1 <= given.priority <= 5:
        raise InvalidEnvelope(f"priority must be 1 (first) to 5 (last), not {given.priority}")
    return await on.served.session.execute(Reprioritise(on.mailbox(given.mailbox), ids, given.priority))


async def _set_breaker(on: Operations, given: frames.SetBreaker) -> None:
    await on.served.session.execute(SetBreaker(on.mailbox(given.mailbox), given.open))


async def _force_delayed(on: Operations, given: frames.ForceDelayed) -> int:
    session = on.served.session
    if given.mailbox is not None:
        return await session.execute(ForceDelayed(on.mailbox(given.mailbox)))
    if on.principal.everywhere:
        return await session.execute(ForceDelayed())
    stats = await on.served.counting.stats()
    return sum(
        [
            await session.execute(ForceDelayed(address))
            for address, box in stats.mailboxes.items()
            if box.delayed and on.principal.sees(address)
        ]
    )


async def _deliver_due(on: Operations, given: frames.Nothing) -> int:  # noqa: ARG001 - takes nothing
    return await on.served.session.execute(Tick())


async def _checkpoint(on: Operations, given: frames.Nothing) -> int | None:  # noqa: ARG001 - takes nothing
    on.principal.require_everywhere()
    return await on.served.session.execute(Checkpoint())


async def _show_settings(on: Operations, given: frames.Nothing) -> SettingsShown:  # noqa: ARG001 - takes nothing
    return await show_settings(on.served, on.principal)


async def _preview_purge(on: Operations, given: frames.PreviewPurge) -> PurgePreview:
    asked = PreviewPurge(given.done_ms, given.dead_ms, given.mailbox, given.including_steps)
    async with on.account.long_work:
        return await preview_purge(on.served, on.principal, asked)


async def _purge_old(on: Operations, given: frames.PurgeOld) -> PurgePart:
    on.principal.require_everywhere()
    asked = Purge(
        given.reason, given.done_before, given.dead_before, given.mailbox, given.including_steps, given.after
    )
    assert on.trail is not None
    async with on.account.long_work:
        return await purge_old(on.served, on.principal, on.trail, f"{frames.PATH} purge_old", asked)


async def _note_run(on: Operations, given: frames.NoteRun) -> None:
    """The node audits what it sees; a supervisor tells it of the processes that it starts and ends."""
    agent = on.mailbox(given.agent)
    if on.trail is not None:
        route, detail = f"{frames.PATH} note_run", given.detail[:NOTE_LENGTH_MAX]
        on.trail.write(f"agent.{given.event}", 200, route=route, acted={agent}, detail=detail)


async def _find_report(on: Operations, given: frames.FindReport) -> LetterReport | None:
    return await find_report(on.served, on.principal, FindReport(given.day))


# -- tasks


def _tasks(on: Operations) -> Tasks:
    return Tasks(on.served, on.principal, on.account, on.agent)


async def _submit_task(on: Operations, given: frames.SubmitTask) -> Submitted:
    tasks = _tasks(on)
    owner = tasks.owner(given.owner)
    return await tasks.submit(
        SubmitTask(
            given.document,
            given.input,
            given.key,
            owner,
            given.trace,
            given.again,
            reply_to=tasks.reply_to(given.reply_to),
            notify=notify_kinds(given.notify),
        )
    )


async def _rerun_task(on: Operations, given: frames.RerunTask) -> Submitted:
    tasks = _tasks(on)
    owner = tasks.owner(given.owner)
    return await tasks.rerun(RerunTask(given.task, given.from_step, given.input, owner))


async def _find_task(on: Operations, given: frames.OfTask) -> TaskShown | None:
    return await _tasks(on).find(FindTask(given.task).task)


async def _tell_task(on: Operations, given: frames.OfTask) -> TaskStory | None:
    async with on.account.long_work:
        return await _tasks(on).story(TellTask(given.task).task)


async def _watch_task(on: Operations, given: frames.WatchTask) -> TaskShown | None:
    asked = WatchTask(given.task, given.seen, given.wait_s)
    return await _tasks(on).find(asked.task, asked.seen, asked.wait_s)


async def _find_tasks(on: Operations, given: frames.FindTasks) -> Page:
    asked = FindTasks(given.namespace, given.status, given.workflow, given.limit, given.before)
    async with on.account.long_work:
        return Page(*page(await _tasks(on).listed(asked), _task_size))


def _task_size(view: TaskView) -> int:
    return 200 + len(view.key) + len(view.reason)


async def _cancel_task(on: Operations, given: frames.CancelTask) -> Status:
    return await _tasks(on).cancel(given.task, given.reason, hard=given.hard)


async def _signal_task(on: Operations, given: frames.SignalTask) -> bool:
    _, duplicate = await _tasks(on).signal(given.task, given.name, given.id, given.value)
    return duplicate


async def _set_budget(on: Operations, given: frames.SetBudget) -> Status:
    return await _tasks(on).set_budget(given.task, given.cost_micros, given.tokens)


def _workflows(on: Operations) -> Workflows:
    return Workflows(on.served, on.principal, on.account, on.agent)


async def _put_workflow(on: Operations, given: frames.PutWorkflow) -> Stored:
    workflows = _workflows(on)
    return await workflows.put(PutWorkflow(given.document, given.version, workflows.owner(given.owner)))


async def _find_workflow(on: Operations, given: frames.OfWorkflow) -> WorkflowView | None:
    return await _workflows(on).found(given.workflow, given.version, given.namespace)


async def _find_workflows(on: Operations, given: frames.FindWorkflows) -> Page:
    """`more`: ask again for those put before the last one."""
    asked = ListWorkflows(given.namespace, given.workflow, given.limit, given.before)
    async with on.account.long_work:
        return Page(*page(await _workflows(on).all(asked), _workflow_size))


def _workflow_size(view: WorkflowView) -> int:
    return 200 + len(view.name) + len(view.version) + len(view.owner)


async def _remove_workflow(on: Operations, given: frames.OfWorkflow) -> int:
    return await _workflows(on).remove(given.workflow, given.version, given.namespace)


def _schedules(on: Operations) -> Schedules:
    return Schedules(on.served, on.principal, on.account, on.agent)


async def _put_schedule(on: Operations, given: schedule_frames.PutSchedule) -> ScheduleStored:
    schedules = _schedules(on)
    owner = schedules.owner(given.owner)
    request = PutSchedule(given.name, given.cron, given.work, owner, given.tz, given.missed, given.replace)
    return await schedules.put(request)


async def _find_schedule(on: Operations, given: schedule_frames.OfSchedule) -> ScheduleView | None:
    return await _schedules(on).found(given.schedule, given.namespace)


async def _find_schedules(on: Operations, given: schedule_frames.FindSchedules) -> Page:
    """`more`: ask again for those behind the last one."""
    asked = ListSchedules(given.namespace, given.limit, given.after)
    async with on.account.long_work:
        return Page(*page(await _schedules(on).all(asked), _schedule_size))


def _schedule_size(view: ScheduleView) -> int:
    return 600 + len(view.schedule.reason)


async def _hold_schedule(on: Operations, given: schedule_frames.HoldSchedule) -> ScheduleView:
    return await _schedules(on).hold(given.schedule, paused=given.paused, namespace=given.namespace)


async def _remove_schedule(on: Operations, given: schedule_frames.OfSchedule) -> bool:
    return await _schedules(on).remove(given.schedule, given.namespace)


class Row(msgspec.Struct, frozen=True):
    """One call: the scope it needs, what it is given, what it does."""

    scope: str | None
    """None: it asks for itself."""
    arguments: type[frames.Arguments]
    do: Callable[[Operations, Any], Awaitable[Any]]


CALLS: dict[str, Row] = {
    "open_mailbox": Row("agent", frames.OpenMailbox, _open_mailbox),
    "subscribe": Row("agent", frames.Subscribe, _subscribe),
    "unsubscribe": Row("agent", frames.OfMailbox, _unsubscribe),
    "expect": Row("agent", frames.Correlation, _expect),
    "unexpect": Row("agent", frames.Correlation, _unexpect),
    "complete": Row("agent", frames.Complete, _complete),
    "ended_by": Row("agent", frames.Attempts, _ended_by),
    "register": Row("agent", frames.Register, _register),
    "drain": Row("agent", frames.OfAgent, _drain),
    "stats": Row(None, frames.Nothing, _stats),
    "peek": Row(None, frames.Peek, _peek),
    "dead_letters": Row("read", frames.LettersPage, _dead_letters),
    "letters": Row("read", frames.Letters, _letters),
    "redrive": Row("write", frames.Redrive, _redrive),
    "purge": Row("write", frames.Letters, _purge),
    "reprioritise": Row("write", frames.Reprioritise, _reprioritise),
    "set_breaker": Row("write", frames.SetBreaker, _set_breaker),
    "force_delayed": Row("write", frames.ForceDelayed, _force_delayed),
    "deliver_due": Row("agent", frames.Nothing, _deliver_due),
    "checkpoint": Row(None, frames.Nothing, _checkpoint),
    "show_settings": Row(None, frames.Nothing, _show_settings),
    "preview_purge": Row(None, frames.PreviewPurge, _preview_purge),
    "purge_old": Row(None, frames.PurgeOld, _purge_old),
    "note_run": Row("agent", frames.NoteRun, _note_run),
    "find_report": Row("read", frames.FindReport, _find_report),
    "submit_task": Row("write", frames.SubmitTask, _submit_task),
    "cancel_task": Row("write", frames.CancelTask, _cancel_task),
    "signal_task": Row("write", frames.SignalTask, _signal_task),
    "set_budget": Row("write", frames.SetBudget, _set_budget),
    "rerun_task": Row("write", frames.RerunTask, _rerun_task),
    "answer_step": Row("agent", frames.AnswerStep, step_calls.answer_step),
    "find_task": Row("read", frames.OfTask, _find_task),
    "tell_task": Row("read", frames.OfTask, _tell_task),
    "watch_task": Row("read", frames.WatchTask, _watch_task),
    "find_tasks": Row("read", frames.FindTasks, _find_tasks),
    "put_workflow": Row("write", frames.PutWorkflow, _put_workflow),
    "find_workflow": Row("read", frames.OfWorkflow, _find_workflow),
    "find_workflows": Row("read", frames.FindWorkflows, _find_workflows),
    "remove_workflow": Row("write", frames.OfWorkflow, _remove_workflow),
    "put_schedule": Row("write", schedule_frames.PutSchedule, _put_schedule),
    "find_schedule": Row("read", schedule_frames.OfSchedule, _find_schedule),
    "find_schedules": Row("read", schedule_frames.FindSchedules, _find_schedules),
    "hold_schedule": Row("write", schedule_frames.HoldSchedule, _hold_schedule),
    "remove_schedule": Row("write", schedule_frames.OfSchedule, _remove_schedule),
    "finish_step": Row("agent", frames.FinishStep, step_calls.finish_step),
    "grow_step": Row("agent", frames.GrowStep, step_calls.grow_step),
    "fail_step": Row("agent", frames.FailStep, step_calls.fail_step),
    "report_step": Row("agent", frames.ReportStep, step_calls.report_step),
    "step_bounds": Row("agent", frames.OfGrant, step_calls.step_bounds),
    "abandon": Row("agent", frames.Abandon, step_calls.abandon),
}


PAGES = frozenset({"peek", "dead_letters", "letters", "find_tasks", "find_workflows", "find_schedules"})
"""Calls whose answers may be long: a credential gets one after the other."""
WAITING = frozenset({"watch_task"})
"""Calls that may wait for long."""
READING = (
    PAGES
    | WAITING
    | {
        "ended_by",
        "stats",
        "find_task",
        "tell_task",
        "find_workflow",
        "find_schedule",
        "show_settings",
        "step_bounds",
        "preview_purge",
        "find_report",
    }
)
"""Calls that write nothing."""
SELF_AUDITED = frozenset({"note_run"})
"""Calls whose audit line is their whole work."""


async def call(on: Operations, name: str, arguments: Callable[[type[Any]], Any]) -> Any:
    """Do what is named; `arguments` decodes what was given with it."""
    row = CALLS.get(name)
    if row is None:
        raise NotFound(f"there is no call {name[:80]!r}", hint=f"calls are {', '.join(CALLS)}")
    if row.scope is not None:
        on.principal.require(row.scope)
    try:
        given = arguments(row.arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEnvelope(f"the arguments of {name}: {error}") from None
    return await row.do(on, given)
