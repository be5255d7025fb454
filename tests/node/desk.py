"""A node with tasks, and a dumb shell beside it: inputs are sent as they are, nothing is evaluated.

After every command it notes what the kernel shows of each task, to compare the store with it.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import replace

from relaymesh import MeshSettings
from relaymesh.errors import LeaseLost, NotFound, TaskOver
from relaymesh.kernel.commands import Ack, Nack, OpenMailbox, PurgeDeadLetters, Redrive, Tick
from relaymesh.kernel.query import ReadySteps
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import Abandon, Advance, Cancel, Fail, Finish, Move, Submit, Submitted
from relaymesh.kernel.tasks.looks import ReadyStep
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.kernel.tasks.views import TaskShown, shown
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.core import Receiver
from relaymesh.node.node import Node
from relaymesh.node.opening import STORE_FILE
from relaymesh.testing import ManualClock
from tests.node.doubles import LIGHT

WORKERS = ("default/worker", "default/helper")
SETTINGS = MeshSettings(journal=LIGHT)
TABLES = ("tasks", "steps", "idempotency")


def step(name: str, *needs: int, **fields: Any) -> StepPlan:
    return StepPlan(name=name, mailbox=fields.pop("mailbox", WORKERS[0]), needs=needs, **fields)


def plan(*steps: StepPlan, **fields: Any) -> Plan:
    return Plan(name=fields.pop("name", "work"), steps=steps, **fields)


class Desk:
    """Opens the node anew with `restart`."""

    def __init__(self, path: Path | None, settings: MeshSettings = SETTINGS) -> None:
        self.path = path
        self.settings = settings
        self.clock = ManualClock()
        self.seen: dict[str, TaskShown] = {}
        """The last that the kernel showed of each task."""
        self.held: list[int] = []
        """Tokens that were granted, also old ones."""
        self.open()
        for worker in WORKERS:
            self.do(OpenMailbox(worker))

    def open(self) -> None:
        self.node = Node(self.path, self.settings, clock=self.clock, background=False)
        self.look()

    def restart(self, older_store: Path | None = None, *, force: bool = False) -> None:
        """`older_store`: a copy of the store that takes the place of the present one."""
        self.close(force=force)
        if older_store is not None:
            assert self.path is not None
            shutil.copyfile(older_store, self.path / STORE_FILE)
        self.open()

    def close(self, *, force: bool = False) -> None:
        """A stop gives deliveries back, which may end tasks."""
        self.node.close(force=force)
        self.look()

    # -- commands

    def do(self, command: Command[Any]) -> Any:
        if isinstance(command, Submit):
            return self.follow(self.node.tasks.decide(command))
        return self.follow(self.node.core.submit(command))

    def follow(self, step: Step) -> Any:
        """Commit, and send what is ready, until nothing is."""
        self.look()
        result = self.node.core.commit(step)
        for task in step.ready or ():
            self.move_on(task)
        return result

    def move_on(self, task: str) -> None:
        while (ready := self.node.core.read(lambda kernel: kernel.look(ReadySteps(task)))) is not None:
            moves = [_move(each) for each in ready.steps]
            moved = self.node.core.execute(Advance(task, moves, self.node.new_ids(len(moves)))).moved
            self.look()
            if not moved:
                return

    def look(self) -> None:
        board = self.node.core.kernel.state.board
        for task in board.tasks.values():
            self.seen[task.id] = shown(task)
        self.seen |= board.over

    def submit(self, plan: Plan, key: str = "key", **fields: Any) -> Submitted:
        (id,) = self.node.new_ids(1)
        request = fields.pop("request", b"request of " + key.encode())
        owner = fields.pop("owner", "default/owner")
        result: Submitted = self.do(Submit(id, plan, b"null", key, request, owner, **fields))
        return result

    def take(self, most: int = 100, mailbox: str = WORKERS[0]) -> list[int]:
        receiver = Receiver(Waiter("worker-1", most))
        step = self.node.core.receive(mailbox, receiver, wait=False)
        self.follow(step)
        tokens = list(receiver.deliveries.tokens) if receiver.deliveries else []
        self.held += tokens
        return tokens

    def run(self, plan: Plan, key: str = "key", **fields: Any) -> str:
        """Submit a task and do all its work. Returns its id."""
        task = self.submit(plan, key, **fields).task
        while tokens := self.take():
            for token in tokens:
                self.do(Finish(token, b'"done"'))
        return task

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.do(Tick())
        self.node.tend()

    # -- what the store says

    def check(self) -> None:
        """The rows are what the kernel showed."""
        self.node.core.sync()
        store = self.node.store
        assert store is not None
        assert store.applied == self.node.core.through
        for id, each in self.seen.items():
            assert store.task(id) == each.task
            assert store.steps(id) == [replace(step, waiting="", progress="") for step in each.steps]
        assert len(store.tasks(limit=10_000).tasks) == len(self.seen)


def _move(ready: ReadyStep) -> Move:
    if ready.action == "skip":
        return Move(ready.number, "skip")
    if ready.for_each:
        return Move(ready.number, "expand", items=[b"%d" % i for i in range(int(ready.for_each))])
    if ready.when:
        return Move(ready.number, "skip" if ready.when == "false" else "fail", code="condition", reason="no")
    return Move(ready.number, "send", ready.item or ready.input)


def rows(path: Path) -> dict[str, list[Any]]:
    """Every row about tasks, read by a stranger."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    finally:
        connection.close()


