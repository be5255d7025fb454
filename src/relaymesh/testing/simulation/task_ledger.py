"""The ledger of tasks: what the journal says became of every step, worked out from its records alone.

A small second model of plans. It reads records as plain lists and shares no code with the kernel; while it
reads it checks that each record is possible, and that each end follows from the outcomes.
"""

from __future__ import annotations

import json
from typing import Any

from relaymesh.testing.simulation.task_ends import GUARD_MS, WITHDRAWN
from relaymesh.testing.simulation.task_news import News
from relaymesh.testing.simulation.task_spending import Spending
from relaymesh.testing.simulation.task_undoing import Undoing
from relaymesh.testing.simulation.task_waits import Waits
from relaymesh.testing.simulation.told import StepTold, TaskTold, fields_of, message_of, result_of, runs, same
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.workflows import LISTS

ABANDONING = ("expired", "restart", "abandoned")
WINDOW = 100
KEY_MS = 7 * 86_400_000
"""So long is a key kept after the end of its task."""


class TaskLedger(Waits, Undoing, Spending, News):
    """Fed by the ledger of messages, record by record."""

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, list[TaskTold]] = {}
        """The tasks of each key, as they were submitted."""
        self.by_token: dict[int, StepTold] = {}
        self.outcomes: dict[int, StepTold] = {}
        """By the token whose holder gave it: the steps that ended so."""
        self.grown: dict[int, tuple[StepTold, list[Any]]] = {}
        """By the token whose holder asked for it: the steps that went on as others, and their plans."""

    def check_frame(self, leased: set[StepTold]) -> None:
        """What holds after each decision. `leased`: the steps that a holder has."""
        for task in self.tasks.values():
            if not task.end:
                self._check_budget(task, leased)
                if not task.closing:
                    self._check_signals(task)

    # -- records about tasks

    def submitted(self, at: int, record: list[Any]) -> None:
        id, plan, input, key, request, owner = record[3:9]
        if id in self.tasks:
            raise Violation("task_once", f"task {id} was submitted twice")
        for before in self.by_key.get(key, ()):
            if not before.end or (before.end == "SUCCESS" and at < before.ended_at + KEY_MS):
                raise Violation(
                    "task_once", f"key {key} has task {before.id} ({before.end or 'live'}), and now {id}"
                )
        deadline_ms = plan[3] if len(plan) > 3 else 0
        task = TaskTold(
            id, at, key, request, owner, json.loads(input), plan, at + deadline_ms if deadline_ms else 0
        )
        for number, fields in enumerate(plan[1]):
            task.steps.append(StepTold(task, number, fields_of(fields)))
        task.count, task.sequence = len(task.steps), self.sequence
        task.budget = (*plan[4:6], *(0, 0)[len(plan[4:6]) :])
        task.budgets = [task.budget]
        more = (*record[10:13], *("", (), ())[len(record[10:13]) :])
        task.reply_to, task.notify = more[0], tuple(more[1])
        self.tasks[id] = task
        self.by_key.setdefault(key, []).append(task)
        for number, status, output in more[2]:
            if not task.steps[number].ended:
                self._end(task.steps[number], status, json.loads(output), at)

    def sent(self, at: int, id: str, number: int, mailbox: str, content: bytes) -> StepTold:
        step = self._step(id, number, "a send")
        self._check_ready(step, at, "a send")
        if not runs(step):
            raise Violation("follows_plan", f"{step} was sent, though it is to be skipped")
        if mailbox != step.plan["mailbox"]:
            raise Violation("follows_plan", f"{step} was sent to {mailbox}, not to {step.plan['mailbox']}")
        if mailbox in self.draining:
            raise Violation("drain_kept", f"{step} was sent to {mailbox}, which drains")
        if (step.plan["for_each"] and not step.is_item) or step.plan["wait"] is not None:
            raise Violation("follows_plan", f"{step} was sent itself, not its items, or waits")
        if step.parked is not None:
            if content != step.parked:
                raise Violation("follows_plan", f"{step} was sent again as {content!r}, not {step.parked!r}")
        elif not same(told := json.loads(content), wanted := message_of(step)):
            raise Violation("follows_plan", f"{step} was sent {told}, not {wanted}")
        step.status, step.sent_at, step.parked = "OUT", at, None
        self._check_window(step)
        return step

    def _check_window(self, step: StepTold) -> None:
        if len(step.task.out) > WINDOW:
            raise Violation("window", f"task {step.task.id} has {len(step.task.out)} messages out")
        limit = step.plan["parallel"]
        if step.parent is not None and step.is_item and limit:
            out = sum(each.status == "OUT" for each in step.parent.items)
            if out > limit:
                raise Violation("window", f"{step.parent} has {out} items out, not {limit}")

    def added(self, at: int, record: list[Any]) -> None:
        id, number, items = record[3:6]
        step = self._step(id, number, "an expansion")
        if len(record) > 6 and record[6]:
            self._grow(step, record[6], record[8])
            return
        self._check_ready(step, at, "an expansion")
        if not runs(step):
            raise Violation("follows_plan", f"{step} was expanded, though it is to be skipped")
        if step.is_item or [json.loads(item) for item in items] != LISTS.get(step.plan["for_each"]):
            raise Violation("follows_plan", f"{step} was expanded to {items}, not {step.plan['for_each']}")
        step.expanded = True
        for index, item in enumerate(items):
            part = StepTold(step.task, len(step.task.steps), step.plan, step, index, json.loads(item))
            step.items.append(part)
            step.task.steps.append(part)
        if not items:
            self._end(step, "SUCCESS", [], at)

    def _grow(self, step: StepTold, plans: list[Any], token: int) -> None:
        """The holder of a step ends it with more steps."""
        task = step.task
        if task.closing or step.undoes is not None:
            raise Violation("ended_stays", f"{step} grows, though its task closes: {task.closing}")
        if not token or token != step.token:
            raise Violation("last_grant_settles", f"{step} grows by {token}, its last grant is {step.token}")
        if not step.plan["grows"] or step.expanded:
            raise Violation("follows_plan", f"{step} grows, and its plan does not say so")
        self._work_is_done(step)
        step.status, step.expanded, step.is_group, step.parked = "PENDING", True, True, None
        step.sent_at = max(step.sent_at, 0)
        first = len(task.steps)
        for number, plan in enumerate(plans, first):
            part = StepTold(task, number, fields_of(plan), step, number - first, first=first)
            step.items.append(part)
            task.steps.append(part)
        self.grown[token] = step, plans

    def steps_ended(self, at: int, record: list[Any], leased: set[int]) -> None:
        id, numbers, status, outputs = record[3:7]
        token, code = (*record[7:9], *(0, "")[len(record) - 7 :])[:2]
        for i, number in enumerate(numbers):
            step = self._step(id, number, f"an end ({status})")
            output = outputs[i] if outputs else None
            self._check_end(step, at, status, token, code, leased, output)
            if token:
                step.outcome = token
                self.outcomes[token] = step
            self._end(step, status, None if output is None else json.loads(output), at, code)

    def _check_end(
        self,
        step: StepTold,
        at: int,
        status: str,
        token: int,
        code: str,
        leased: set[int],
        output: bytes | None,
    ) -> None:
        if token:
            if token != step.token:
                raise Violation(
                    "last_grant_settles", f"{step} ended by token {token}, its last grant is {step.token}"
                )
            if status not in ("SUCCESS", "FAILED"):
                raise Violation("follows_plan", f"{step} ended as {status} by its holder")
        elif status == "SKIPPED":
            self._check_ready(step, at, "a skip")
            if runs(step):
                raise Violation("follows_plan", f"{step} was skipped, though it is to run")
        elif code == WITHDRAWN:
            self._check_withdrawn(step, status, leased=step.number in leased)
        elif step.status == "WAITS":
            self._check_wait_ends(step, at, status, output, code)
        elif status == "TIMEOUT":
            limit = step.plan["timeout_ms"]
            if not limit or at < step.sent_at + limit:
                raise Violation("never_early", f"{step} timed out at {at}, sent at {step.sent_at}")
        else:
            raise Violation("follows_plan", f"{step} ended as {status} ({code}), and no receiver said so")

    def _check_withdrawn(self, step: StepTold, status: str, *, leased: bool) -> None:
        closing = step.task.closing
        if step.undoes is not None:
            raise Violation("undo_once", f"{step} was withdrawn: a close stops what undoes")
        if not closing or status != ("TIMEOUT" if closing == "TIMEOUT" else "CANCELLED"):
            raise Violation("follows_plan", f"{step} was withdrawn as {status}, closing {closing!r}")
        if leased and not step.task.hard:
            raise Violation("soft_close", f"{step} was taken from its holder by a soft close")

    def closing(self, at: int, record: list[Any]) -> None:
        id, status = record[3:5]
        hard = bool(record[7]) if len(record) > 7 else False
        task = self._task(id, "a close")
        if status == "TIMEOUT" and not task.closing and (not task.deadline_at or at < task.deadline_at):
            raise Violation("never_early", f"task {id} timed out at {at}, due at {task.deadline_at}")
        if task.undos:
            raise Violation("undo_once", f"task {id} closes once more ({status}) while it undoes")
        if task.closing and status != task.closing:
            raise Violation("ended_stays", f"task {id} closes as {task.closing}, and now as {status}")
        task.closing, task.hard = status, hard or task.hard
        task.asked.append((at, status, hard))

    def ended(self, at: int, record: list[Any]) -> None:
        id, status = record[3:5]
        result = json.loads(record[5]) if len(record) > 5 else None
        task = self._task(id, "an end")
        wanted = task.closing or ("" if any(not step.ended for step in task.steps) else "SUCCESS")
        if status != wanted:
            raise Violation(
                "end_follows", f"task {id} ended as {status}, its steps say {wanted or 'not yet'}"
            )
        if task.out:
            raise Violation("end_follows", f"task {id} ended while {task.out[0]} is out")
        wanted = result_of(task.steps[: task.count])
        if status == "SUCCESS" and not same(result, wanted):
            raise Violation("end_follows", f"task {id} has the result {result}, its steps gave {wanted}")
        self._check_undone(task)
        task.end, task.result, task.ended_at, task.through = status, result, at, self.sequence + 1
        task.raw = record[5] if status == "SUCCESS" else None
        for step in task.steps:
            if not step.ended:
                step.ended, step.ended_at = True, at
                step.status = "TIMEOUT" if status == "TIMEOUT" else "CANCELLED"
        task.paused = False
        self._owe_outcome(task)

    # -- what happens to their messages

    def granted(self, step: StepTold, at: int, token: int, asked_ms: int) -> int:
        """Returns how long the lease is."""
        if step.ended:
            raise Violation("ended_stays", f"{step} was granted, though it ended as {step.status}")
        if step.undoes is None:
            if step.task.closing:
                raise Violation("ended_stays", f"{step} was granted, though its task closes")
            if step.task.paused:
                raise Violation("budget_kept", f"{step} was granted, though its task has used its budget")
            self._check_in_time(step.task, at, "a grant")
        limit_ms = step.plan["timeout_ms"]
        if limit_ms and not step.redriven and at > step.sent_at + limit_ms + GUARD_MS:
            self.overdue.append((self.epoch, f"{step} was granted {at - step.sent_at} ms after it was sent"))
        step.token, step.granted_at = token, at
        step.attempts += 1
        step.grants.append(token)
        self.by_token[token] = step
        length: int = asked_ms or step.plan["lease_ms"]
        limit = step.plan["attempt_timeout_ms"]
        return min(length, limit) if limit else length

    def acked(self, step: StepTold, at: int) -> None:
        if not step.ended and not step.is_group:
            step.outcome = step.token
            self.outcomes[step.token] = step
            self._end(step, "SUCCESS", None, at)

    def dropped(self, step: StepTold, at: int) -> None:
        if not step.ended:
            step.outcome = step.token
            self.outcomes[step.token] = step
            self._end(step, "FAILED", None, at, "dropped")

    def returned(self, step: StepTold, cause: str, limit: int) -> None:
        if cause in ABANDONING:
            step.abandoned += 1
            if step.abandoned > step.plan["max_abandoned"]:
                raise Violation(
                    "attempts_bounded", f"{step} was abandoned {step.abandoned} times, and goes on"
                )
        elif cause == "nack":
            step.failed += 1
            if step.failed > limit:
                raise Violation("attempts_bounded", f"{step} failed {step.failed} times, and is tried again")
        else:
            step.attempts -= 1

    def died(self, step: StepTold, at: int, reason: str, code: str, limit: int) -> None:
        if reason == "retries_exhausted":
            failed, gone = step.failed >= limit, step.abandoned >= step.plan["max_abandoned"]
            enough = gone if code == "abandoned" else failed or gone if code == "timeout" else failed
            if not enough:
                raise Violation(
                    "dead_for_a_reason",
                    f"{step} died ({code}) after {step.failed} failures, {step.abandoned} abandonments",
                )
        if step.ended:
            raise Violation("ended_stays", f"{step} died, though it ended as {step.status}")
        if step.caught:
            self._end(step, "DEAD_LETTER", None, at, reason)
        else:
            self._work_is_done(step)
            step.status, step.code, step.token = "DEAD", reason, 0

    def redriven(self, step: StepTold, at: int, sequence: int) -> None:
        if step.status != "DEAD" or step.ended:
            raise Violation("ended_stays", f"{step} was redriven, though it is {step.status}")
        step.status, step.redriven = "OUT", True
        if step.task.closing and step.undoes is None:
            raise Violation("ended_stays", f"{step} was redriven, though its task closes")
        step.failed = step.abandoned = step.done = 0
        step.code = ""

    def purged(self, step: StepTold, at: int) -> None:
        if not step.ended and step.status == "DEAD":
            self._end(step, "FAILED", None, at, "purged")
