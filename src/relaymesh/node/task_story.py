"""The story of a task: what the journal says about it and about the messages of its steps, in order.

Read when it is asked for, from the record that submitted the task to the one that ended it. The cost depends
on how much was written in that time, so one reader at a time reads, and at most `READ_EVENTS_MAX` events.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from relaymesh.errors import DirectoryError
from relaymesh.journal import Disk, read_frames
from relaymesh.kernel import records
from relaymesh.kernel.moment import iso
from relaymesh.kernel.records import Failure, ReturnCause
from relaymesh.kernel.tasks.spending import dollars
from relaymesh.kernel.tasks.status import TASK_ENDS
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.kernel.token import format_token
from relaymesh.node.core import Core
from relaymesh.wire.records import read_records
from relaymesh.wire.tasks import TaskEvent, TaskStory

__all__ = ["TaskStories"]

READ_EVENTS_MAX = 500_000
"""Events of the journal that are read for one story: about two seconds."""
TOLD_EVENTS_MAX = 20_000
"""Events of one story, roughly: a longer one ends there and is not complete."""

RETURNED: dict[ReturnCause, str] = {
    "nack": "failed",
    "expired": "abandoned",
    "restart": "abandoned",
    "abandoned": "abandoned",
    "deferred": "given_back",
    "released": "given_back",
}


class TaskStories:
    """Reads stories for one node. Without a disk (a mesh in memory) a story has its first and last event."""

    def __init__(self, core: Core, disk: Disk | None) -> None:
        self._core = core
        self._disk = disk
        self._one_reader = threading.Lock()

    def read(self, shown: TaskShown) -> TaskStory:
        """Waits for the disk. Raises `DirectoryError` if the journal cannot be read."""
        if self._disk is None:
            return TaskStory(shown.task.task, _outline(shown), False)
        if self._core.unsynced:
            self._core.sync()
        with self._one_reader:
            teller = _Teller(shown)
            through = shown.task.through or self._core.through
            try:
                complete = teller.read(self._disk, through)
            except OSError as error:
                raise DirectoryError(f"the journal cannot be read: {error}") from error
        return TaskStory(shown.task.task, teller.events, complete)


def _outline(shown: TaskShown) -> list[TaskEvent]:
    task = shown.task
    events = [TaskEvent(task.sequence, task.created_at, "submitted")]
    if task.status in TASK_ENDS:
        last = max(0, task.through - 1)
        events.append(TaskEvent(last, task.ended_at, "ended", status=task.status, reason=task.reason))
    return events


class _Teller:
    """Follows the records of one task, and of the messages that its steps are."""

    def __init__(self, shown: TaskShown) -> None:
        self.events: list[TaskEvent] = []
        self._task = shown.task
        self._names = {step.number: step.name for step in shown.steps}
        self._places: dict[int, int] = {}
        """Steps by the sequence of their message."""
        self._letters: dict[tuple[str, int], int] = {}
        self._tokens: dict[int, str] = {}

    def read(self, disk: Disk, through: int) -> bool:
        """Whether the whole story was read: the journal reaches back, and it is not too long."""
        read, first = 0, True
        for frame in read_frames(disk, self._task.sequence, through):
            if first and frame.first_sequence > self._task.sequence:
                return False
            first = False
            if read > READ_EVENTS_MAX or len(self.events) > TOLD_EVENTS_MAX:
                return False
            sequence = frame.first_sequence
            for record in read_records(frame.payload):
                read += record.count
                if isinstance(record, records.Record):
                    self.events += self._told(record, sequence)
                sequence += record.count
        return not first

    def _told(self, record: records.Record, base: int) -> Iterator[TaskEvent]:
        match record:
            case (
                records.TaskSubmitted()
                | records.StepsSent()
                | records.StepsAdded()
                | records.StepsEnded()
                | records.TaskClosing()
                | records.TaskEnded()
                | records.StepWaits()
                | records.SignalReceived()
                | records.StepsWithdrawn()
                | records.TaskUndoing()
                | records.UsageNoted()
                | records.BudgetPaused()
                | records.BudgetSet()
            ):
                if record.task == self._task.task:
                    yield from self._of_task(record, base)
            case records.Redriven():
                number = self._letters.pop((record.source, record.dead_sequence), None)
                if number is not None:
                    self._places[base] = number
                    yield self._event(base, record, "redriven", number, agent=record.mailbox)
            case records.DeadLettersPurged():
                for i, dead in enumerate(record.dead_sequences):
                    number = self._letters.pop((record.mailbox, dead), None)
                    if number is not None:
                        yield self._event(base + i, record, "purged", number)
            case (
                records.Granted()
                | records.Returned()
                | records.Acked()
                | records.Dropped()
                | records.DeadLettered()
            ):
                for i, sequence in enumerate(record.sequences):
                    number = self._places.get(sequence)
                    if number is not None:
                        yield self._of_message(record, base, i, number)

    def _of_task(self, record: records.Record, base: int) -> Iterator[TaskEvent]:
        match record:
            case records.TaskSubmitted():
                yield self._event(base, record, "submitted", reason=record.owner)
            case records.StepsSent():
                for i, (number, sequence) in enumerate(zip(record.steps, record.sequences, strict=True)):
                    self._places[sequence] = number
                    yield self._event(base + i, record, "sent", number, agent=record.mailbox)
            case records.StepsAdded():
                what = f"{len(record.items)} items"
                if record.plans:
                    self._forget(record.step)
                    what = f"{len(record.plans)} steps"
                yield self._event(base, record, "expanded", record.step, reason=what)
            case records.StepsEnded():
                for i, number in enumerate(record.steps):
                    self._forget(number)
                    token = format_token(record.token) if record.token else ""
                    yield self._event(
                        base + i,
                        record,
                        "step_ended",
                        number,
                        status=record.status,
                        token=token,
                        code=record.code,
                        reason=record.reason,
                    )
            case records.TaskClosing():
                reason = f"{record.reason} (by {record.by})" if record.by else record.reason
                yield self._event(base, record, "closing", status=record.status, reason=reason)
            case records.TaskEnded():
                yield self._event(base, record, "ended", status=record.status, reason=record.reason)
            case records.StepWaits() | records.StepsWithdrawn() | records.UsageNoted():
                yield from self._of_steps(record, base)
            case _:
                yield from self._of_budget(record, base)

    def _of_budget(self, record: records.Record, base: int) -> Iterator[TaskEvent]:
        """What concerns the task as a whole while it runs."""
        match record:
            case records.SignalReceived():
                reason = f"{record.name} (by {record.by})" if record.by else record.name
                yield self._event(base, record, "signalled", reason=reason, code=record.id)
            case records.TaskUndoing():
                reason = ", ".join([self._names.get(number, str(number)) for number in record.steps[:20]])
                yield self._event(base, record, "undoing", reason=reason)
            case records.BudgetPaused():
                yield self._event(base, record, "paused", reason=record.reason)
            case records.BudgetSet():
                most = [dollars(record.cost_micros)] * (record.cost_micros > 0)
                most += [f"{record.tokens} tokens"] * (record.tokens > 0)
                yield self._event(base, record, "budget", reason=" and ".join(most) or "no limit")

    def _of_steps(self, record: records.Record, base: int) -> Iterator[TaskEvent]:
        match record:
            case records.StepWaits():
                until = f"until {iso(record.until)}" if record.until else ""
                yield self._event(
                    base, record, "waits", record.step, agent=record.asked, code=record.kind, reason=until
                )
            case records.StepsWithdrawn():
                for i, number in enumerate(record.steps):
                    self._forget(number)
                    yield self._event(base + i, record, "withdrawn", number, reason=record.reason)
            case records.UsageNoted():
                used = f"{dollars(record.cost_micros)} and {record.tokens} tokens"
                token = format_token(record.token)
                yield self._event(base, record, "used", record.step, token=token, reason=used)

    def _of_message(self, record: records.Record, base: int, i: int, number: int) -> TaskEvent:
        at = base + i
        match record:
            case records.Granted():
                self._tokens[number] = format_token(record.token + i)
                return self._event(
                    at, record, "granted", number, agent=record.mailbox, holder=record.holder, known=True
                )
            case records.Returned():
                code, reason = _why(record.failures, i)
                event = RETURNED[record.cause]
                code = code or record.cause
                return self._event(at, record, event, number, code=code, reason=reason, known=True)
            case records.DeadLettered():
                del self._places[record.sequences[i]]
                self._letters[record.mailbox, at] = number
                _, reason = _why(record.failures, i)
                return self._event(at, record, "dead_letter", number, code=record.reason, reason=reason)
        status = "SUCCESS" if isinstance(record, records.Acked) else "FAILED"
        self._forget(number)
        return self._event(at, record, "step_ended", number, status=status, known=True)

    def _forget(self, number: int) -> None:
        """It ended: what happens to its message adds nothing."""
        self._places = {sequence: each for sequence, each in self._places.items() if each != number}

    def _event(
        self,
        sequence: int,
        record: records.Record,
        event: str,
        number: int = -1,
        *,
        known: bool = False,
        **of: str,
    ) -> TaskEvent:
        """`known`: it happened under the last grant of the step."""
        if known:
            of["token"] = self._tokens.get(number, "")
        step = "" if number < 0 else self._names.get(number, str(number))
        return TaskEvent(sequence, record.at, event, step, **of)


def _why(failures: list[Failure | None], i: int) -> tuple[str, str]:
    failure = failures[i] if failures else None
    return ("", "") if failure is None else (failure.code, failure.reason)
