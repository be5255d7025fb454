"""Running a task again from one step: the outcomes of the other steps are taken over. They are read from the
journal: its records are applied to a separate board, which keeps the outputs that the real one freed. So a
task can be run again as long as the journal reaches back to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from relaymesh.errors import Conflict, InvalidValue, NotFound
from relaymesh.journal import Disk, read_frames
from relaymesh.kernel import records
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.charges import Charges
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.commands import Submit
from relaymesh.kernel.tasks.shape import Group
from relaymesh.kernel.tasks.status import GOOD, TASK_ENDS, Status
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.node.core import Core
from relaymesh.node.payloads import Payloads
from relaymesh.wire.near import Names
from relaymesh.wire.records import read_records
from relaymesh.wire.tasks import RerunTask

__all__ = ["Rerun"]


class Rerun:
    """`show`: finds a task, live or ended; `new_ids`: makes ids."""

    def __init__(
        self,
        core: Core,
        disk: Disk | None,
        show: Callable[[str], TaskShown | None],
        new_ids: Callable[[int], list[str]],
        payloads: Payloads,
    ) -> None:
        self._core = core
        self._disk = disk
        self._payloads = payloads
        self._show = show
        self._new_ids = new_ids

    def command(self, request: RerunTask) -> Submit:
        """Waits for the disk; nothing is written yet. The same request again finds the same task."""
        shown = self._show(request.task)
        if shown is None or namespace_of(shown.task.owner) != namespace_of(request.owner):
            raise NotFound(f"there is no task {request.task}", hint="relaymesh task list shows tasks")
        if shown.task.status not in TASK_ENDS:
            raise Conflict(
                f"task {request.task} is {shown.task.status}: only a task that has ended is run again",
                hint=f"relaymesh task cancel {request.task} ends it",
            )
        task = self._replayed(shown)
        first = task.shape.find(request.from_step)
        if first is None:
            names = [step.name for step in task.plan.steps]
            meant = Names(names).nearest(request.from_step)
            raise InvalidValue(
                f"the plan of task {request.task} has no step {request.from_step!r}",
                hint=f"did you mean {meant!r}?" if meant else f"it has: {', '.join(names[:20])}",
            )
        input = self._payloads.resolve(task.input) if request.input is None else request.input
        given = _taken_over(task, first)
        said = msgspec.msgpack.encode([request.task, request.from_step, input])
        digest = hashlib.sha256(said)
        return Submit(
            self._new_ids(1)[0],
            task.plan,
            input,
            f"rerun/{digest.hexdigest()}",
            digest.digest(),
            request.owner,
            task.trace,
            again=True,
            budget=request.budget,
            given=given,
            again_of=request.task,
        )

    def _replayed(self, shown: TaskShown) -> Task:
        """The task as it was at its end, with the outputs of all its steps."""
        if self._disk is None:
            raise Conflict(
                f"task {shown.task.task} cannot be run again: a mesh in memory has no journal to read",
                hint="submit it again, or use a mesh with a directory",
            )
        if self._core.unsynced:
            self._core.sync()
        board = _Hoard()
        for frame in read_frames(self._disk, shown.task.sequence, shown.task.through):
            sequence = frame.first_sequence
            for record in read_records(frame.payload):
                if isinstance(record, records.Record):
                    board.see(record, sequence, shown.task.task)
                sequence += record.count
        if board.task is None or board.task.end is None:
            raise Conflict(
                f"task {shown.task.task} cannot be run again: the journal does not reach back to it",
                hint="submit it again; archive_days says how long the journal is kept",
            )
        return board.task


class _Hoard(Board):
    """A board for one task that frees no output."""

    def __init__(self) -> None:
        super().__init__(Charges())
        self.task: Task | None = None

    def see(self, record: AnyRecord, base: int, id: str) -> None:
        """Apply what a record says about the task."""
        if isinstance(record, records.TaskSubmitted) and record.task == id:
            self.submitted(record, base)
            self.task = self.tasks[id]
        if id not in self.tasks or getattr(record, "task", id) != id:
            return
        match record:
            case records.StepsSent():
                self.sent(record)
            case records.StepsAdded():
                self.added(record)
            case records.StepsEnded():
                self.ended(record)
            case records.StepWaits():
                self.waits(record)
            case records.SignalReceived():
                self.signalled(record)
            case records.StepsWithdrawn():
                self.withdrawn(record, [b"null"] * len(record.steps))
            case records.TaskUndoing():
                self.undoing(record)
            case records.TaskClosing():
                self.closing(record)
            case records.TaskEnded():
                self.task_ended(record, base + record.count)
            case _:
                self._see_message(record, base)

    def _see_message(self, record: AnyRecord, base: int) -> None:
        match record:
            case records.Granted():
                self.granted(record)
            case records.Returned():
                self.returned(record)
            case records.Acked():
                self.acked(record.sequences, record.at)
            case records.Dropped():
                self.dropped(record)
            case records.DeadLettered():
                self.died(record, base)
            case records.Redriven():
                self.redriven(record, base)
            case records.DeadLettersPurged():
                for dead in record.dead_sequences:
                    self.purged(record.mailbox, dead, record.at)

    def submitted(self, record: records.TaskSubmitted, sequence: int) -> None:
        super().submitted(msgspec.structs.replace(record, given=[]), sequence)
        task = self.tasks[record.task]
        for step in task.steps:
            step.readers += 1
        for number, status, output in record.given:
            self._end(task, number, status, output, record.at)

    def _unread(self, task: Task, number: int) -> None:
        pass

    def _free_joined(self, task: Task, numbers: range, group: Group | None) -> None:
        pass


def _taken_over(task: Task, first: int) -> list[tuple[int, Status, bytes]]:
    """The outcomes of steps of the plan that are kept. `first`, the steps whose work was undone and the steps
    that depend on them run again.
    """
    anew = {first, *_undone(task)}
    for number in range(len(task.plan.steps)):
        if anew & set(task.plan.steps[number].needs):
            anew.add(number)
    return [
        (number, step.status, step.output or b"null")
        for number, step in enumerate(task.steps[: len(task.plan.steps)])
        if number not in anew and step.status in GOOD
    ]


def _undone(task: Task) -> Iterator[int]:
    """The steps of the plan of which work was undone, or may have been: an agent had the step that undoes
    and did not say that it cannot.
    """
    for undo in task.undos:
        step = task.steps[undo]
        if step.status == "SUCCESS" or (step.attempts and step.status != "FAILED") or step.code == "purged":
            number = step.undoes
            while task.steps[number].parent >= 0:
                number = task.steps[number].parent
            yield number
