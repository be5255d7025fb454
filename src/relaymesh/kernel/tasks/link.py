"""Which step a message belongs to."""

from __future__ import annotations

from typing import NamedTuple

from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task

ABANDONING = frozenset({"expired", "restart", "abandoned"})
"""Returns in which the holder failed, not the work: they are counted separately from failed attempts."""


class Link(NamedTuple):
    """The step to which a message belongs."""

    task: Task
    number: int

    @property
    def step(self) -> StepState:
        return self.task.steps[self.number]

    @property
    def closed(self) -> bool:
        """Whether its task closes, and this step does not undo another."""
        return self.task.closing is not None and self.step.undoes < 0

    @property
    def max_retries(self) -> int:
        """The priority by its plan: an edited message may have another one."""
        return self.task.plan_of(self.number).max_attempts - 1

    @property
    def backoff(self) -> tuple[int, int]:
        """Base and cap of the delay before a retry, as its task has them; 0: the mailbox's."""
        return self.task.plan.backoff_ms_base, self.task.plan.backoff_ms_cap

    def spent(self, cause: str, retries: int) -> bool:
        """Whether the step has no attempt left. `retries`: how often it may fail and be tried again.

        Abandonments have their own limit, so that killing a node does not use up `max_attempts`.
        """
        step = self.step
        if cause in ABANDONING:
            return step.abandoned >= self.task.plan_of(self.number).max_abandoned
        return step.failed >= retries

    def no_later(self, deadline: int) -> int:
        """The deadline, or the end of the time that one attempt may take."""
        limit_ms = self.task.plan_of(self.number).attempt_timeout_ms
        return min(deadline, self.step.granted_at + limit_ms) if limit_ms else deadline

    def attempt_is_over(self, lease_end: int) -> bool:
        """Whether the current attempt has used all its time: its lease was renewed until then."""
        limit_ms = self.task.plan_of(self.number).attempt_timeout_ms
        return limit_ms > 0 and lease_end >= self.step.granted_at + limit_ms