class Chance:
    """Does one thing after the other, as the dice say."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk = desk
        self.dice = random.Random(seed)
        self.keys = 0

    def act(self) -> None:
        deeds = [
            *[self.submit] * 3,
            *[self.take] * 4,
            *[self.settle] * 8,
            self.cancel,
            self.letters,
            self.wait,
        ]
        with suppress(LeaseLost, NotFound, TaskOver):
            self.dice.choice(deeds)()

    def submit(self) -> None:
        self.keys += 1
        number = self.keys if self.dice.random() < 0.8 else self.dice.randrange(self.keys)
        self.desk.submit(self.plan(), f"key-{number}", request=b"r", again=True)

    def plan(self) -> Plan:
        dice = self.dice
        steps: list[StepPlan] = []
        for number in range(dice.randrange(1, 6)):
            needs = tuple(sorted(dice.sample(range(number), dice.randrange(min(number, 2) + 1))))
            fields: dict[str, Any] = {"refers": needs[:1], "on_failure": dice.choice(("fail", "continue"))}
            if dice.random() < 0.2:
                fields |= {"for_each": str(dice.randrange(4)), "parallel": dice.randrange(3)}
            elif dice.random() < 0.15:
                fields["when"] = dice.choice(("false", "broken"))
            fields["max_attempts"] = dice.randrange(1, 3)
            fields["max_abandoned"] = dice.randrange(2)
            fields["timeout_ms"] = dice.choice((0, 0, 40_000))
            steps.append(step(f"s{number}", *needs, mailbox=dice.choice(WORKERS), **fields))
        return plan(*steps, name=dice.choice(("build", "review")), deadline_ms=dice.choice((0, 0, 90_000)))

    def take(self) -> None:
        self.desk.take(self.dice.randrange(1, 6), self.dice.choice(WORKERS))

    def settle(self) -> None:
        dice, held = self.dice, self.desk.held
        if not held:
            return
        token = held.pop(dice.randrange(len(held)))
        command: Command[Any] = dice.choice(
            (
                Finish(token, b'{"n":%d}' % dice.randrange(100)),
                Finish(token, b"1"),
                Fail(token, "failed", "cannot"),
                Nack(token, "other", "hiccup"),
                Nack(token, "fatal", "no use", retryable=False),
                Ack([token]),
                Ack([token, *held[:2]]),
                Ack([token], drop=True),
                Abandon([token], "gone"),
            )
        )
        self.desk.do(command)

    def cancel(self) -> None:
        live = list(self.desk.node.core.kernel.state.board.tasks)
        if live and self.dice.random() < 0.4:
            self.desk.do(Cancel(self.dice.choice(live), "enough", "default/owner", self.dice.random() < 0.5))

    def letters(self) -> None:
        names = [(each.mailbox, each.dead_sequence) for each in self.desk.node.core.kernel.state.letters]
        if names:
            name = self.dice.choice(names)
            self.desk.do(Redrive([name]) if self.dice.random() < 0.6 else PurgeDeadLetters([name]))

    def wait(self) -> None:
        self.desk.pass_time(self.dice.choice((0.5, 5, 40)))
