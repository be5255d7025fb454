"""Random plans, and random things that happen to them: `python -m tests.kernel.tasks.scene --scenarios N`."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from typing import Any

from relaymesh.errors import (
    Conflict,
    InvalidPlan,
    InvalidValue,
    LeaseLost,
    MailboxFull,
    MeshError,
    NotFound,
    SignalsFull,
    TaskOver,
    Unauthorized,
)
from relaymesh.kernel.commands import (
    Ack,
    Complete,
    Extend,
    ForceDelayed,
    Nack,
    PurgeDeadLetters,
    Receive,
    Redrive,
    Release,
    Settle,
    Stop,
    Tick,
)
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import GrowthScope, ReadySteps
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import (
    Abandon,
    Advance,
    Answer,
    Cancel,
    Fail,
    Finish,
    Grow,
    Report,
    SetBudget,
    Signal,
    Usage,
)
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import MINUTE, SECOND
from tests.kernel.tasks.model import Model
from tests.kernel.tasks.office import AGENT, Office

OTHER = "default/helper"


DEFAULT = b'"later"'
OPTIONS = ("yes", "no", "later")


def random_wait(chance: random.Random) -> dict[str, Any]:
    """A step that waits, perhaps for a while only."""
    kind = chance.choice(["ask", "wait", "signal"])
    default = DEFAULT if kind != "wait" and chance.random() < 0.5 else None
    wait = WaitPlan(
        kind=kind,  # type: ignore[arg-type]
        signal=chance.choice(["go", "stop"]) if kind == "signal" else "",
        options=OPTIONS if kind == "ask" and chance.random() < 0.7 else (),
        default=default,
    )
    limited = kind == "wait" or default is not None or chance.random() < 0.3
    return {
        "wait": wait,
        "mailbox": chance.choice([AGENT, OTHER]) if kind == "ask" else "",
        "timeout_ms": chance.choice([SECOND, 90_000]) if limited else 0,
        "undo": None,
        "grows": False,
    }


def random_group(chance: random.Random, outer: tuple[int, ...] = ()) -> tuple[StepPlan, ...]:
    """What a step goes on as. It may read what the step may read."""
    count = chance.randint(1, 4)
    steps: list[StepPlan] = []
    for number in range(count):
        needs = tuple(chance.sample(range(number), min(number, chance.choice([0, 1, 2]))))
        fields: dict[str, Any] = {
            "name": f"g{number}",
            "mailbox": chance.choice([AGENT, OTHER]),
            "needs": needs,
            "refers": tuple(need for need in needs if chance.random() < 0.7),
            "outer": tuple(each for each in outer if chance.random() < 0.3),
            "on_failure": chance.choice(["fail", "fail", "continue"]),
            "for_each": "items" if chance.random() < 0.15 else "",
            "max_attempts": chance.choice([1, 3]),
            "grows": chance.random() < 0.4,
            "undo": StepPlan(name=f"g{number}", mailbox=OTHER) if chance.random() < 0.3 else None,
        }
        fields["sees"] = _ancestors(needs, steps) if fields["grows"] else ()
        if chance.random() < 0.15:
            fields |= random_wait(chance)
            fields["sees"] = ()
        steps.append(StepPlan(**fields))
    return tuple(steps)


def _ancestors(needs: tuple[int, ...], steps: list[StepPlan]) -> tuple[int, ...]:
    found = set(needs)
    for need in needs:
        found |= set(_ancestors(steps[need].needs, steps))
    return tuple(sorted(found))


def random_plan(chance: random.Random, most: int = 60) -> Plan:
    """Any needs, any handlers, some with items, some with little time; some wait, grow, or can be undone.

    In half of them most failures are caught, so that large ones come to their ends too.
    """
    gentle = chance.random() < 0.5
    rich = chance.random() < 0.6
    count = min(most, chance.choice([1, 3, 8, 20, chance.randint(1, most), most]))
    fields: list[dict[str, Any]] = []
    handled: dict[int, int] = {}
    for number in range(count):
        needs = chance.sample(range(number), min(number, chance.choice([0, 1, 1, 2, 3, 12])))
        free = [need for need in needs if need not in handled]
        if free and chance.random() < 0.15:
            handled[chance.choice(free)] = number
        fields.append(
            {
                "name": f"s{number}",
                "mailbox": chance.choice([AGENT, AGENT, OTHER]),
                "needs": tuple(needs),
                "refers": tuple(need for need in needs if chance.random() < 0.7),
                "for_each": "items" if chance.random() < 0.2 else "",
                "parallel": chance.choice([0, 0, 1, 2]),
                "on_failure": "continue" if chance.random() < (0.97 if gentle else 0.4) else "fail",
                "max_attempts": chance.choice([1, 2, 3, 3]),
                "max_abandoned": chance.choice([0, 1, 2, 10]),
                "attempt_timeout_ms": chance.choice([0, 0, 0, 20_000]),
                "timeout_ms": chance.choice([0] * 12 + [0 if gentle else 90_000]),
                "priority": chance.choice([2, 2, 2, 1, 5]),
                "key": chance.choice([None, None, None, None, "k"]),
            }
        )
        if rich:
            _enrich(chance, fields)
    for number, handler in handled.items():
        fields[number] |= {"on_failure": "handle", "handler": handler}
    steps = tuple(StepPlan(**each) for each in fields)
    return Plan(
        name="random",
        steps=steps,
        deadline_ms=chance.choice([0] * 9 + [0 if gentle else 10 * MINUTE]),
        cost_micros=chance.choice([0, 0, 50, 500]),
        tokens=chance.choice([0, 0, 0, 300]),
    )


def _enrich(chance: random.Random, fields: list[dict[str, Any]]) -> None:
    """The last step waits, includes a workflow, grows, or can be undone."""
    last = fields[-1]
    what = chance.random()
    if what < 0.12:
        last |= random_wait(chance)
    elif what < 0.17:
        last |= {"include": "stored", "mailbox": "", "key": None}
    else:
        last["grows"] = chance.random() < 0.4
        if last["grows"]:
            before: set[int] = set(last["needs"])
            for number in range(len(fields) - 2, -1, -1):
                before |= set(fields[number]["needs"]) if number in before else set()
            last["sees"] = tuple(sorted(before))
        if chance.random() < 0.3:
            last["undo"] = StepPlan(
                name=last["name"],
                mailbox=chance.choice([AGENT, OTHER]),
                refers=last["refers"],
                max_attempts=chance.choice([1, 3]),
            )


class Scene(Office):
    """One task of a random plan, and a model that looks at every kernel step."""

    def __init__(self, seed: int, most: int = 60) -> None:
        self.dice = dice = random.Random(seed)
        self.model: Model | None = None
        self.after: Callable[[], None] = lambda: None
        """Called after every kernel step."""
        super().__init__()
        for name in ("worker", "helper"):
            self.agent(name, breaker=False, max_deferrals=2)
        made = random_plan(dice, most)
        self.skips = {step.name for step in made.steps if dice.random() < 0.1}
        self.items = {step.name: [b"%d" % i for i in range(dice.choice([0, 1, 3, 7]))] for step in made.steps}
        self.stored = {"stored": random_group(dice)}
        self.tokens: list[int] = []
        self.outputs = self.signals = 0
        self.model = Model("t1", made, self.skips)
        self.submit(made)

    def plainly(self, command: Command[Any]) -> Step:
        try:
            return super().plainly(command)
        finally:
            self._look(command)

    def _look(self, command: Command[Any]) -> None:
        step = self.step
        if self.model is not None and step is not self.__dict__.get("seen"):
            self.seen = step
            self.model.see(command, step)
            self.model.compare(self.kernel.state.board)
            self.model.compare_ready(self.kernel.look(ReadySteps("t1")))
            self.after()

    @property
    def is_over(self) -> bool:
        assert self.model is not None
        return self.model.end is not None

    # -- what may happen

    def something_happens(self) -> None:
        """One random act; what it refuses is refused for a reason that is known."""
        act = self.dice.choices(list(ACTS), list(ACTS.values()))[0]
        try:
            act(self)
        except (LeaseLost, TaskOver, NotFound, MailboxFull):
            pass

    def grab(self) -> None:
        mailbox = self.dice.choice([AGENT, AGENT, OTHER])
        waiter = Waiter("worker-1", self.dice.choice([1, 3, 10]), remote=self.dice.random() < 0.5)
        for delivered in self.do(Receive(mailbox, waiter, False)).delivered or ():
            self.tokens += [row.token for row in delivered.deliveries.rows()]

    def any_token(self) -> int:
        """Mostly one that is held, sometimes one of long ago."""
        held = list(self.kernel.state.leases)
        if held and self.dice.random() < 0.8:
            return self.dice.choice(held)
        return self.dice.choice(self.tokens) if self.tokens else 12345

    def finish_one(self) -> None:
        self.do(Finish(self.any_token(), self.an_output(), self.some_usage()))

    def some_usage(self) -> Usage:
        return Usage(self.dice.choice([0, 0, 0, 20]), self.dice.choice([0, 0, 0, 50]))

    def grow_one(self) -> None:
        token = self.any_token()
        scope = self.kernel.look(GrowthScope(token))
        outer = () if scope is None else tuple(scope.names.values())
        group = random_group(self.dice, outer)
        try:
            self.do(Grow(token, group, self.some_usage()))
        except InvalidPlan as refused:
            known = "may not add steps", "groups deep"
            if not any(each in refused.message for each in known):
                raise
        except Conflict:
            assert self.model is not None
            assert self.model.closing is not None

    def answer_one(self) -> None:
        task = self.kernel.state.board.tasks.get("t1")
        if task is None or not task.waiting:
            return
        number = self.dice.choice(list(task.waiting))
        wait = task.steps[number].wait
        assert wait is not None
        by = self.dice.choice([wait.asked, wait.asked, wait.asked, AGENT, OTHER]) or OTHER
        value = self.dice.choice([b'"yes"', b'"no"', b'"perhaps"'])
        try:
            self.do(Answer("t1", task.name_of(number), value, by))
        except (Conflict, Unauthorized, InvalidValue):
            if wait.kind == "ask" and by == wait.asked and value != b'"perhaps"':
                raise

    def signal_it(self) -> None:
        if self.dice.random() < 0.8:
            self.signals += 1
        name = self.dice.choice(["go", "go", "stop", "other"])
        try:
            self.do(Signal("t1", name, f"s{self.signals}", b"%d" % self.signals))
        except SignalsFull:
            assert self.model is not None
            assert len(self.model.signals) == 100

    def raise_budget(self) -> None:
        try:
            more = self.dice.choice([None, 0, 10, 100, 1_000, 100_000])
            self.do(SetBudget("t1", more, self.dice.choice([None, 0, 100, 100_000])))
        except Conflict:
            assert self.model is not None
            assert self.model.closing is not None

    def report_one(self) -> None:
        self.do(Report(self.any_token(), "half", self.some_usage()))

    def an_output(self) -> bytes:
        """No two are alike."""
        self.outputs += 1
        return json.dumps({"n": self.outputs}).encode()

    def fail_one(self) -> None:
        self.do(Fail(self.any_token(), "failed", "no way"))

    def settle_one(self) -> None:
        token = self.any_token()
        acts: list[Command[Any]] = [
            Ack([token]),
            Ack([token, *self.tokens[-2:]]),
            Ack([token], drop=True),
            Settle(token, [(OTHER, [Envelope(self.mint(), "default/x", b"y", ttl_ms=1)])]),
            Nack(token, "conflict"),
            Nack(token, "fatal"),
            Nack(token, "fatal"),
        ]
        self.do(self.dice.choice(acts))

    def nack_one(self) -> None:
        until = self.now + self.dice.choice([0, 500]) if self.dice.random() < 0.3 else None
        self.do(Nack(self.any_token(), until=until, retryable=self.dice.random() < 0.9))

    def lose_one(self) -> None:
        token = self.any_token()
        acts: list[Command[Any]] = [Abandon([token]), Release([token]), Extend(token, 30 * SECOND)]
        self.do(self.dice.choice(acts))

    def wait_a_little(self) -> None:
        self.now += self.dice.choice([100, SECOND, 5 * SECOND, 16 * SECOND, 16 * SECOND, MINUTE])
        self.do(Tick() if self.dice.random() < 0.7 else ForceDelayed())

    def restart_somehow(self) -> None:
        self.now += self.dice.choice([0, SECOND, 20 * SECOND])
        if self.dice.random() < 0.2:
            self.do(Stop())
        if self.dice.random() < 0.5:
            self.restart()
        else:
            self.restart_from_snapshot()

    def bring_back(self) -> None:
        letters = [letter for letter in self.letters if letter.status == "pending"]
        if letters:
            letter = self.dice.choice(letters)
            name = (letter.mailbox, letter.dead_sequence)
            fields: dict[str, Any] = {}
            if self.dice.random() < 0.3:
                fields["to"] = self.dice.choice([AGENT, OTHER])
            if self.dice.random() < 0.3:
                fields["edited"] = [
                    Envelope(
                        self.mint(), "default/x", b"edited", ttl_ms=self.dice.choice([SECOND, 20 * SECOND])
                    )
                ]
            self.do(Redrive([name], **fields))

    def purge_one(self) -> None:
        if self.letters:
            letter = self.dice.choice(self.letters)
            self.do(PurgeDeadLetters([(letter.mailbox, letter.dead_sequence)]))

    def cancel_it(self) -> None:
        self.do(Cancel("t1", "enough", "", self.dice.random() < 0.5))

    def advance_again(self) -> None:
        task = self.kernel.state.board.tasks.get("t1")
        if task is not None:
            numbers = [self.dice.randrange(len(task.steps)) for _ in range(3)]
            stale = [number for number in numbers if number not in task.ready]
            moves = [self._move(task, number) for number in stale if not task.plan_of(number).for_each]
            if not task.sends:
                moves = [self._move(task, number) for number in numbers if not task.has_items(number)]
            ids = [self.mint() for _ in moves]
            assert self.plainly(Advance("t1", moves, ids)).result.moved == 0

    def complete_one(self) -> None:
        links = list(self.kernel.state.board.links)
        if links:
            sequence = self.dice.choice(links)
            try:
                self.do(Complete(AGENT, sequence))
            except LeaseLost:
                return
            raise AssertionError("a step was completed without a result")

    # -- the way out

    def drive_to_the_end(self) -> None:
        """From here on nothing goes wrong, and whatever is dead is redriven: the task ends."""
        for _ in range(400):
            if self.is_over:
                return
            assert self.model is not None
            undone = [name for name, thing in self.model.letters.items() if thing.undoes is not None]
            waiting = list(self.model.letters) if self.model.closing is None else undone
            if waiting:
                self.do(Redrive(waiting))
            self.end_waits()
            for mailbox in (AGENT, OTHER):
                waiter = Waiter("worker-2", 100)
                for delivered in self.do(Receive(mailbox, waiter, False)).delivered or ():
                    for row in delivered.deliveries.rows():
                        try:
                            if self.kernel.state.board.links.get(row.sequence) is None:
                                continue  # a question
                            self.do(Finish(row.token, self.an_output()))
                        except LeaseLost:
                            self.do(Ack([row.token]))
            self.pass_time(2 * MINUTE)
        raise AssertionError(f"the task never ended: {self.statuses()}")


ACTS: dict[Callable[[Scene], None], int] = {
    Scene.grab: 300,
    Scene.finish_one: 250,
    Scene.fail_one: 15,
    Scene.settle_one: 30,
    Scene.nack_one: 80,
    Scene.lose_one: 80,
    Scene.wait_a_little: 60,
    Scene.restart_somehow: 25,
    Scene.bring_back: 80,
    Scene.purge_one: 12,
    Scene.cancel_it: 3,
    Scene.advance_again: 30,
    Scene.complete_one: 10,
    Scene.grow_one: 60,
    Scene.answer_one: 25,
    Scene.signal_it: 15,
    Scene.raise_budget: 15,
    Scene.report_one: 15,
}


def play(seed: int, acts: int = 150, most: int = 60) -> Scene:
    """A whole scenario: things happen, then the task is driven to its end."""
    scene = Scene(seed, most)
    for _ in range(acts):
        if scene.is_over:
            break
        scene.something_happens()
    scene.drive_to_the_end()
    return scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    ends: dict[str, int] = {}
    for seed in range(asked.first, asked.first + asked.scenarios):
        try:
            model = play(seed).model
        except (AssertionError, KeyError, MeshError) as error:
            raise SystemExit(f"scenario {seed}: {error!r}") from error
        assert model is not None
        ends[str(model.end)] = ends.get(str(model.end), 0) + 1
    print(json.dumps({"scenarios": asked.scenarios, "ends": ends}))


if __name__ == "__main__":
    main()
