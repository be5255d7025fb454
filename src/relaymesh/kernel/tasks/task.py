"""A task that has not ended: its plan and the state of each step. Only records change it (`board.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.payload import full_size
from relaymesh.kernel.records import NoticeKind
from relaymesh.kernel.tasks.plan import StepPlan, size_of
from relaymesh.kernel.tasks.shape import Group, PlanShape
from relaymesh.kernel.tasks.signals import Signals
from relaymesh.kernel.tasks.status import GOOD, TRANSITIONS, Event, Status
from relaymesh.kernel.tasks.step_state import StepState

TASK_BYTES = 1_024
STEP_BYTES = 384
"""Memory of a task and of a step, without their texts and values."""
OUTPUT_BYTES_MAX = 4_194_304
"""Outputs that a task may keep in memory; of outputs in files only the references count."""
FILED_BYTES_MAX = 67_108_864
"""Outputs that a task may keep, with those in files: its result must fit into the memory of a client."""
UNDO = "!undo"
"""The suffix of the name of a step that undoes another."""

NULL = b"null"


class Task:
    """One live task. `steps` begins with those of the plan, in its order; items of a `for_each`, groups and
    steps that undo others follow, as they are added."""

    __slots__ = (
        "_plans",
        "_queues",
        "again_of",
        "at",
        "blocked",
        "by",
        "closing",
        "cost",
        "cost_max",
        "dead",
        "deadline_at",
        "end",
        "groups",
        "hard",
        "id",
        "input",
        "kept",
        "key",
        "listening",
        "namespace",
        "notify",
        "open",
        "orders",
        "owner",
        "paused",
        "plan",
        "ready",
        "reason",
        "reply_to",
        "request",
        "returned",
        "revision",
        "root",
        "sequence",
        "shape",
        "signals",
        "size",
        "started",
        "steps",
        "steps_out",
        "through",
        "tokens",
        "tokens_max",
        "trace",
        "undos",
        "updated_at",
        "waiting",
    )

    def __init__(
        self,
        id: str,
        sequence: int,
        shape: PlanShape,
        input: bytes,
        key: str,
        request: bytes,
        owner: str,
        trace: str | None,
        at: int,
    ) -> None:
        self.id = id
        self.sequence = sequence
        self.shape = shape
        self.plan = plan = shape.plan
        self.root = Group(0, shape, input)
        self.input = input
        self.key = key
        self.request = request
        self.owner = owner
        self.namespace = namespace_of(owner)
        self.trace = trace
        self.at = self.updated_at = at
        self.deadline_at = at + plan.deadline_ms if plan.deadline_ms else 0
        self.reply_to = ""
        """The mailbox that gets the outcome as mail; empty: none."""
        self.notify: tuple[NoticeKind, ...] = ()
        """What the owner gets mail about."""
        self.again_of = ""
        """The task whose outcomes this one took over."""
        self.steps = [
            StepState(waits_for=needs, readers=readers, updated_at=at)
            for needs, readers in zip(shape.needs, shape.readers, strict=True)
        ]
        self._begin()
        self._begin_to_follow()
        for number in shape.roots:
            self.make_ready(number)

    def _begin(self) -> None:
        """Nothing happened yet."""
        self.closing: Status | None = None
        """How the task will end although not every step has run."""
        self.end: Status | None = None
        """How it ended; None while it lives."""
        self.returned: bytes | None = None
        """The result of a success."""
        self.through = 0
        """The sequence after the record that ended it."""
        self.hard = False
        """Whether leased messages are withdrawn too when it closes."""
        self.reason = ""
        self.by = ""
        self.cost = self.tokens = 0
        """What its attempts have used: micro-dollars, and tokens of models."""
        self.cost_max, self.tokens_max = self.plan.cost_micros, self.plan.tokens
        """Its budget; 0: no limit."""
        self.paused = ""
        """Why it sends nothing until it gets a larger budget; empty: it does."""
        self.blocked = ""
        """Volatile. Why its ready steps could not be sent; empty: they could."""
        self.revision = self.sequence
        """Volatile. Grows with each change, also over a restart, because the sequences of events do."""
        self.started = False
        self.kept = 0
        """Bytes of the outputs kept here."""
        self.signals: Signals | None = None
        """Signals that came, once there is one."""
        self.orders = 0
        """Ends of steps that can be undone, so far."""
        self.groups: dict[int, Group] = {}
        """By the step that goes on as them."""
        self.undos = range(0)
        """The steps that undo others, in their order; empty: it does not undo anything."""

    def _begin_to_follow(self) -> None:
        """What follows from its steps, as computed by `derive`."""
        self._plans: list[StepPlan] = list(self.plan.steps)
        """The plan of each step."""
        self.open = len(self.steps)
        """Steps that have not ended."""
        self.dead = 0
        """Steps that are dead letters."""
        self.steps_out: dict[int, None] = {}
        """Steps whose messages are not settled."""
        self.waiting: dict[int, None] = {}
        """Steps that wait for an answer, a time or a signal."""
        self.listening: dict[str, dict[int, None]] = {}
        """Those that wait for a signal, by its name."""
        self.ready: dict[int, None] = {}
        """Steps whose needs have ended and that were not sent."""
        self._queues: dict[int, dict[int, None]] = {}
        """`ready` by parent: a window that is full is passed over as a whole."""
        self.size = TASK_BYTES + self.shape.size + full_size(self.input) + STEP_BYTES * len(self.steps)
        """Bytes that its owner pays for."""

    # -- what follows from the states of the steps

    def derive(self) -> None:
        """Compute everything that follows from the states of the steps."""
        steps = self.steps
        self._plans = []
        for number in range(len(steps)):
            self._plans.append(self._plan_for(number))
        self.open = sum([not step.ended for step in steps])
        self.steps_out = {number: None for number, step in enumerate(steps) if step.sequence >= 0}
        self.waiting = {}
        self.listening = {}
        waiting = [number for number, step in enumerate(steps) if step.wait is not None]
        for number in sorted(waiting, key=lambda number: steps[number].sent_at):
            self.begins_to_wait(number)
        self.dead = sum([step.letter is not None for step in steps])
        self.kept = sum([len(step.output) for step in steps if step.output is not None])
        undos = [number for number, step in enumerate(steps) if step.undoes >= 0]
        self.undos = range(undos[0], undos[-1] + 1) if undos else range(0)
        self._derive_families()
        self._derive_readers()
        self._derive_ready()
        self.size = TASK_BYTES + self.shape.size + full_size(self.input) + STEP_BYTES * len(steps)
        self.size += sum([len(step.item or b"") + len(step.parked or b"") for step in steps])
        self.size += sum([size_of(group.shape.steps) for group in self.groups.values()])
        self.size += 0 if self.signals is None else self.signals.size

    def _plan_for(self, number: int) -> StepPlan:
        step = self.steps[number]
        if step.undoes >= 0:
            undo = self._plans[step.undoes].undo
            assert undo is not None, "only a step with a compensation is undone"
            return undo
        if step.parent < 0:
            return self.plan.steps[number]
        group = self.groups.get(step.parent)
        return self._plans[step.parent] if group is None else group.shape.steps[number - group.first]

    def _derive_families(self) -> None:
        steps = self.steps
        for step in steps:
            step.open_items = step.items_out = 0
            step.items = range(0)
        for number, step in enumerate(steps):
            if step.parent >= 0:
                parent = steps[step.parent]
                parent.items = range(parent.items.start if parent.items else number, number + 1)
                parent.open_items += not step.ended
                parent.items_out += step.sequence >= 0

    def _derive_readers(self) -> None:
        steps = self.steps
        for step in steps:
            step.readers = 0
        for parent, group in [(-1, self.root), *self.groups.items()]:
            if parent < 0 or not steps[parent].ended:
                for leaf in group.shape.leaves:
                    steps[group.first + leaf].readers += 1
        for number, step in enumerate(steps):
            for source in self.sources(number):
                steps[source].readers += 1
            if self._plans[number].undo is not None:
                step.readers += 1

    def sources(self, number: int) -> Iterator[int]:
        """The steps whose outputs one step keeps: those that it reads before it is sent, those that its new
        steps may read while it is open, and those that undoing it reads.
        """
        step, plan, home = self.steps[number], self._plans[number], self.home_of(number)
        if home is None or step.undoes >= 0:
            return
        if not step.sent_at and not step.ended and step.parked is None:
            yield from self.reads(home, plan)
        if not step.ended:
            yield from [home.first + each for each in plan.sees]
        if plan.undo is not None:
            yield from self.reads(home, plan.undo)

    @staticmethod
    def reads(home: Group, plan: StepPlan) -> list[int]:
        """The steps whose outputs the expressions of one read."""
        return [*[home.first + each for each in plan.refers], *plan.outer]

    def _derive_ready(self) -> None:
        self.ready, self._queues = {}, {}
        next_undo = self.next_undo
        for number, step in enumerate(self.steps):
            step.waits_for = sum([not self.steps[need].ended for need in set(self.needs_of(number))])
            if step.status != "PENDING" or step.sent_at or step.waits_for:
                continue
            if not self.undos or number == next_undo:
                self.make_ready(number)

    # -- its parts

    @property
    def out(self) -> int:
        """Messages of steps that are not settled."""
        return len(self.steps_out)

    @property
    def sends(self) -> bool:
        """Whether its ready steps may be sent: not if it closes or is paused, unless it undoes."""
        return bool(self.undos) or (self.closing is None and not self.paused)

    @property
    def over_budget(self) -> bool:
        return (0 < self.cost_max <= self.cost) or (0 < self.tokens_max <= self.tokens)

    @property
    def next_undo(self) -> int:
        """The next step that undoes another; -1: none is left."""
        return next((number for number in self.undos if not self.steps[number].ended), -1)

    def plan_of(self, number: int) -> StepPlan:
        return self._plans[number]

    def is_item(self, number: int) -> bool:
        """Whether it is one item of a `for_each`."""
        parent = self.steps[number].parent
        return parent >= 0 and parent not in self.groups

    def has_items(self, number: int) -> bool:
        """Whether it is done once for each item of a list."""
        return bool(self._plans[number].for_each) and not self.is_item(number)

    def home_of(self, number: int) -> Group | None:
        """The group of a step; None: it is an item, which has no group."""
        step = self.steps[number]
        if step.undoes >= 0:
            return self.home_of(step.undoes)
        return self.root if step.parent < 0 else self.groups.get(step.parent)

    def scope_of(self, number: int) -> Group:
        """The group whose step names the expressions of a step may use."""
        while (home := self.home_of(number)) is None:
            step = self.steps[number]
            number = step.undoes if step.undoes >= 0 else step.parent
        return home

    def input_of(self, number: int) -> bytes:
        """The value of `input` in the expressions of a step."""
        while True:
            scope = self.scope_of(number)
            if scope.input is not None:
                return scope.input
            number = self.steps[scope.first].parent

    def needs_of(self, number: int) -> list[int]:
        home = self.home_of(number)
        if home is None or self.steps[number].undoes >= 0:
            return []
        return [home.first + need for need in self._plans[number].needs]

    def followers_of(self, number: int) -> list[int]:
        """The steps that need this one."""
        home = self.home_of(number)
        if home is None or self.steps[number].undoes >= 0:
            return []
        return [home.first + each for each in home.shape.followers[number - home.first]]

    def depth_of(self, number: int) -> int:
        """How deep the groups are nested at this step."""
        depth = 0
        while (number := self.steps[number].parent) >= 0:
            depth += number in self.groups
        return depth

    def name_of(self, number: int) -> str:
        """`build`, `build/3` for an item of it, `build/link` for a step of its group, `build!undo`."""
        step = self.steps[number]
        if step.undoes >= 0:
            return self.name_of(step.undoes) + UNDO
        if step.parent < 0:
            return self._plans[number].name
        own = self._plans[number].name if step.parent in self.groups else step.index
        return f"{self.name_of(step.parent)}/{own}"

    def find(self, name: str) -> int | None:
        """The step of this name: the reverse of `name_of`."""
        if name.endswith(UNDO):
            undone = self.find(name.removesuffix(UNDO))
            return next((each for each in self.undos if self.steps[each].undoes == undone), None)
        number = self.shape.find(name)
        if number is not None:
            return number
        above, slash, own = name.rpartition("/")
        parent = self.find(above) if slash else None
        if parent is None:
            return None
        group, items = self.groups.get(parent), self.steps[parent].items
        if group is not None:
            inner = group.shape.find(own)
            return None if inner is None else group.first + inner
        if not own.isdecimal() or not own.isascii() or len(own) > 6 or int(own) >= len(items):
            return None
        number = items[int(own)]
        return number if self.name_of(number) == name else None

    # -- moves

    def make_ready(self, number: int) -> None:
        self.ready[number] = None
        self._queues.setdefault(self.steps[number].parent, {})[number] = None

    def sort_ready(self) -> None:
        """Steps that are ready again get their old positions, as they would after a restart."""
        for parent, queue in self._queues.items():
            self._queues[parent] = dict.fromkeys(sorted(queue))

    def not_ready(self, number: int) -> None:
        """It was sent, or ended."""
        if number in self.ready:
            del self.ready[number]
            parent = self.steps[number].parent
            queue = self._queues[parent]
            del queue[number]
            if not queue:
                del self._queues[parent]

    def goes_out(self, number: int, sequence: int, mailbox: str) -> None:
        """From now on this message belongs to the step."""
        step = self.steps[number]
        step.sequence, step.mailbox = sequence, mailbox
        self.steps_out[number] = None
        if step.parent >= 0:
            self.steps[step.parent].items_out += 1

    def comes_in(self, number: int) -> None:
        """Its message is settled."""
        step = self.steps[number]
        step.sequence = -1
        del self.steps_out[number]
        if step.parent >= 0:
            self.steps[step.parent].items_out -= 1

    def begins_to_wait(self, number: int) -> None:
        self.waiting[number] = None
        plan = self._plans[number].wait
        if plan is not None and plan.signal:
            self.listening.setdefault(plan.signal, {})[number] = None

    def waits_no_more(self, number: int) -> None:
        del self.waiting[number]
        plan = self._plans[number].wait
        if plan is not None and plan.signal:
            listening = self.listening[plan.signal]
            del listening[number]
            if not listening:
                del self.listening[plan.signal]

    def add_items(self, parent: int, items: list[bytes], at: int) -> None:
        """A step is done once for each of these."""
        new = [
            StepState(parent=parent, item=item, index=each, updated_at=at) for each, item in enumerate(items)
        ]
        self._add(new)
        for number in self.steps[parent].items:
            self.make_ready(number)
        self.size += sum(map(len, items))

    def add_group(self, parent: int, group: Group, at: int) -> None:
        """A step goes on as these."""
        self.groups[parent] = group
        self._add([StepState(parent=parent, updated_at=at) for _ in group.shape.steps])
        self.size += size_of(group.shape.steps)
        for leaf in group.shape.leaves:
            self.steps[group.first + leaf].readers += 1
        for number in self.steps[parent].items:
            for source in self.sources(number):
                self.steps[source].readers += 1
            step = self.steps[number]
            step.waits_for = len(set(self._plans[number].needs))
            step.readers += self._plans[number].undo is not None
            if not step.waits_for:
                self.make_ready(number)

    def add_undos(self, steps: list[int], uncertain: list[bool], at: int) -> None:
        """From now on only these steps run, one after the other."""
        first = len(self.steps)
        self.ready, self._queues = {}, {}
        pairs = zip(steps, uncertain, strict=True)
        self._add([StepState(undoes=number, uncertain=doubt, updated_at=at) for number, doubt in pairs])
        self.undos = range(first, len(self.steps))
        self.make_ready(first)

    def _add(self, new: list[StepState]) -> None:
        first = len(self.steps)
        parent = new[0].parent if new else -1
        self.steps += new
        for number in range(first, len(self.steps)):
            self._plans.append(self._plan_for(number))
        if parent >= 0:
            self.steps[parent].items = range(first, len(self.steps))
            self.steps[parent].open_items = len(new)
        for number in range(first, len(self.steps)):
            if self._plans[number].undo is not None and parent not in self.groups:
                self.steps[number].readers += 1
        self.open += len(new)
        self.size += STEP_BYTES * len(new)

    def move(self, number: int, event: Event, at: int) -> StepState:
        """Change the state of a step by the table."""
        step = self.steps[number]
        step.status = TRANSITIONS[step.status, event]
        step.updated_at = self.updated_at = at
        if step.status != "PENDING":
            self.started = True
        return step

    # -- what may happen next

    def times_out_at(self, number: int) -> int:
        """When its wait is over, or its message is taken back; 0: it has none, or no limit."""
        step, limit_ms = self.steps[number], self._plans[number].timeout_ms
        if step.wait is not None:
            return step.wait.until
        return step.sent_at + limit_ms if limit_ms and step.sequence >= 0 else 0

    def catches(self, number: int) -> bool:
        """Whether the plan of the step itself catches its failure."""
        return self._plans[number].on_failure != "fail"

    def caught(self, number: int) -> bool:
        """Whether the task survives a failure of this step: the plan of the step catches it, or that of a
        step which it replaced.
        """
        while number >= 0:
            if self.catches(number):
                return True
            number = self.steps[number].parent
        return False

    def runs_if_it_may(self, number: int) -> bool:
        """Whether a ready step should run. It should not if one of its needs failed and a handler took
        over, or if it is a handler of a step that did not fail."""
        home = self.home_of(number)
        for need in self.needs_of(number):
            plan = self._plans[need]
            if plan.on_failure == "handle" and home is not None:
                handles = home.first + plan.handler == number
                if handles == (self.steps[need].status in GOOD):
                    return False
        return True

    def may_send(self, most: int, shut: Callable[[int], bool] | None = None) -> list[int]:
        """Ready steps for which the windows have room, up to a maximum. Steps that are `shut` are skipped;
        for the items of one step this is decided once.
        """
        found: list[int] = []
        room = min(most, self.plan.out_max - self.out)
        for parent, queue in self._queues.items():
            if len(found) >= room:
                break
            numbers: Iterable[int] = queue
            alike = parent >= 0 and parent not in self.groups
            if shut is not None and not alike:
                numbers = (number for number in queue if not shut(number))
            elif shut is not None and shut(next(iter(queue))):
                continue
            found += islice(numbers, min(room - len(found), self.room_in(parent)))
        return found

    @property
    def can_send(self) -> bool:
        """Whether the windows have room for a ready step."""
        if len(self.steps_out) >= self.plan.out_max:
            return False
        for parent in self._queues:  # noqa: SIM110 - hot: no generator
            if self.room_in(parent):
                return True
        return False

    def room_in(self, parent: int) -> int:
        """How many more items of this step may be out; -1: steps of the plan."""
        if parent < 0 or parent in self.groups:
            return self.plan.out_max
        limit = self._plans[parent].parallel or self.plan.out_max
        return max(0, limit - self.steps[parent].items_out)

    def to_undo(self) -> list[tuple[int, bool]]:
        """The steps to undo, the last one first, and whether it is uncertain that they were done."""
        found: list[tuple[int, int, bool]] = []
        for number, step in enumerate(self.steps):
            if self._plans[number].undo is None or not step.order:
                continue
            grew = number in self.groups
            if step.status == "SUCCESS" or grew:
                if step.attempts:
                    found.append((step.order, number, False))
            elif step.attempts and (step.status != "FAILED" or step.code == "purged"):
                found.append((step.order, number, True))
        return [(number, uncertain) for _, number, uncertain in sorted(found, reverse=True)]

    @property
    def status(self) -> Status:
        """The state of the task, while it lives."""
        if not self.started:
            return "PENDING"
        if self.stuck:
            return "DEAD_LETTER"
        return "RUNNING"

    @property
    def stuck(self) -> bool:
        """The task waits only for dead letters: it goes on after a redrive, or is cancelled."""
        return self.dead > 0 and not self.out and not self.ready and not self.waiting

    def result(self, group: Group | None = None) -> bytes:
        """The output of the last step, or an object of the outputs of all last steps by name."""
        first, shape, _, _ = group or self.root
        if len(shape.leaves) == 1:
            return self.steps[first + shape.leaves[0]].output or NULL
        pairs = [
            b'"%s":%s' % (shape.steps[number].name.encode(), self.steps[first + number].output or NULL)
            for number in shape.leaves
        ]
        return b"{" + b",".join(pairs) + b"}"
