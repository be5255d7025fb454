"""Ends of steps, as the ledger of tasks works them out: what is part of what, and what follows."""

from __future__ import annotations

from typing import Any

from relaymesh.testing.simulation.told import GOOD, StepTold, TaskTold, needs_of, result_of
from relaymesh.testing.simulation.verdict import Violation

GUARD_MS = 20_000
"""So late may a timer be that waits for holders who slept."""
WITHDRAWN = "withdrawn"


class TaskEnds:
    """What the parts of the ledger of tasks share."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskTold] = {}
        self.sequence = 0
        """Of the event that is read."""
        self.epoch = 0
        self.overdue: list[tuple[int, str]] = []
        """What went on after a deadline, with its epoch: a clock that jumped gives it a while."""
        self.draining: set[str] = set()
        """Agents that get no new steps."""
        self.owed: dict[tuple[str, str], str] = {}
        """Mail about tasks that is not sent yet: by task and kind, the mailbox."""

    def _task(self, id: str, doing: str) -> TaskTold:
        task = self.tasks.get(id)
        if task is None:
            raise Violation("task_once", f"{doing} names task {id}, which was never submitted")
        if task.end:
            raise Violation("ended_stays", f"{doing} names task {id}, which ended as {task.end}")
        return task

    def _step(self, id: str, number: int, doing: str) -> StepTold:
        task = self._task(id, doing)
        if number >= len(task.steps):
            raise Violation("follows_plan", f"{doing} names step {number} of task {id}, which it has not")
        step = task.steps[number]
        if step.ended:
            raise Violation("ended_stays", f"{doing} of {step}, which ended as {step.status}")
        return step

    def _check_ready(self, step: StepTold, at: int, doing: str) -> None:
        """Nothing moves before its needs ended, twice, or in a task that is about to end or has no money."""
        if step.status != "PENDING" or step.sent_at >= 0 or step.expanded:
            raise Violation("step_sent_once", f"{doing} of {step}, which is {step.status} already")
        if step.undoes is not None:
            self._check_turn(step, doing)
            return
        task = step.task
        if task.closing:
            raise Violation("ended_stays", f"{doing} of {step}, though the task closes: {task.closing}")
        if task.paused:
            raise Violation("budget_kept", f"{doing} of {step}, though its task has used its budget")
        for need in needs_of(step):
            if not need.ended:
                raise Violation("needs_first", f"{doing} of {step} before {need} ended")
        self._check_in_time(task, at, doing)

    def _check_turn(self, step: StepTold, doing: str) -> None:
        """What was done is undone one after the other, and neither a deadline nor a budget stops that."""
        for before in step.task.undos:
            if before is step:
                return
            if not before.ended:
                raise Violation("undo_order", f"{doing} of {step}, before {before} ended")

    def _check_in_time(self, task: TaskTold, at: int, doing: str) -> None:
        if task.deadline_at and at > task.deadline_at:
            late = at - task.deadline_at
            if late > GUARD_MS:
                self.overdue.append((self.epoch, f"{doing} in task {task.id}, {late} ms after its deadline"))

    # -- ends

    def _work_is_done(self, step: StepTold) -> None:
        """A dead letter that comes back makes its step's work begin anew."""
        if not step.done:
            step.task.works_done += 1
            step.done = step.task.works_done

    def _end(self, step: StepTold, status: str, output: Any, at: int, code: str = "") -> None:
        task = step.task
        self._work_is_done(step)
        step.status, step.ended, step.ended_at, step.parked = status, True, at, None
        step.code = "" if status in GOOD else code
        step.output = output if status in GOOD else {"error": {"code": code}}
        if "update" in task.notify:
            self.owed.setdefault((task.id, "update"), task.owner)
        if status not in GOOD and not step.caught and not task.closing:
            task.closing = "TIMEOUT" if status == "TIMEOUT" else "FAILED"
        parent = step.parent
        if parent is None:
            return
        fails = status not in GOOD and code != WITHDRAWN and not step.catches
        if fails and parent.is_group and step.caught and not task.closing:
            self._stop(parent, at)
        if not parent.ended and all(each.ended for each in parent.items):
            self._join(parent, at)

    def _stop(self, parent: StepTold, at: int) -> None:
        """A step of a group failed: those of it that are not out are not done."""
        for step in parent.items:
            if step.ended:
                continue
            if step.items:
                self._stop(step, at)
            elif step.status != "OUT":
                self._end(step, "CANCELLED", None, at, WITHDRAWN)

    def _join(self, parent: StepTold, at: int) -> None:
        """All that a step goes on as has ended."""
        bad = [each for each in parent.items if each.status not in GOOD]
        if parent.is_group:
            bad = [each for each in bad if not each.catches]
        elif parent.plan["on_failure"] == "continue":
            bad = [each for each in bad if each.code == WITHDRAWN]
        failed = [each for each in bad if each.code != WITHDRAWN]
        if failed:
            self._end(parent, "FAILED", None, at, failed[0].code)
        elif bad:
            self._end(parent, bad[0].status, None, at, WITHDRAWN)
        elif parent.is_group:
            self._end(parent, "SUCCESS", result_of(parent.items), at)
        else:
            self._end(parent, "SUCCESS", [each.output for each in parent.items], at)
