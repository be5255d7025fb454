"""The board: every live task, and which message belongs to which step. Only records change it.

An entry belongs to a step only through the record that sent it (`StepsSent`), never through a field of its
envelope, so no sender can claim to be a step. Every change of an entry calls one method here: granted,
returned, acked, dropped, dead-lettered, redriven, purged. Without tasks each call is one lookup in an empty
table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from relaymesh.kernel.charges import Charges
from relaymesh.kernel.records import (
    BudgetPaused,
    BudgetSet,
    DeadLettered,
    Dropped,
    Failure,
    Granted,
    NoticeSent,
    Redriven,
    Returned,
    SignalReceived,
    StepsAdded,
    StepsEnded,
    StepsSent,
    StepsTaken,
    StepsWithdrawn,
    StepWaits,
    TaskClosing,
    TaskEnded,
    TaskSubmitted,
    TaskUndoing,
    UsageNoted,
)
from relaymesh.kernel.tasks.deadlines import Deadlines
from relaymesh.kernel.tasks.ends import Ends
from relaymesh.kernel.tasks.keys import Keys
from relaymesh.kernel.tasks.known import Known
from relaymesh.kernel.tasks.link import ABANDONING, Link
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.kernel.tasks.shape import Group, PlanShape, Shape
from relaymesh.kernel.tasks.signals import Signal, Signals
from relaymesh.kernel.tasks.status import EVENT_OF
from relaymesh.kernel.tasks.step_state import StepState, Waiting
from relaymesh.kernel.tasks.taken import Taken
from relaymesh.kernel.tasks.task import NULL, Task
from relaymesh.kernel.tasks.views import StepView, TaskShown, TaskView, shown, step_view, task_view

OVER_MAX = 10_000
OVER_STEPS_MAX = 100_000
"""How many ended tasks, and their steps, are kept in memory if there is no store."""


class Board(Ends):
    """Live tasks by id, and their messages by sequence."""

    def __init__(self, charges: Charges) -> None:
        super().__init__()
        self._charges = charges
        self.tasks: dict[str, Task] = {}
        self.known = Known()
        """Those, and those of `over`."""
        self.links: dict[int, Link] = {}
        """By the sequence of the message. Sequences of one mailbox and of another never agree."""
        self.letters: dict[tuple[str, int], Link] = {}
        """By mailbox and dead sequence: the dead letters that steps wait for."""
        self.by_token: dict[int, Link] = {}
        """The last grant of each step that has not ended: it may settle late."""
        self.questions: dict[int, Link] = {}
        """By the sequence of the message: the questions whose answers steps wait for."""
        self.unasked: dict[int, str] = {}
        """Volatile. Questions that no step waits for, and their mailboxes: `follow` takes them back."""
        self.taken = Taken()
        """Steps whose holders acked them and report later."""
        self.keys = Keys()
        self.shapes: dict[Plan, PlanShape] = {}
        """By plan: tasks of one plan share it."""
        self._last_shape: PlanShape | None = None
        """Volatile. That of the plan whose last task ended: the same workflow is mostly submitted again."""
        self.changed: dict[Task, None] = {}
        """Volatile. Tasks that this step moved: `ending.follow` looks whether they end."""
        self.over: dict[str, TaskShown] = {}
        """Volatile. Tasks that ended and that the store may not have yet, in the order of their ends."""
        self.over_steps = 0
        """Volatile. How many steps those have."""
        self.moved: dict[Task, dict[int, None]] | None = None
        """Volatile. What changed since `take_rows`, for a store; None: there is none."""
        self.deadlines = Deadlines(self.tasks)
        self.keep: Callable[[Task], None] | None = None
        """While a snapshot is taken: called with a task before it changes."""

    # -- records about tasks

    def submitted(self, record: TaskSubmitted, sequence: int) -> None:
        """`sequence`: of its event."""
        task = Task(
            record.task,
            sequence,
            self.shape_of(record.plan),
            record.input,
            record.key,
            record.request,
            record.owner,
            record.trace,
            record.at,
        )
        task.reply_to, task.notify, task.again_of = record.reply_to, record.notify, record.again_of
        self.tasks[task.id] = task
        self.known.begin(task)
        self.keys.begin(task)
        if self.live:
            self.deadlines.add_task(task)
        self.changed[task] = None
        for number in range(len(task.steps)):
            self._touch(task, number)
        for number, status, output in record.given:
            if not task.steps[number].ended:
                self._end(task, number, status, output, record.at)
        self._charge(task, task.size)

    def shape_of(self, plan: Plan) -> PlanShape:
        """The shape of a plan, for one more task."""
        shape = self.shapes.get(plan)
        if shape is None:
            last = self._last_shape
            shape = last if last is not None and last.plan is plan else PlanShape(plan)
            self.shapes[plan] = shape
        shape.tasks += 1
        return shape

    def sent(self, record: StepsSent) -> None:
        task = self._task(record.task)
        for number, sequence in zip(record.steps, record.sequences, strict=True):
            step = task.steps[number]
            self._read(task, number)
            step.sent_at = step.updated_at = task.updated_at = record.at
            task.not_ready(number)
            task.goes_out(number, sequence, record.mailbox)
            self._forget_content(task, number)
            self.links[sequence] = Link(task, number)
            self._touch(task, number)
            if self.live:
                self.deadlines.add_step(task, number)

    def added(self, record: StepsAdded) -> None:
        task = self._task(record.task)
        step = task.move(record.step, "expanded", record.at)
        self._unlink(task, record.step)
        task.not_ready(record.step)
        if record.plans:
            self._read(task, record.step)
            step.sent_at = step.sent_at or record.at
            self._forget_content(task, record.step)
            self._count_order(task, record.step)
        before = task.size
        if record.plans:
            shape = Shape(tuple(record.plans))
            group = Group(len(task.steps), shape, record.input, record.token)
            task.add_group(record.step, group, record.at)
        else:
            task.add_items(record.step, record.items, record.at)
        self._charge(task, task.size - before)
        self._touch(task, record.step)
        for number in step.items:
            self._touch(task, number)
        if not step.items:
            self._end(task, record.step, "SUCCESS", b"[]", record.at)

    def waits(self, record: StepWaits) -> None:
        """The step has no lease and does not count in the window."""
        task, number = self._task(record.task), record.step
        self._read(task, number)
        step = task.move(number, "waits", record.at)
        step.sent_at = record.at
        step.mailbox = record.asked
        step.wait = Waiting(record.kind, record.until, record.asked, record.sequence)
        task.not_ready(number)
        task.begins_to_wait(number)
        self._forget_content(task, number)
        self._touch(task, number)
        if record.sequence >= 0:
            self.questions[record.sequence] = Link(task, number)
        if self.live:
            self.deadlines.add_step(task, number)

    def signalled(self, record: SignalReceived) -> None:
        task = self._task(record.task)
        if task.signals is None:
            task.signals = Signals()
        before = task.signals.size
        task.signals.add(Signal(record.name, record.id, record.value))
        task.updated_at = record.at
        self._grow(task, task.signals.size - before)

    def withdrawn(self, record: StepsWithdrawn, contents: list[bytes]) -> None:
        """The steps wait to be sent again, unchanged. `contents`: those of their messages."""
        task = self._task(record.task)
        for number, content in zip(record.steps, contents, strict=True):
            step = task.steps[number]
            self._untake(step)
            del self.links[step.sequence]
            task.comes_in(number)
            task.move(number, "withdrawn", record.at)
            step.sent_at = step.retry_at = 0
            step.parked = content
            task.make_ready(number)
            self._touch(task, number)
            self._grow(task, len(content))
        task.sort_ready()

    def used(self, record: UsageNoted) -> None:
        task = self._task(record.task)
        step = task.steps[record.step]
        cost, tokens = step.used
        step.used = (record.cost_micros, record.tokens)
        task.cost += record.cost_micros - cost
        task.tokens += record.tokens - tokens
        task.updated_at = record.at

    def paused(self, record: BudgetPaused) -> None:
        task = self._task(record.task)
        task.paused, task.updated_at = record.reason, record.at
        self.owed.add(task, "budget", task.owner)

    def budget_set(self, record: BudgetSet) -> None:
        task = self._task(record.task)
        task.cost_max, task.tokens_max = record.cost_micros, record.tokens
        task.updated_at = record.at
        if not task.over_budget:
            task.paused = ""
            self.owed.drop(task.id, "budget")

    def undoing(self, record: TaskUndoing) -> None:
        task = self._task(record.task)
        before = task.size
        task.add_undos(record.steps, record.uncertain, record.at)
        task.updated_at = record.at
        self._charge(task, task.size - before)
        for number in task.undos:
            self._touch(task, number)

    def notice_sent(self, record: NoticeSent) -> None:
        self.owed.drop(record.task, record.kind)

    def ended(self, record: StepsEnded) -> list[str]:
        """Returns the names of the steps."""
        task = self._task(record.task)
        outputs: Sequence[bytes | None] = record.outputs or [None] * len(record.steps)
        for number, output in zip(record.steps, outputs, strict=True):
            if record.status == "SUCCESS" and not record.code:
                self._take_signal(task, number)
            self._unlink(task, number)
            self._end(task, number, record.status, output, record.at, record.code, record.reason)
        return [task.name_of(number) for number in record.steps]

    def closing(self, record: TaskClosing) -> None:
        task = self._task(record.task)
        task.closing, task.hard = record.status, record.hard
        task.reason, task.by = record.reason, record.by
        task.updated_at = record.at

    def task_ended(self, record: TaskEnded, through: int) -> None:
        """`through`: the sequence after this record."""
        task = self._task(record.task)
        event = EVENT_OF["TIMEOUT" if record.status == "TIMEOUT" else "CANCELLED"]
        for number, step in enumerate(task.steps):
            if not step.ended:
                self._unlink(task, number)
                self._forget_letter(step)
                task.move(number, event, record.at)
                step.ended_at = record.at
                self._touch(task, number)
        task.open = 0
        task.paused = ""
        task.end = record.status
        task.updated_at = record.at
        task.reason = record.reason
        if record.status == "SUCCESS":
            task.returned = record.result
        del self.tasks[task.id]
        task.through = through
        if self.live:
            self.over[task.id] = over = shown(task)
            self.over_steps += len(task.steps)
            self.known.end(over)
        else:
            self.known.forget(task.sequence)
        task.shape.tasks -= 1
        if not task.shape.tasks:
            del self.shapes[task.plan]
            self._last_shape = task.shape
        self.keys.end(task, record, through)
        self._charge(task, -task.size)
        self.owed.end(task)

    def forget(self, applied: int | None, now: int) -> None:
        """Forget ended tasks that the store has; without a store (None), those that are old or too many."""
        self.keys.forget(applied, now)
        while self.over:
            id, oldest = next(iter(self.over.items()))
            few = len(self.over) <= OVER_MAX and self.over_steps <= OVER_STEPS_MAX
            if few if applied is None else oldest.task.through > applied:
                return
            del self.over[id]
            self.known.forget(oldest.task.sequence)
            self.over_steps -= len(oldest.steps)

    def collect(self, *, everything: bool = False) -> None:
        """From now on `take_rows` returns what changed; with `everything`, first every live task."""
        self.moved = {}
        if everything:
            self.moved = {task: dict.fromkeys(range(len(task.steps))) for task in self.tasks.values()}

    def take_rows(self) -> tuple[list[TaskView], list[StepView]]:
        """What changed since the last call, for the store."""
        tasks: list[TaskView] = []
        steps: list[StepView] = []
        if self.moved:
            moved, self.moved = self.moved, {}
            for task, numbers in moved.items():
                tasks.append(task_view(task))
                steps += [step_view(task, number) for number in numbers]
        return tasks, steps

    def _grow(self, task: Task, size: int) -> None:
        task.size += size
        self._charge(task, size)

    def _charge(self, task: Task, size: int) -> None:
        if self.live:
            self._charges.add(task.owner, size)

    def _touch(self, task: Task, number: int) -> None:
        if self.moved is not None:
            self.moved.setdefault(task, {})[number] = None

    def _task(self, id: str) -> Task:
        task = self.tasks[id]
        if self.moved is not None:
            self.moved.setdefault(task, {})
        if self.keep is not None:
            self.keep(task)
        self.changed[task] = None
        return task

    # -- what happens to their messages

    def _linked(self, sequence: int) -> Link | None:
        link = self.links.get(sequence)
        if link is not None:
            self._task(link.task.id)
            self._touch(*link)
        return link

    def has_step(self, sequences: Sequence[int]) -> bool:
        """Whether one of these messages is a step."""
        return not self.links.keys().isdisjoint(sequences)

    def steps_in(self, mailbox: str) -> int:
        """How many of the messages in this mailbox are steps."""
        return sum([link.step.mailbox == mailbox for link in self.links.values()])

    def granted(self, record: Granted) -> None:
        for token, sequence in enumerate(record.sequences, record.token):
            link = self._linked(sequence)
            if link is not None:
                step = link.task.move(link.number, "granted", record.at)
                self.by_token.pop(step.token, None)
                step.used = (0, 0)
                step.token, step.holder, step.granted_at = token, record.holder, record.at
                step.attempts += 1
                step.retry_at = 0
                self.by_token[token] = link

    def take(self, sequence: int, record: StepsTaken) -> Link | None:
        """Mark the step as taken: its holder reports later. None: no granted step has this message."""
        link = self._linked(sequence)
        if link is None or link.step.status != "RUNNING":
            return None
        step = link.step
        if not step.taken_ms:
            self.taken.add(step.mailbox, step.token)
        step.taken_ms, step.updated_at = record.lease_ms, record.at
        link.task.updated_at = record.at
        return link

    def taken_ms(self, sequence: int) -> int:
        """The lease of a step that is taken; 0: the message is not such a step."""
        link = self.links.get(sequence)
        return 0 if link is None else link.step.taken_ms

    def _untake(self, step: StepState) -> None:
        if step.taken_ms:
            step.taken_ms = 0
            self.taken.discard(step.mailbox, step.token)

    def lease_ms(self, sequence: int, asked_ms: int) -> int:
        """How long the lease of a step is; 0: the message is not a step. `asked_ms`: the length that the
        receiver asked for, if any. A lease is never longer than the time that one attempt may take.
        """
        link = self.links.get(sequence)
        if link is None:
            return 0
        plan = link.task.plan_of(link.number)
        length = asked_ms or plan.lease_ms
        return min(length, plan.attempt_timeout_ms) if plan.attempt_timeout_ms else length

    def returned(self, record: Returned) -> None:
        for i, sequence in enumerate(record.sequences):
            link = self._linked(sequence)
            if link is None:
                continue
            failure = record.failures[i] if record.failures else None
            self._untake(link.step)
            if record.cause in ABANDONING:
                step = link.task.move(link.number, "abandoned", record.at)
                step.abandoned += 1
            elif record.cause == "nack":
                step = link.task.move(link.number, "failed", record.at)
                step.failed += 1
            else:
                step = link.task.move(link.number, "given_back", record.at)
                step.attempts -= 1
            step.retry_at = record.due[i]
            if failure is not None:
                step.code, step.reason = failure.code, failure.reason

    def acked(self, sequences: Sequence[int], at: int) -> None:
        """Acked without a result: a success with null."""
        for sequence in sequences:
            link = self._linked(sequence)
            if link is not None:
                self._unlink(link.task, link.number)
                self._end(link.task, link.number, "SUCCESS", NULL, at)
            else:
                self._question_read(sequence)

    def dropped(self, record: Dropped) -> None:
        for sequence in record.sequences:
            link = self._linked(sequence)
            if link is not None:
                self._unlink(link.task, link.number)
                self._end(link.task, link.number, "FAILED", None, record.at, record.code or "dropped")
            else:
                self._question_gone(sequence, record.at, record.code or "dropped")

    def died(self, record: DeadLettered, base: int) -> None:
        for i, sequence in enumerate(record.sequences):
            link = self._linked(sequence)
            if link is None:
                self._question_gone(sequence, record.at, record.reason)
                continue
            failure: Failure | None = record.failures[i] if record.failures else None
            task, number = link
            self._unlink(task, number)
            step = task.move(number, "died", record.at)
            step.token = 0  # its last grant ended with it: after a redrive it settles nothing
            step.code, step.reason = record.reason, failure.reason if failure is not None else ""
            self._count_order(task, number)
            if task.caught(number):
                self._settled(task, number, None, record.at)
            else:
                task.dead += 1
                step.letter = (record.mailbox, base + i)
                self.letters[step.letter] = link

    def redriven(self, record: Redriven, sequence: int) -> None:
        link = self.letters.pop((record.source, record.dead_sequence), None)
        if link is not None:
            task = self._task(link.task.id)
            self._touch(*link)
            step = task.move(link.number, "redriven", record.at)
            step.letter = None
            step.abandoned = step.failed = step.order = 0
            step.code = step.reason = ""
            step.sent_at = record.at
            task.dead -= 1
            task.goes_out(link.number, sequence, record.mailbox)
            self.links[sequence] = link
            if self.live:
                self.deadlines.add_step(task, link.number)

    def purged(self, mailbox: str, dead_sequence: int, at: int) -> None:
        link = self.letters.get((mailbox, dead_sequence))
        if link is not None:
            task = self._task(link.task.id)
            self._forget_letter(link.step)
            task.dead -= 1
            step = task.move(link.number, "purged", at)
            step.code, step.reason = "purged", "its dead letter was purged"
            self._settled(task, link.number, None, at)

    def _take_signal(self, task: Task, number: int) -> None:
        wait, plan = task.steps[number].wait, task.plan_of(number).wait
        if wait is not None and wait.kind == "signal" and plan is not None and task.signals is not None:
            before = task.signals.size
            task.signals.take(plan.signal)
            self._grow(task, task.signals.size - before)

    def _question_read(self, sequence: int) -> None:
        """The answer may come later."""
        link = self.questions.pop(sequence, None)
        if link is not None and link.step.wait is not None:
            self._task(link.task.id)
            link.step.wait = msgspec.structs.replace(link.step.wait, sequence=-1)

    def _question_gone(self, sequence: int, at: int, code: str) -> None:
        """A question became a dead letter: the default is the output, if there is one."""
        link = self.questions.pop(sequence, None)
        if link is None:
            return
        task, number = self._task(link.task.id), link.number
        step, plan = task.steps[number], task.plan_of(number).wait
        if step.wait is None or plan is None:
            return
        step.wait = msgspec.structs.replace(step.wait, sequence=-1)
        self._unlink(task, number)
        if plan.default is not None:
            self._end(task, number, "SUCCESS", plan.default, at)
        else:
            self._end(task, number, "FAILED", None, at, code, "its question was not read")

    def _unlink(self, task: Task, number: int) -> None:
        """Remove the step's message, question and grant."""
        step = task.steps[number]
        self._untake(step)
        if step.sequence >= 0:
            del self.links[step.sequence]
            task.comes_in(number)
        if step.wait is not None:
            if self.questions.pop(step.wait.sequence, None) is not None and self.live:
                self.unasked[step.wait.sequence] = step.wait.asked
            task.waits_no_more(number)
            step.wait = None
        if step.token:
            self.by_token.pop(step.token, None)

    def _forget_letter(self, step: StepState) -> None:
        if step.letter is not None:
            self.letters.pop(step.letter, None)
            step.letter = None

    # -- after a restart

    def restored(self, task: Task) -> None:
        """A task of a checkpoint has all its steps now."""
        task.derive()
        self.known.begin(task)
        self.keys.begin(task)
        for number, step in enumerate(task.steps):
            link = Link(task, number)
            if step.sequence >= 0:
                self.links[step.sequence] = link
            if step.letter is not None:
                self.letters[step.letter] = link
            if step.token and (step.sequence >= 0 or step.parked is not None):
                self.by_token[step.token] = link
            if step.wait is not None and step.wait.sequence >= 0:
                self.questions[step.wait.sequence] = link
            if step.taken_ms:
                self.taken.add(step.mailbox, step.token)

    def go_live(self) -> None:
        """After a replay: build the timers, and check every task once."""
        self.deadlines = Deadlines(self.tasks)
        self.live = True
        self.changed = dict.fromkeys(self.tasks.values())
        for task in self.tasks.values():
            self._charge(task, task.size)
            self.deadlines.add_task(task)
            for number, step in enumerate(task.steps):
                if step.sent_at and not step.ended:
                    self.deadlines.add_step(task, number)
