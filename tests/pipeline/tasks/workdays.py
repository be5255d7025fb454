"""Three days of workflows on a real mesh with a manual clock: every way in which a step or a task can go.

Nothing is left to chance: agents receive by hand, and time passes where it says so. Each method is one case;
what it leaves unfinished stays so, or is finished on a later day.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.task import Task
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.mesh import ManualMesh

START = datetime(2026, 3, 2, 20, tzinfo=UTC)
AGENTS = ("planner", "builder", "tester", "shipper")
NIGHT_S = 6 * 3_600


class Workdays:
    """One mesh in one directory."""

    def __init__(self, path: Path) -> None:
        self._clock = ManualClock(START)
        self.path = path
        self.mesh = ManualMesh(path, clock=self._clock)
        self.tasks: dict[str, Task] = {}
        """By the name of the case."""
        for name in AGENTS:
            self.mesh.agent(name)

    def submit(self, case: str, steps: dict[str, Any], input: Any = None, **fields: Any) -> Task:
        document = {"workflow": fields.pop("workflow", case), "steps": steps, **fields}
        task = self.mesh.submit(document, input, key=case, owner="planner")
        self.tasks[case] = task
        return task

    def take(self, agent: str, wait_s: float = 0.5) -> Delivery:
        """Let a moment pass, then receive."""
        self.mesh.advance(wait_s)
        delivery = self.mesh.agent(agent).receive(timeout=120)
        assert delivery is not None
        return delivery

    def work(self, agent: str, seconds: float = 2, result: Any = None) -> None:
        """Take a step and finish it after so many seconds."""
        delivery = self.take(agent)
        self.mesh.advance(seconds)
        delivery.finish(result)

    # -- what ends on the day on which it begins

    def chain(self) -> None:
        steps = {
            "plan": {"agent": "planner"},
            "build": {"agent": "builder", "needs": ["plan"], "input": {"n": "${{ steps.plan.output }}"}},
            "test": {"agent": "tester", "needs": ["build"]},
        }
        self.submit("chain", steps, version="2")
        for agent, seconds in (("planner", 1), ("builder", 9), ("tester", 4)):
            self.work(agent, seconds, {"by": agent})
        assert self.tasks["chain"].result(1) == {"by": "tester"}

    def diamond(self) -> None:
        """The slow branch is the critical one; two last steps make the result."""
        steps = {
            "plan": {"agent": "planner"},
            "fast": {"agent": "tester", "needs": ["plan"]},
            "slow": {"agent": "builder", "needs": ["plan"]},
            "join": {"agent": "planner", "needs": ["fast", "slow"]},
            "note": {"agent": "shipper", "needs": ["fast"]},
        }
        self.submit("diamond", steps)
        self.work("planner", 1, 1)
        slow = self.take("builder")
        self.work("tester", 2, 2)
        self.work("shipper", 1, "noted")
        self.mesh.advance(5)
        slow.finish(3)
        self.work("planner", 1, [4])
        assert self.tasks["diamond"].result(1) == {"join": [4], "note": "noted"}

    def fan_out(self) -> None:
        """Items end in another order than they began; one is tried twice."""
        steps = {
            "plan": {"agent": "planner"},
            "build": {"agent": "builder", "needs": ["plan"], "for_each": "${{ steps.plan.output }}"},
        }
        self.submit("fan_out", steps)
        self.work("planner", 1, [10, 20, 30])
        items = [self.take("builder", 0.1) for _ in range(3)]
        self.mesh.advance(1)
        items[2].finish("c")
        items[0].nack("too hot", code="timeout")
        self.mesh.advance(2)
        items[1].finish("b")
        self.work("builder", 3, "a")
        assert self.tasks["fan_out"].result(1) == ["a", "b", "c"]

    def nothing_to_do(self) -> None:
        """No items, and a condition that does not hold."""
        steps = {
            "none": {"agent": "builder", "for_each": "${{ input }}"},
            "never": {"agent": "tester", "needs": ["none"], "when": "${{ size(input) > 0 }}"},
        }
        self.submit("nothing_to_do", steps, [])
        assert self.tasks["nothing_to_do"].status() == "SUCCESS"

    def caught(self) -> None:
        """Failures that the plan expects: one is ignored, one has a handler, one dies and is ignored."""
        steps = {
            "odd": {"agent": "builder", "on_failure": "continue"},
            "hard": {"agent": "tester", "on_failure": "mend"},
            "mend": {"agent": "planner", "needs": ["hard"]},
            "fragile": {"agent": "shipper", "on_failure": "continue", "retry": {"max_attempts": 1}},
            "last": {"agent": "planner", "needs": ["odd", "mend", "fragile"]},
        }
        self.submit("caught", steps)
        self.take("builder").fail("no such tool", code="missing")
        self.take("tester").fail("cannot")
        self.take("shipper").nack("burnt", code="timeout")
        self.work("planner", 1, "mended")
        self.work("planner", 1, "done")
        assert self.tasks["caught"].status() == "SUCCESS"

    def fails(self) -> None:
        """A failure that nothing catches; a sibling may finish, a follower never begins."""
        steps = {
            "bad": {"agent": "builder"},
            "good": {"agent": "tester"},
            "later": {"agent": "planner", "needs": ["bad", "good"]},
        }
        self.submit("fails", steps)
        good = self.take("tester")
        self.take("builder").fail("out of paint", code="missing")
        self.mesh.advance(2)
        good.finish(1)
        assert self.tasks["fails"].status() == "FAILED"

    def times_out(self) -> None:
        self.submit("step_timeout", {"wait": {"agent": "builder", "timeout": 30}})
        self.mesh.advance(31)
        self.submit(
            "deadline",
            {"one": {"agent": "builder"}, "two": {"agent": "tester", "needs": ["one"]}},
            deadline=60,
        )
        held = self.take("builder")
        self.mesh.advance(61)
        del held

    def cancelled(self) -> None:
        steps = {"one": {"agent": "builder"}, "two": {"agent": "tester", "needs": ["one"]}}
        self.submit("cancelled", steps).cancel("enough")
        self.submit("cancelled_hard", steps)
        self.take("builder")
        self.tasks["cancelled_hard"].cancel("stop now", hard=True)

    def by_message_alone(self) -> None:
        """An ack without a result, and a drop."""
        self.submit("acked", {"only": {"agent": "builder"}})
        self.take("builder").ack()
        self.submit("dropped", {"only": {"agent": "builder", "on_failure": "continue"}})
        self.take("builder").drop()

    def abandoned(self) -> None:
        """The lease runs out twice, is put off once, and then the holder of a lost lease ends the step."""
        self.submit("abandoned", {"only": {"agent": "builder"}})
        self.take("builder")
        self.mesh.advance(16)
        self.take("builder").nack(until=5)
        self.mesh.advance(6)
        late = self.take("builder")
        self.mesh.advance(16)
        late.finish("at last")
        assert self.tasks["abandoned"].result(1) == "at last"

    def paid(self) -> None:
        """Reports of one attempt replace each other; an attempt that failed was paid for too."""
        self.submit("paid", {"plan": {"agent": "planner"}, "build": {"agent": "builder", "needs": ["plan"]}})
        first = self.take("planner")
        first.report(usage={"cost_usd": 0.25, "tokens": 100})
        first.nack("no idea yet", code="timeout")
        self.mesh.advance(3)
        again = self.take("planner")
        for cost in (0.5, 1.125):
            again.report(usage={"cost_usd": cost, "tokens": int(cost * 1_000)})
        again.finish(1, usage={"cost_usd": 1.5, "tokens": 1_500})
        self.take("builder").fail("too dear", usage={"cost_usd": 0.000001, "tokens": 0})

    # -- what takes longer

    def dies(self, case: str) -> None:
        steps = {
            "try": {"agent": "shipper", "retry": {"max_attempts": 2}},
            "then": {"agent": "tester", "needs": ["try"]},
        }
        self.submit(case, steps)
        for _ in range(2):
            self.take("shipper").nack("no road", code="timeout")
            self.mesh.advance(3)
        assert self.tasks[case].status() == "DEAD_LETTER"

    def letter_of(self, case: str) -> Any:
        """The dead letter that a task waits for: letters are in the order in which they died."""
        return self._letters[case]

    def evening(self) -> None:
        """The first day, which goes past midnight."""
        self.chain()
        self.diamond()
        self.fan_out()
        self.nothing_to_do()
        self.caught()
        self.fails()
        self.times_out()
        self.cancelled()
        self.by_message_alone()
        self.abandoned()
        self.paid()
        self._letters: dict[str, Any] = {}
        for case in ("redriven", "edited", "purged", "forsaken", "given_up"):
            before = {letter.key for letter in self.mesh.dead_letters()}
            self.dies(case)
            [self._letters[case]] = [each for each in self.mesh.dead_letters() if each.key not in before]
        steps = {"plan": {"agent": "planner"}, "build": {"agent": "builder", "needs": ["plan"]}}
        self.submit("over_night", steps, workflow="chain")
        self.night_shift = self.take("planner")
        self.submit("untouched", {"only": {"agent": "tester"}})

    def night(self) -> None:
        """The lease of what runs over night is renewed by hand."""
        for _ in range(NIGHT_S // 600):
            self.night_shift.extend(900_000)
            self.mesh.advance(600)
        self.night_shift.report(usage={"cost_usd": 2, "tokens": 9_000})

    def morning(self) -> None:
        """The second day: letters are dealt with, and what was left is finished."""
        self.mesh.redrive([self.letter_of("redriven")])
        self.work("shipper", 2, "there")
        self.mesh.redrive([self.letter_of("edited")], edit={"road": "new"})
        self.take("shipper").nack("no road again", code="timeout")
        self.mesh.advance(3)
        self.work("shipper", 3, "there too")
        self.mesh.purge_dead_letters([self.letter_of("purged")])
        self.tasks["given_up"].cancel("nobody comes")
        self.night_shift.finish("done")
        self.work("builder", 5)
        self.mesh.advance(1)

    def afternoon(self) -> None:
        """What is still open at the end: running, retrying, abandoned, pending."""
        steps = {
            "runs": {"agent": "builder"},
            "again": {"agent": "planner"},
            "lost": {"agent": "shipper"},
            "waits": {"agent": "tester"},
            "needs": {"agent": "tester", "needs": ["runs"]},
            "spread": {"agent": "shipper", "for_each": "${{ [1, 2] }}", "parallel": 1},
        }
        self.submit("open", steps)
        lost = self.take("shipper", 0.1)
        self.take("planner", 0.1).nack("later", code="timeout", until=None)
        self.mesh.advance(16)
        del lost
        self.take("builder", 0.1)

    def close(self) -> None:
        self.mesh.close()


def lived(path: Path) -> Workdays:
    """All three days in one directory; the mesh is closed."""
    days = Workdays(path)
    days.evening()
    days.night()
    days.morning()
    days.afternoon()
    days.close()
    return days
