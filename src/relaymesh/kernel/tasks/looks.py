"""Queries about live tasks, and about tasks that ended a moment ago. Older ones are in the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.choosing import refusal
from relaymesh.kernel.tasks.commands import ADVANCE_MESSAGES_MAX
from relaymesh.kernel.tasks.known import LOOKS_MAX
from relaymesh.kernel.tasks.plan import WaitPlan
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.views import StepGrant, TaskShown, TaskView, shown, task_view


class ReadyStep(msgspec.Struct, frozen=True, gc=False):
    """A step that may be sent now, with all that its expressions may read."""

    number: int
    name: str
    action: Literal["send", "skip"]
    """`skip`: one of its needs failed and a handler took over, or it is a handler that is not needed."""
    input: bytes
    dynamic: bool
    when: str = ""
    for_each: str = ""
    """Empty for an item, which was already expanded."""
    item: bytes | None = None
    index: int = 0
    outputs: tuple[tuple[str, bytes], ...] = ()
    """Name and output of each step that it refers to."""
    capability: str = ""
    """The capability that its agent must have; empty: the plan names the agent."""
    scope: bytes | None = None
    """The value of `input` in its expressions; None: the input of the task."""
    parked: bytes | None = None
    """The content of its message, which was taken back: it is sent again unchanged."""
    wait: WaitPlan | None = None
    timeout_ms: int = 0
    include: str = ""
    undoes: str = ""
    """The step that it undoes; empty: none."""
    output: bytes | None = None
    """With `undoes`: the output of that step; None: it is uncertain that it has one."""
    uncertain: bool = False


class ReadyTask(msgspec.Struct, frozen=True, gc=False):
    """What there is to advance in one task."""

    task: str
    workflow: str
    namespace: str
    input: bytes
    steps: tuple[ReadyStep, ...]
    deadline_at: int = 0


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """The tasks that a list shows; None: all."""

    namespace: str | None = None
    status: Status | None = None
    workflow: str | None = None

    def fits(self, view: TaskView) -> bool:
        return (
            (self.namespace is None or view.owner.startswith(self.namespace + "/"))
            and (self.status is None or view.status == self.status)
            and (self.workflow is None or view.workflow == self.workflow)
        )

    def fits_live(self, task: Task) -> bool:
        """The same without a view: a list passes over many more tasks than it shows."""
        return (
            (self.namespace is None or task.namespace == self.namespace)
            and (self.status is None or task.status == self.status)
            and (self.workflow is None or task.plan.name == self.workflow)
        )


class TasksPart(msgspec.Struct, frozen=True, gc=False):
    """Some tasks, the newest first. `next`: those behind were submitted before it; None: there are none."""

    tasks: list[TaskView]
    next: int | None = None


def find(state: State, id: str) -> TaskShown | None:
    """A live task, or one that ended and that the store may not have yet."""
    task = state.board.tasks.get(id)
    return shown(task) if task is not None else state.board.over.get(id)


def last_grants(state: State, tokens: Sequence[int]) -> dict[int, str]:
    """The mailbox of each token that is the last one of an open step: such a token may settle late."""
    links = state.board.by_token
    return {token: links[token].step.mailbox for token in tokens if token in links}


def grant_of(state: State, id: str, name: str) -> StepGrant | None:
    """The last grant of a step of a live task; None: there is no such task or step."""
    task = state.board.tasks.get(id)
    number = None if task is None else task.find(name)
    if task is None or number is None:
        return None
    step = task.steps[number]
    counts = step.sequence >= 0 and step.token in state.board.by_token
    entry = state.mailboxes[step.mailbox].entries.look(step.sequence) if counts else None
    return StepGrant(
        task.owner,
        step.mailbox or task.plan_of(number).mailbox,
        step.status,
        step.token if counts else 0,
        0 if entry is None else entry.attempts,
        step.sequence,
        step.token in state.leases,
    )


class Question(msgspec.Struct, frozen=True, gc=False):
    """The step that waits for the answer to a question."""

    owner: str
    """Of the task."""
    task: str
    step: str
    sequence: int


def question_of(state: State, mailbox: str, id: str) -> Question | None:
    """The step that asks with this message of this mailbox; None: none waits for its answer."""
    for sequence, link in state.board.questions.items():
        if link.step.mailbox != mailbox:
            continue
        entry = state.mailboxes[mailbox].entries.look(sequence)
        if entry is not None and entry.envelope.id == id:
            task = link.task
            return Question(task.owner, task.id, task.name_of(link.number), sequence)
    return None


def tasks_of(state: State, wanted: Wanted, limit: int, before: int | None) -> TasksPart:
    """The newest first: live ones, and those that ended a moment ago. Looks at `LOOKS_MAX` at most."""
    found: list[TaskView] = []
    for looks, (sequence, known) in enumerate(state.board.known.before(before), 1):
        if isinstance(known, Task):
            if wanted.fits_live(known):
                found.append(task_view(known))
        elif known is not None and wanted.fits(known.task):
            found.append(known.task)
        if len(found) >= limit or looks >= LOOKS_MAX:
            return TasksPart(found, sequence)
    return TasksPart(found)


def known_of(state: State, ids: Sequence[str]) -> frozenset[str]:
    """Those of these tasks that are live, or ended a moment ago."""
    board = state.board
    return frozenset([id for id in ids if id in board.tasks or id in board.over])


def ready_of(state: State, id: str) -> ReadyTask | None:
    """What may be sent now; None: nothing. Steps whose mailbox takes no steps now are skipped, so that they
    do not delay others. If there are only such steps, they are returned: the advance then says why they wait.
    """
    task = state.board.tasks.get(id)
    if task is None or not task.sends:
        return None
    numbers: list[int] = []
    if len(task.ready) > 1:
        numbers = task.may_send(ADVANCE_MESSAGES_MAX, partial(_is_shut, state, task, {}))
    numbers = numbers or task.may_send(ADVANCE_MESSAGES_MAX)
    if not numbers:
        return None
    steps = tuple([_ready(task, number) for number in numbers])
    return ReadyTask(task.id, task.plan.name, task.namespace, task.input, steps, task.deadline_at)


def _is_shut(state: State, task: Task, known: dict[str, bool], number: int) -> bool:
    """Whether the mailbox of a ready step takes no message now. `known`: what was found out before."""
    plan = task.plan_of(number)
    address = plan.mailbox
    if not address or task.has_items(number):
        return False  # its agent is chosen later; or it only gets its items
    if address not in known:
        known[address] = bool(refusal(state, address)) or not state.mailboxes[address].room_for(1, 0)
    return known[address]


def _ready(task: Task, number: int) -> ReadyStep:
    step, plan = task.steps[number], task.plan_of(number)
    is_item = task.is_item(number)
    home = task.scope_of(number)
    sources = [*plan.outer, *[home.first + each for each in plan.refers]]  # a name of its own group counts
    outputs = tuple([(task.plan_of(each).name, task.steps[each].output or b"null") for each in sources])
    undone = task.steps[step.undoes] if step.undoes >= 0 else None
    of = step if undone is None else undone
    return ReadyStep(
        number,
        task.name_of(number),
        "send" if task.runs_if_it_may(number) else "skip",
        plan.input,
        plan.dynamic,
        "" if is_item else plan.when,
        "" if is_item else plan.for_each,
        of.item,
        of.index,
        outputs,
        plan.capability,
        task.input_of(number) if task.groups else None,
        step.parked,
        plan.wait,
        plan.timeout_ms,
        plan.include,
        task.name_of(step.undoes) if undone is not None else "",
        None if undone is None or step.uncertain else undone.output,
        step.uncertain,
    )


def to_advance(state: State) -> list[str]:
    """Tasks that have something to send, at the start of a node or after a refusal."""
    return [task.id for task in state.board.tasks.values() if task.sends and task.can_send]


class StepBounds(msgspec.Struct, frozen=True, gc=False):
    """What an attempt of a step may still use. None: no limit."""

    cost_micros: int | None = None
    """Of the budget of its task, in millionths of a dollar."""
    tokens: int | None = None
    ends_at: int | None = None
    """When the step or its task is out of time."""


def step_bounds(state: State, token: int) -> StepBounds | None:
    """The bounds for the holder of this grant; None: the grant is not the last one of a step."""
    link = state.board.by_token.get(token)
    if link is None:
        return None
    task = link.task
    ends = [at for at in (task.deadline_at, task.times_out_at(link.number)) if at]
    return StepBounds(
        max(0, task.cost_max - task.cost) if task.cost_max else None,
        max(0, task.tokens_max - task.tokens) if task.tokens_max else None,
        min(ends, default=None),
    )


class Scope(msgspec.Struct, frozen=True, gc=False):
    """What the steps that replace a step may read: names of steps, and their numbers in the task."""

    task: str
    step: str
    namespace: str
    names: dict[str, int]


def growth_of(state: State, token: int) -> Scope | None:
    """The scope of the steps that the holder of this grant may add; None: it is not the last grant of a
    step."""
    link = state.board.by_token.get(token)
    if link is None:
        return None
    task, number = link
    names: dict[str, int] = {}
    inner = number
    while inner >= 0:
        home = task.scope_of(inner)
        for each in task.plan_of(inner).sees:
            names.setdefault(task.plan_of(home.first + each).name, home.first + each)
        if home is task.root or home.input is not None:
            break
        inner = task.steps[home.first].parent
    return Scope(task.id, task.name_of(number), task.namespace, names)
