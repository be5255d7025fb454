"""Advancing: the shell's half of a step. It evaluates what a ready step is sent, outside the lock.

Expressions read only immutable values (the task's input, outputs of ended steps). So two threads that advance
the same task compute the same, and the kernel accepts the first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from relaymesh.kernel.query import ReadySteps
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import Advance, Advanced, Move
from relaymesh.kernel.tasks.looks import ReadyStep, ReadyTask
from relaymesh.node.core import Core
from relaymesh.node.moves import included, move_of, takes_long
from relaymesh.node.payloads import Payloads
from relaymesh.node.task_mail import TaskMail, join_step
from relaymesh.node.terms import Values, default_values, terms_of

__all__ = ["Advancing"]

log = logging.getLogger("relaymesh.node")

ROUNDS_MAX = 16
"""How many advances of one task one call makes; the next settle or housekeeping continues."""
RETRY_MS_MIN = 100
RETRY_MS_MAX = 5_000
"""How soon a blocked task is tried again; the time doubles each time."""


class Advancing:
    """Sends the ready steps of tasks. Thread-safe: each thread that settled something calls `advance`."""

    def __init__(
        self,
        core: Core,
        new_ids: Callable[[int], list[str]],
        payloads: Payloads,
        values: Values = default_values,
    ) -> None:
        self._core = core
        self._values = values
        self._new_ids = new_ids
        self.mail = TaskMail(core, new_ids, payloads)
        self._payloads = payloads
        self.mail.on_loop = lambda: self._on_loop
        self.loop_thread: int | None = None
        """The thread of an event loop. What waits for files or takes long is left to housekeeping there."""
        self._blocked: dict[str, tuple[int, int]] = {}
        """When to try a task again, and how long it waited; by task."""
        self._lock = threading.Lock()
        self.away: Callable[[], Sequence[str]] = tuple
        """Tells which agents are offline. A server knows; without one none is."""
        core.on_ready = self.advance

    def advance(self, step: Step) -> None:
        """Send the steps that a decision made ready, before the decision is committed: mostly all is in
        one frame."""
        waiting = list(step.ready or ())
        while waiting or step.owes:
            for task in waiting:  # the list grows
                waiting += self._try(task, step)
            waiting = self.mail.send(step) if step.owes else []

    def tend(self, now: int) -> int | None:
        """Try blocked tasks again. Returns when to call it next; None: no task is blocked."""
        with self._lock:
            due = [task for task, (at, _) in self._blocked.items() if at <= now]
        for task in due:
            step = Step(0, [], [], [])
            step.ready = [task]
            self.advance(step)
            self._core.commit(step)
        if self.mail.is_due(now):
            step = Step(0, [], [], [])
            step.owes = True
            self.advance(step)
            self._core.commit(step)
        mail_at = self.mail.next_at
        with self._lock:
            times = [at for at, _ in self._blocked.values()]
        return min([*times, *([] if mail_at is None else [mail_at])], default=None)

    def _try(self, task: str, step: Step) -> list[str]:
        """A task that cannot be advanced is tried again later. Its error must not affect the settle, which is
        already decided, nor other tasks. Returns other tasks that became ready meanwhile.
        """
        try:
            return self._advance(task, step)
        except Exception:
            if self._core.failure is not None:
                raise
            log.exception("task %s cannot be advanced", task)
            self._block(task, "it cannot be advanced")
            return []

    def _advance(self, task: str, step: Step) -> list[str]:
        """Returns other tasks that became ready meanwhile, because each decision also handles what fell
        due."""
        core = self._core
        others: list[str] = []
        for _ in range(ROUNDS_MAX):
            ready = core.read(lambda kernel: kernel.look(ReadySteps(task)))
            if ready is None:
                break
            if self._on_loop and takes_long(ready):
                self._leave(task)
                return others
            moves: Sequence[Move] = [self._move_of(ready, each) for each in ready.steps]
            away = self.away() if any(each.capability for each in ready.steps) else ()
            held: Sequence[str] = ()
            if max([len(move.content) for move in moves], default=0) > self._payloads.inline_max:
                if self._on_loop:
                    self._leave(task)
                    return others
                moves, held = self._payloads.file_moves(moves)
            try:
                command = Advance(task, moves, self._new_ids(len(moves)), away)
                advanced = core.submit(command, send_ready=False)
            finally:
                self._payloads.release(held)
            join_step(step, advanced)
            step.owes = step.owes or advanced.owes
            if advanced.error is not None:
                raise advanced.error
            made_ready = advanced.ready or []
            others += [each for each in made_ready if each != task]
            result: Advanced = advanced.result
            if result.blocked:
                self._block(task, result.blocked)
                return others
            if task not in made_ready:
                break  # the decision checked the task at its end: nothing is left to send
        else:
            self._block(task, "it has more to send")
            return others
        with self._lock:
            self._blocked.pop(task, None)
        return others

    def _move_of(self, task: ReadyTask, step: ReadyStep) -> Move:
        move = move_of(task, step, self._payloads.resolve)
        if move.action != "include":
            return move
        return included(
            step,
            move,
            task.namespace,
            lambda query: self._core.read(lambda kernel: kernel.look(query)),
            terms_of(self._values()).steps,
        )

    @property
    def _on_loop(self) -> bool:
        return self.loop_thread is not None and self.loop_thread == threading.get_ident()

    def _leave(self, task: str) -> None:
        """Pass a task to housekeeping, which tries it at once."""
        with self._lock:
            self._blocked[task] = (0, 0)
        self._core.on_timer()

    def _block(self, task: str, why: str) -> None:
        now = self._core.time.now()
        with self._lock:
            _, waited = self._blocked.get(task, (0, 0))
            wait = min(max(RETRY_MS_MIN, 2 * waited), RETRY_MS_MAX)
            self._blocked[task] = (now + wait, wait)
        log.debug("task %s waits %d ms: %s", task, wait, why)
