"""Which step a message is the work of."""

from __future__ import annotations

from typing import NamedTuple

from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task

ABANDONING = frozenset({"expired", "restart", "abandoned"})
"""Returns in which the holder, not the work, failed: counted apart from failed attempts."""


class Link(NamedTuple):
    """The step that a message is the work of."""

    task: Task
    number: int

    @property
    def step(self) -> StepState:
        return self.task.steps[self.number]

    @property
    def closed(self) -> bool:
        """Whether its task closes, and this is not one of the steps that undo others."""
        return self.task.closing is not None and self.step.undoes < 0

    @property
    def max_retries(self) -> int:
        """By its plan: an edited message of it may say something else."""
        return self.task.plan_of(self.number).max_attempts - 1

    @property
    def backoff(self) -> tuple[int, int]:
        """Base and cap of the delay before a retry, as its task has them; 0: the mailbox's."""
        return self.task.plan.backoff_ms_base, self.task.plan.backoff_ms_cap

    def spent(self, cause: str, retries: int) -> bool:
        """Whether the step has no attempt left. `retries`: how often it may fail and be tried again.

        Abandonments have a limit of their own: kills of a node do not use up the attempts of honest work.
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
        """Whether the present attempt took as long as one may: its lease was kept up until then."""
        limit_ms = self.task.plan_of(self.number).attempt_timeout_ms
        return limit_ms > 0 and lease_end >= self.step.granted_at + limit_ms
