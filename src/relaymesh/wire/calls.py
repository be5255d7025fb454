"""Requests as calls of the WebSocket protocol: the name, the arguments and the type of the answer.

One row for each operation that is a single question and its answer. Operations with frames of their own
(send, settle), in pages, or in batches are written out in `relaymesh.client.websocket`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from relaymesh.kernel.address import name_of
from relaymesh.kernel.commands import (
    Complete,
    DrainAgent,
    ForceDelayed,
    OpenMailbox,
    Reprioritise,
    SetBreaker,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.kernel.query import ShowSchedule
from relaymesh.kernel.request import Request
from relaymesh.kernel.schedules.commands import RemoveSchedule, ScheduleStored
from relaymesh.kernel.schedules.schedule import ScheduleView
from relaymesh.kernel.tasks.commands import (
    Answer,
    Cancel,
    Fail,
    Finish,
    RemoveVersions,
    Report,
    SetBudget,
    Signal,
    Stored,
    Submitted,
)
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.wire import frames, schedule_frames
from relaymesh.wire.frames import Arguments, Nothing, given_usage
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.letter_report import FindReport, LetterReport
from relaymesh.wire.retention import PreviewPurge, Purge, PurgePart, PurgePreview
from relaymesh.wire.schedules import HoldSchedule, PutSchedule
from relaymesh.wire.settings import SettingsShown, ShowSettings
from relaymesh.wire.stats import MeshStats
from relaymesh.wire.tasks import (
    FindTask,
    FindWorkflow,
    GrowStep,
    PutWorkflow,
    RerunTask,
    SubmitTask,
    TaskStory,
    TellTask,
    WatchTask,
)

__all__ = ["FORMS", "Form"]


class Form(msgspec.Struct, frozen=True):
    """How one request travels. `answer`: the type of its result; None: it has none."""

    name: str
    arguments: Callable[[Any], Arguments]
    answer: Any = None


def _nothing(request: Request[Any]) -> Nothing:  # noqa: ARG001 - the request has no fields
    return Nothing()


def _subscribe(command: Subscribe) -> frames.Subscribe:
    name = name_of(command.mailbox).partition(":")[2]
    return frames.Subscribe(command.pattern, name, command.settings)


def _reprioritise(command: Reprioritise) -> frames.Reprioritise:
    ids = None if command.ids is None else sorted(command.ids)
    return frames.Reprioritise(command.mailbox, command.priority, ids)


def _submit(request: SubmitTask) -> frames.SubmitTask:
    return frames.SubmitTask(
        request.document,
        request.input,
        request.key,
        request.owner,
        request.trace,
        request.again,
        request.reply_to or None,
        list(request.notify),
    )


def _answer(command: Answer) -> frames.AnswerStep:
    return frames.AnswerStep(command.task, command.step, command.value, command.by)


def _signal(command: Signal) -> frames.SignalTask:
    return frames.SignalTask(command.task, command.name, command.id, command.value)


def _budget(command: SetBudget) -> frames.SetBudget:
    return frames.SetBudget(command.task, command.cost_micros, command.tokens)


def _rerun(request: RerunTask) -> frames.RerunTask:
    return frames.RerunTask(request.task, request.from_step, request.input, request.owner)


def _of_workflow(request: FindWorkflow | RemoveVersions) -> frames.OfWorkflow:
    return frames.OfWorkflow(request.name, request.version, request.namespace)


def _put_schedule(request: PutSchedule) -> schedule_frames.PutSchedule:
    return schedule_frames.PutSchedule(
        request.name,
        request.cron,
        request.work,
        request.tz,
        request.missed,
        request.replace,
        request.owner,
    )


def _of_schedule(request: ShowSchedule | RemoveSchedule) -> schedule_frames.OfSchedule:
    return schedule_frames.OfSchedule(request.name, request.namespace)


def _preview(request: PreviewPurge) -> frames.PreviewPurge:
    return frames.PreviewPurge(request.done_ms, request.dead_ms, request.mailbox, request.including_steps)


def _purge(request: Purge) -> frames.PurgeOld:
    return frames.PurgeOld(
        request.reason,
        request.done_before,
        request.dead_before,
        request.mailbox,
        request.including_steps,
        request.after,
    )


FORMS: dict[type[Request[Any]], Form] = {
    OpenMailbox: Form("open_mailbox", lambda it: frames.OpenMailbox(it.mailbox, it.settings)),
    DrainAgent: Form("drain", lambda it: frames.OfAgent(it.agent)),
    Subscribe: Form("subscribe", _subscribe),
    Unsubscribe: Form("unsubscribe", lambda it: frames.OfMailbox(it.mailbox), int),
    Complete: Form("complete", lambda it: frames.Complete(it.mailbox, it.sequence), bool),
    Reprioritise: Form("reprioritise", _reprioritise, int),
    SetBreaker: Form("set_breaker", lambda it: frames.SetBreaker(it.mailbox, it.open)),
    ForceDelayed: Form("force_delayed", lambda it: frames.ForceDelayed(it.mailbox), int),
    Tick: Form("deliver_due", _nothing, int),
    Stats: Form("stats", _nothing, MeshStats),
    Checkpoint: Form("checkpoint", _nothing, int | None),
    ShowSettings: Form("show_settings", _nothing, SettingsShown),
    PreviewPurge: Form("preview_purge", _preview, PurgePreview),
    Purge: Form("purge_old", _purge, PurgePart),
    FindReport: Form("find_report", lambda it: frames.FindReport(it.day), LetterReport | None),
    SubmitTask: Form("submit_task", _submit, Submitted),
    FindTask: Form("find_task", lambda it: frames.OfTask(it.task), TaskShown | None),
    TellTask: Form("tell_task", lambda it: frames.OfTask(it.task), TaskStory | None),
    WatchTask: Form("watch_task", lambda it: frames.WatchTask(it.task, it.seen, it.wait_s), TaskShown | None),
    Cancel: Form("cancel_task", lambda it: frames.CancelTask(it.task, it.reason, it.hard), Status),
    Answer: Form("answer_step", _answer, Status),
    Signal: Form("signal_task", _signal, bool),
    SetBudget: Form("set_budget", _budget, Status),
    RerunTask: Form("rerun_task", _rerun, Submitted),
    PutWorkflow: Form(
        "put_workflow", lambda it: frames.PutWorkflow(it.document, it.version, it.owner), Stored
    ),
    FindWorkflow: Form("find_workflow", _of_workflow, WorkflowView | None),
    RemoveVersions: Form("remove_workflow", _of_workflow, int),
    Finish: Form(
        "finish_step", lambda it: frames.FinishStep(it.token, it.output, given_usage(it.usage)), Status
    ),
    GrowStep: Form(
        "grow_step", lambda it: frames.GrowStep(it.token, it.document, given_usage(it.usage)), Status
    ),
    Fail: Form(
        "fail_step", lambda it: frames.FailStep(it.token, it.code, it.reason, given_usage(it.usage)), Status
    ),
    Report: Form("report_step", lambda it: frames.ReportStep(it.token, it.progress, given_usage(it.usage))),
    PutSchedule: Form("put_schedule", _put_schedule, ScheduleStored),
    ShowSchedule: Form("find_schedule", _of_schedule, ScheduleView | None),
    HoldSchedule: Form(
        "hold_schedule",
        lambda it: schedule_frames.HoldSchedule(it.name, it.paused, it.namespace),
        ScheduleView,
    ),
    RemoveSchedule: Form("remove_schedule", _of_schedule, bool),
}
