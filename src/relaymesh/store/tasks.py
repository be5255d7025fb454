"""Tasks and steps as rows, and back: the last state of each within a batch is written once.

The kernel has 0, -1 and "" where a row has NULL, so that the partial indexes hold only what is to be found
by them.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from relaymesh.errors import InvalidValue, JournalDamaged
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.kernel.token import format_token, parse_token
from relaymesh.wire.payload import Get, no_payloads, result_hash

SEQUENCE_BYTES = 8
NEWEST = (1 << 63) - 1
"""Behind every sequence."""

TASK_COLUMNS = (
    "task_id, workflow, version, status, owner, idempotency_key, request, trace_id, created_at_ms,"
    " updated_at_ms, coalesce(ended_at_ms, -1), reason, result, steps_total, steps_ended, sequence, through,"
    " cost_micros, tokens, cost_micros_max, tokens_max, waiting, coalesce(again_of, '')"
)
"""As `TaskView` has them."""
STEP_COLUMNS = (
    "task_id, number, name, agent_id, status, attempt, failed, abandoned, coalesce(next_retry_at_ms, 0),"
    " coalesce(lease_owner, ''), coalesce(lease_token, ''), coalesce(lease_epoch, 0),"
    " coalesce(sent_at_ms, 0), coalesce(granted_at_ms, 0), updated_at_ms, coalesce(ended_at_ms, -1),"
    " code, reason, '', '', output, uncertain"
)
"""As `StepView` has them, but for the token. What a step waits for, and its progress, are the kernel's."""
_TOKEN = StepView.__struct_fields__.index("lease_token")


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks, the newest first; `next` is where the page behind it begins, None on the last page."""

    tasks: list[TaskView]
    next: str | None = None


def page_of(found: list[TaskView], limit: int) -> TaskPage:
    """The first of these; there is another page if there are more."""
    tasks = found[:limit]
    more = len(found) > limit and tasks
    return TaskPage(tasks, cursor_of(tasks[-1].sequence) if more else None)


class TaskChanges:
    """The tasks and steps of one batch."""

    __slots__ = ("_steps", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[str, TaskView] = {}
        self._steps: dict[tuple[str, int], StepView] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, tasks: Sequence[TaskView], steps: Sequence[StepView]) -> None:
        for task in tasks:
            self._tasks[task.task] = task
        for step in steps:
            self._steps[step.task, step.number] = step

    def task_rows(self) -> list[object]:
        """In the order of submission: a task that ended gives its key free before the next one takes it."""
        rows: list[object] = []
        for t in sorted(self._tasks.values(), key=_sequence):
            ended = None if t.ended_at < 0 else t.ended_at
            rows += (t.task, namespace_of(t.owner), t.workflow, t.version, t.status, t.owner, t.key,
                     t.request, t.trace, t.created_at, t.updated_at, ended, t.reason, t.result,
                     t.steps_total, t.steps_ended, t.sequence, t.through, t.cost_micros, t.tokens,
                     t.cost_micros_max, t.tokens_max, t.waiting, t.again_of or None)  # fmt: skip
        return rows

    def step_rows(self) -> list[object]:
        rows: list[object] = []
        for s in self._steps.values():
            ended = None if s.ended_at < 0 else s.ended_at
            lease: tuple[object, ...] = (None, None, None)
            if s.lease_token:
                lease = (s.lease_owner, format_token(s.lease_token), s.lease_epoch)
            rows += (f"{s.task}/{s.name}", s.task, s.number, s.name, s.agent, s.status, s.attempt, s.failed,
                     s.abandoned, s.next_retry_at or None, *lease, s.sent_at or None, s.granted_at or None,
                     s.updated_at, ended, s.code, s.reason, s.output, int(s.uncertain))  # fmt: skip
        return rows

    def key_rows(self, get: Get) -> list[object]:
        """Keys of tasks that ended, in the order of their ends: of two runs the later stays.

        `get`: reads payload files.
        """
        rows: list[object] = []
        for t in sorted(self._tasks.values(), key=_through):
            if t.ended_at >= 0:
                digest = None if t.result is None else hash_of(t.result, get)
                rows += (t.key, namespace_of(t.owner), t.status, t.task, digest, t.ended_at)
        return rows


def hash_of(result: bytes, get: Get = no_payloads) -> str | None:
    """The `result_hash` of a result; None: a part of it is in a payload file that cannot be read."""
    try:
        return result_hash(result, get)
    except JournalDamaged:
        return None


def read_task(row: tuple[Any, ...]) -> TaskView:
    """From the columns `TASK_COLUMNS`."""
    return TaskView(*row)


def read_step(row: tuple[Any, ...]) -> StepView:
    """From the columns `STEP_COLUMNS`."""
    values = list(row)
    values[_TOKEN] = parse_token(values[_TOKEN]) or 0
    values[-1] = bool(values[-1])
    return StepView(*values)


def cursor_of(sequence: int) -> str:
    """Names the page behind the task that was submitted at this sequence."""
    return urlsafe_b64encode(sequence.to_bytes(SEQUENCE_BYTES)).rstrip(b"=").decode()


def sequence_of(cursor: str | None) -> int:
    """The inverse; tasks of the page were submitted before it. None: of the first page."""
    if cursor is None:
        return NEWEST
    try:
        found = urlsafe_b64decode(cursor + "=")
        if len(found) == SEQUENCE_BYTES and cursor_of(int.from_bytes(found)) == cursor:
            return min(int.from_bytes(found), NEWEST)
    except (ValueError, TypeError):
        pass
    raise InvalidValue(f"{shown(cursor)} does not name a page of tasks", hint="begin again without a cursor")


def _sequence(task: TaskView) -> int:
    return task.sequence


def _through(task: TaskView) -> int:
    return task.through
