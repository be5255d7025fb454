"""What follows from a plan: which step waits for which, and which steps are last."""

from __future__ import annotations

from typing import NamedTuple

from relaymesh.kernel.tasks.plan import Plan, StepPlan


class Shape:
    """Steps that stand together: those of a plan, or a group that one step goes on as."""

    __slots__ = ("_numbers", "followers", "leaves", "steps")

    def __init__(self, steps: tuple[StepPlan, ...]) -> None:
        self.steps = steps
        followers: list[list[int]] = [[] for _ in steps]
        for number, step in enumerate(steps):
            for need in set(step.needs):
                followers[need].append(number)
        self.followers = followers
        """For each step those that need it."""
        handlers = {step.handler for step in steps}
        ends = [number for number, after in enumerate(followers) if not after]
        self.leaves = [number for number in ends if number not in handlers] or ends
        """The steps that no other step needs: their outputs are the result."""
        self._numbers: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        """The step of this name. Looked up only where names come from outside."""
        if not self._numbers:
            self._numbers = {step.name: number for number, step in enumerate(self.steps)}
        return self._numbers.get(name)


class PlanShape(Shape):
    """The shape of a plan. Tasks of one plan share it."""

    __slots__ = ("needs", "plan", "readers", "roots", "size", "tasks")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.steps)
        self.plan = plan
        self.tasks = 0
        """Live tasks of this plan."""
        self.size = plan.size
        self.needs = [len(set(step.needs)) for step in plan.steps]
        """For each step how many others it waits for."""
        self.roots = [number for number, needs in enumerate(self.needs) if not needs]
        """The steps that are ready at once."""
        self.readers = _readers(self)
        """For each step how many others may read its output, before any has begun."""


def _readers(shape: Shape) -> list[int]:
    readers = [0] * len(shape.steps)
    for leaf in shape.leaves:
        readers[leaf] += 1
    for number, step in enumerate(shape.steps):
        for source in (*step.refers, *step.outer, *step.sees):
            readers[source] += 1
        if step.undo is not None:
            readers[number] += 1
            for source in (*step.undo.refers, *step.undo.outer):
                readers[source] += 1
    return readers


class Group(NamedTuple):
    """Steps of a task that stand together, and the number of the first of them."""

    first: int
    shape: Shape
    input: bytes | None = None
    """The value of `input` in their expressions; None: the same as for the step that they replace."""
    token: int = 0
    """The grant whose holder asked for them; 0: the plan did."""
