"""What the journal tells of one task and of each of its steps, and what their plan means: said once more.

Plans are read as plain lists: nothing here is shared with the kernel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from relaymesh.testing.simulation.workflows import ITEM, OUTPUT, UNDONE, condition

GOOD = ("SUCCESS", "SKIPPED")
ENDS = ("SUCCESS", "FAILED", "TIMEOUT", "SKIPPED", "CANCELLED")
UNDO = "!undo"
FIELDS: tuple[tuple[str, Any], ...] = (
    ("name", ""),
    ("mailbox", ""),
    ("input", b"null"),
    ("dynamic", False),
    ("needs", ()),
    ("refers", ()),
    ("when", ""),
    ("for_each", ""),
    ("parallel", 0),
    ("on_failure", "fail"),
    ("handler", -1),
    ("max_attempts", 3),
    ("max_abandoned", 10),
    ("lease_ms", 15_000),
    ("attempt_timeout_ms", 0),
    ("timeout_ms", 0),
    ("priority", 2),
    ("key", None),
    ("capability", ""),
    ("wait", None),
    ("include", ""),
    ("grows", False),
    ("sees", ()),
    ("outer", ()),
    ("undo", None),
)
WAIT_FIELDS: tuple[tuple[str, Any], ...] = (("kind", ""), ("signal", ""), ("options", ()), ("default", None))


def fields_of(plan: list[Any], known: tuple[tuple[str, Any], ...] = FIELDS) -> dict[str, Any]:
    """A plan of one step by the names of its fields."""
    given = dict(zip([name for name, _ in known], plan, strict=False))
    found = {**dict(known), **given}
    if known is FIELDS and found["wait"] is not None:
        found["wait"] = fields_of(found["wait"], WAIT_FIELDS)
    if known is FIELDS and found["undo"] is not None:
        found["undo"] = fields_of(found["undo"])
    return found


@dataclass(slots=True, eq=False)
class StepTold:
    """One step of the plan, one item of a step, one step of a group, or one that undoes another."""

    task: TaskTold
    number: int
    plan: dict[str, Any]
    parent: StepTold | None = None
    index: int = 0
    item: Any = None
    status: str = "PENDING"
    """PENDING until it ends; OUT while its message is not settled; WAITS while it waits; DEAD while its
    letter waits.
    """
    ended: bool = False
    ended_at: int = -1
    output: Any = None
    code: str = ""
    """Why it did not end well."""
    sent_at: int = -1
    token: int = 0
    """Of its last grant."""
    outcome: int = 0
    """The token whose holder ended it."""
    granted_at: int = 0
    attempts: int = 0
    """Grants but for those that were given back."""
    failed: int = 0
    abandoned: int = 0
    items: list[StepTold] = field(default_factory=list)
    """What it goes on as: its items, or its group."""
    expanded: bool = False
    is_group: bool = False
    """Whether it goes on as a group."""
    first: int = 0
    """The number of the first step of its own group."""
    redriven: bool = False
    grants: list[int] = field(default_factory=list)
    until: int = 0
    """When its wait is over; 0: never."""
    parked: bytes | None = None
    """The content of its message, while that is taken back."""
    done: int = 0
    """When its work was over, counted in its task."""
    undoes: StepTold | None = None
    uncertain: bool = False

    @property
    def catches(self) -> bool:
        """Whether its own plan catches its failure."""
        return bool(self.plan["on_failure"] != "fail")

    @property
    def caught(self) -> bool:
        return self.catches or (self.parent is not None and self.parent.caught)

    @property
    def is_item(self) -> bool:
        return self.parent is not None and not self.parent.is_group

    @property
    def name(self) -> str:
        if self.undoes is not None:
            return self.undoes.name + UNDO
        own = str(self.plan["name"])
        if self.parent is None:
            return own
        return f"{self.parent.name}/{own if self.parent.is_group else self.index}"

    def __str__(self) -> str:
        return f"step {self.name} of task {self.task.id}"


@dataclass(slots=True, eq=False)
class TaskTold:
    """One task. `closing`: how it will end whatever its steps do."""

    id: str
    at: int
    key: str
    request: bytes
    owner: str
    input: Any
    plan: list[Any]
    deadline_at: int
    steps: list[StepTold] = field(default_factory=list)
    count: int = 0
    """Steps of the plan itself."""
    closing: str = ""
    hard: bool = False
    asked: list[tuple[int, str, bool]] = field(default_factory=list)
    """Records that closed it: when, how, whether hard."""
    end: str = ""
    ended_at: int = 0
    result: Any = None
    raw: bytes | None = None
    """The result of a success, as it is written."""
    sequence: int = 0
    """Of the event that submitted it."""
    through: int = 0
    """Behind the event that ended it."""
    reply_to: str = ""
    notify: tuple[str, ...] = ()
    signals: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Name, id and value of those that no step took yet, as they came."""
    signal_ids: set[str] = field(default_factory=set)
    works_done: int = 0
    undos: list[StepTold] = field(default_factory=list)
    budget: tuple[int, int] = (0, 0)
    """Micro-dollars and tokens; 0: no limit."""
    budgets: list[tuple[int, int]] = field(default_factory=list)
    """Every budget that it had."""
    used: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What the attempt under each token used: its last total."""
    paused: bool = False

    @property
    def out(self) -> list[StepTold]:
        return [step for step in self.steps if step.status == "OUT"]

    @property
    def dead(self) -> list[StepTold]:
        return [step for step in self.steps if step.status == "DEAD"]

    @property
    def total(self) -> tuple[int, int]:
        """What all its attempts used."""
        return sum(cost for cost, _ in self.used.values()), sum(tokens for _, tokens in self.used.values())

    @property
    def over_budget(self) -> bool:
        return any(0 < most <= used for most, used in zip(self.budget, self.total, strict=True))

    def by_name(self, name: str) -> StepTold:
        return next(step for step in self.steps if step.name == name)


# -- what a plan means


def needs_of(step: StepTold) -> list[StepTold]:
    if step.is_item or step.undoes is not None:
        return []
    return [step.task.steps[step.first + each] for each in step.plan["needs"]]


def runs(step: StepTold) -> bool:
    """Whether the plan wants a step to run, now that its needs have ended."""
    if step.is_item or step.undoes is not None:
        return True
    for need in needs_of(step):
        if need.plan["on_failure"] == "handle":
            failed = need.status not in GOOD
            if failed != (step.first + need.plan["handler"] == step.number):
                return False
    return condition(step.plan["when"], step.task.input)


def input_of(step: StepTold) -> Any:
    """The input of a step, with its few expressions filled in."""
    values = json.loads(step.plan["input"])
    home = step if step.undoes is None else step.undoes
    of_item = home
    while home.is_item:
        assert home.parent is not None
        home = home.parent
    numbers = [*step.plan["outer"], *[home.first + each for each in step.plan["refers"]]]
    outputs = {
        OUTPUT % source.plan["name"]: source.output for source in map(step.task.steps.__getitem__, numbers)
    }
    for name, value in values.items():
        if value == ITEM:
            values[name] = of_item.item
        elif value == UNDONE and step.undoes is not None:
            values[name] = None if step.uncertain else step.undoes.output
        elif isinstance(value, str) and value in outputs:
            values[name] = outputs[value]
    return values


def message_of(step: StepTold) -> dict[str, Any]:
    """What the message of a step says."""
    task = step.task
    wanted = {"task": task.id, "step": step.name, "workflow": task.plan[0], "input": input_of(step)}
    if task.deadline_at:
        wanted["deadline"] = iso(task.deadline_at)
    if step.undoes is not None:
        wanted |= {"undoes": step.undoes.name, "uncertain": step.uncertain}
    return wanted


def result_of(steps: list[StepTold]) -> Any:
    """The output of the last of steps that stand together, or those of all last ones by name."""
    first = steps[0].first
    needed = {first + each for step in steps for each in step.plan["needs"]}
    handlers = {first + step.plan["handler"] for step in steps if step.plan["handler"] >= 0}
    ends = [step for step in steps if step.number not in needed]
    leaves = [step for step in ends if step.number not in handlers] or ends
    if len(leaves) == 1:
        return leaves[0].output
    return {step.plan["name"]: step.output for step in leaves}


def to_undo(task: TaskTold) -> list[tuple[int, bool]]:
    """The steps to undo, the last one that was done first, and whether it is uncertain that it was done."""
    found: list[tuple[int, int, bool]] = []
    for step in task.steps:
        if step.plan["undo"] is None or not step.attempts or not step.done:
            continue
        if step.status == "SUCCESS" or step.is_group:
            found.append((step.done, step.number, False))
        elif step.status != "FAILED" or step.code == "purged":
            found.append((step.done, step.number, True))
    return [(number, uncertain) for _, number, uncertain in sorted(found, reverse=True)]


def same(told: Any, wanted: Any) -> bool:
    """Equal, but of an error only the code counts."""
    if isinstance(wanted, dict) and isinstance(told, dict):
        if wanted.keys() == {"error"} == told.keys():
            return bool(told["error"].get("code") == wanted["error"]["code"])
        return wanted.keys() == told.keys() and all(same(told[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(told, list):
        return len(told) == len(wanted) and all(map(same, told, wanted))
    return bool(told == wanted)


def iso(at: int) -> str:
    """A time in ms, as messages say it."""
    return datetime.fromtimestamp(at // 1000, UTC).strftime(f"%Y-%m-%dT%H:%M:%S.{at % 1000:03}Z")
