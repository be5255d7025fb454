"""Clients that talk to live tasks: they answer, signal, report, pay, and let steps grow, with bad habits.

They have a generator of their own: a run in which they do nothing is as it was before there were any.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec

from relaymesh.errors import Conflict, MeshError, Refused
from relaymesh.kernel.query import GrowthScope, OwedNotices
from relaymesh.kernel.tasks.commands import NO_USAGE, Answer, Report, SetBudget, Signal, Usage
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.testing.simulation.clients import Clients
from relaymesh.testing.simulation.history import Answered, BudgetAsked, Delivery, Signalled
from relaymesh.testing.simulation.workflows import SIGNALS, document_of, enriched, random_group
from relaymesh.wire.tasks import GrowStep

ACTS_SHARE = 0.6
"""How likely one of them does something before an action of the others."""
FLOOD = 103
"""Signals of a client that does not stop: more than a task keeps."""
OWNER = "default/planner"
KINDS = ("update", "complete", "failed")
REFUSED = ("NOT_FOUND", "CONFLICT", "UNAUTHORIZED", "INVALID_VALUE", "SIGNALS_FULL", "LEASE_LOST")


class TaskTalk:
    """Every such client of one run."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.world = clients.world
        self.history = clients.history
        self.trace = clients.trace
        plan = self.world.plan
        self.rng = random.Random(f"talk-{plan.seed}")
        self.healing = False
        """The time of bad habits is over."""
        safe = [box for box in plan.mailboxes.values() if not box.pattern]
        safe = [box for box in safe if box.settings.delivery_semantics != "at_most_once"]
        self._agents = [box.address for box in safe]
        self._roomy = [box.address for box in safe if box.settings.capacity_bytes > 100_000]
        self._count = 0
        self._flooded = False
        self.habits: dict[str, Callable[[], None]] = {
            "answer": self.answer,
            "answer_again": self.answer_again,
            "stranger": self.stranger,
            "signal": self.signal,
            "signal_again": self.signal_again,
            "flood": self.flood,
            "report": self.report,
            "pay": self.pay,
            "save": self.save,
            "grow": self.grow,
            "work": self.work,
            "regret": self.regret,
        }
        self.finish: Callable[[Delivery], None] = _nothing
        """How a step is finished."""
        self.cancel: Callable[[str, bool], None] = _nothing_yet
        """How a task is cancelled: hard or not."""

    @property
    def is_on(self) -> bool:
        return bool(self.world.plan.talk)

    def act(self) -> None:
        """Do something now and then."""
        if self.is_on and self.rng.random() < ACTS_SHARE:
            names, weights = zip(*self.world.plan.talk.items(), strict=True)
            self.habits[self.rng.choices(names, weights)[0]]()

    # -- tasks that can be talked to

    def richer(self, plan: Plan) -> Plan:
        return enriched(self.rng, plan, self._roomy) if self.is_on else plan

    def mail(self) -> tuple[str, str, tuple[Any, ...]]:
        """The owner of a new task, where its result goes, and what the owner gets mail about."""
        rng = self.rng
        if not self.is_on or not self._roomy or rng.random() < 0.3:
            return OWNER, "", tuple(rng.sample(KINDS, 1)) if self.is_on else ()
        reply_to = rng.choice(self._roomy) if rng.random() < 0.6 else ""
        return rng.choice((OWNER, *self._roomy)), reply_to, tuple(rng.sample(KINDS, rng.randint(0, 3)))

    def usage(self) -> Usage:
        """What an attempt used."""
        if not self.is_on or self.healing:
            return NO_USAGE
        return Usage(self.rng.choice((0, 10, 10, 30)), self.rng.choice((0, 0, 20, 40)))

    def _tasks(self) -> list[str]:
        return list(dict.fromkeys(each.task for each in self.history.tasks if each.task))

    def _take_all(self) -> None:
        if self.world.has_tasks:
            for agent in self._agents:
                self.clients.take(agent, 10)
            self.world.core.sync()

    def work(self) -> None:
        """A worker that does most of what there is: tasks get on."""
        self._take_all()
        for delivery in [each for each in self.clients.held if each.step]:
            if self.rng.random() < 0.7:
                self.finish(delivery)

    def regret(self) -> None:
        """The owner does not want what was done, and perhaps says so while it is undone."""
        if tasks := self._tasks():
            if self.rng.random() < 0.5:
                self.work()
            self.cancel(self.rng.choice(tasks[-3:]), self.rng.random() < 0.5)

    # -- answering

    def _question(self) -> Delivery | None:
        """One that was handed out, mostly one of the last."""
        asked = [each for each in self.history.deliveries if each.question]
        if not asked:
            self.clients.take(self.rng.choice(self._agents), 3)
            return None
        return self.rng.choice(asked[-4:] if self.rng.random() < 0.8 else asked)

    def answer(self) -> None:
        question = self._question()
        if question is not None:
            self._answer(question, question.mailbox)

    def answer_again(self) -> None:
        """The agent changes its mind: only its first answer counts."""
        question = self._question()
        if question is not None:
            self._answer(question, question.mailbox)
            self._answer(question, question.mailbox)

    def stranger(self) -> None:
        question = self._question()
        if question is not None:
            others = [each for each in (*self._agents, OWNER) if each != question.mailbox]
            self._answer(question, self.rng.choice(others))

    def _answer(self, question: Delivery, by: str) -> None:
        content = json.loads(question.content)
        if "task" in content and "step" in content:  # else it is about a budget
            self.reply(content["task"], content["step"], by, content.get("options"))

    def reply(self, task: str, step: str, by: str, options: Any) -> None:
        self._count += 1
        value: Any = {"answer": self._count}
        if options and self.rng.random() < 0.9:
            value = self.rng.choice(options)
        asked = Answered(task, step, json.dumps(value).encode(), by, self.history.next_order())
        self.history.answers.append(asked)
        self.trace.line(f"{self.world.now()} answer {task} {step} by {by}: {value}")
        self.world.counts["answered"] += 1

        def answered(_result: Any, error: MeshError | None) -> None:
            asked.answer, asked.code = outcome(error)
            self.trace.line(f"answer {task} {step}: {asked.answer} {asked.code}")

        self.world.submit(Answer(task, step, asked.value, by), answered)

    # -- signals

    def signal(self) -> None:
        """Early, late, or when a step waits for it."""
        tasks = self._tasks()
        if tasks:
            self._count += 1
            name = self.rng.choice((*SIGNALS, *SIGNALS, "other"))
            self._signal(self.rng.choice(tasks[-4:]), name, f"i{self._count}")

    def signal_again(self) -> None:
        if self.history.signals:
            old = self.rng.choice(self.history.signals[-20:])
            self._signal(old.task, old.name, old.id, old.value)

    def flood(self) -> None:
        """More than a task keeps. Once in a run."""
        tasks = self._tasks()
        if tasks and not self._flooded:
            self._flooded = True
            for _ in range(FLOOD):
                self._count += 1
                self._signal(tasks[-1], self.rng.choice(("other", *SIGNALS)), f"i{self._count}")

    def _signal(self, task: str, name: str, id: str, value: bytes | None = None) -> None:
        asked = Signalled(task, name, id, value or json.dumps({"signal": id}).encode())
        asked.order = self.history.next_order()
        self.history.signals.append(asked)
        self.trace.line(f"{self.world.now()} signal {task} {name} {id}")
        self.world.counts["signalled"] += 1

        def answered(result: Any, error: MeshError | None) -> None:
            asked.answer, asked.code = outcome(error)
            asked.duplicate = bool(result)
            asked.answered = self.history.next_order()
            self.trace.line(f"signal {id}: {asked.answer} {asked.code}{' duplicate' * asked.duplicate}")

        self.world.submit(Signal(task, name, id, asked.value), answered)

    # -- budgets

    def _held(self) -> Delivery | None:
        steps = [each for each in self.clients.held if each.step]
        if not steps:
            self.clients.take(self.rng.choice(self._agents), 3)
            return None
        return self.rng.choice(steps)

    def report(self) -> None:
        """What an attempt has used so far; some say it twice, some say less than before."""
        delivery = self._held()
        if delivery is not None:
            usage = self.usage()
            for _ in range(self.rng.choice((1, 1, 2))):
                used = (usage.cost_micros, usage.tokens)
                self.clients._ask(delivery, "report", Report(delivery.token, "half", usage), usage=used)

    def pay(self) -> None:
        """A larger budget, or none."""
        self._set_budget(self.rng.choice((None, 0, 50, 200, 1_000)), self.rng.choice((None, None, 0, 500)))

    def save(self) -> None:
        """A smaller budget."""
        self._set_budget(self.rng.choice((10, 30)), None)

    def _set_budget(self, cost: int | None, tokens: int | None) -> None:
        if tasks := self._tasks():
            self.set_budget(self.rng.choice(tasks[-4:]), cost, tokens)

    def set_budget(self, task: str, cost: int | None, tokens: int | None) -> None:
        asked = BudgetAsked(task, cost, tokens)
        self.history.budgets.append(asked)
        self.trace.line(f"{self.world.now()} budget {task} {cost} {tokens}")
        self.world.counts["budget_set"] += 1

        def answered(_result: Any, error: MeshError | None) -> None:
            asked.answer, asked.code = outcome(error)
            self.trace.line(f"budget {task}: {asked.answer} {asked.code}")

        self.world.submit(SetBudget(task, cost, tokens), answered)

    # -- growing

    def grow(self) -> None:
        """End a step with more steps, if it may."""
        delivery = self._held()
        if delivery is None:
            self._take_all()
            delivery = self._held()
        if delivery is None:
            return
        kernel, token = self.world.core.kernel, delivery.token
        scope, link = kernel.look(GrowthScope(token)), kernel.state.board.by_token.get(token)
        grows = link is not None and link.task.plan_of(link.number).grows
        if scope is None or (not grows and self.rng.random() < 0.9):
            return
        self._count += 1
        group = random_group(self.rng, f"g{self._count}_", scope.names, self._agents, self._roomy)
        usage = self.usage()
        request = GrowStep(token, json.dumps(document_of(group)).encode(), usage)
        command = self.world.node.growing.command(request)
        plans = msgspec.msgpack.decode(msgspec.msgpack.encode(command.steps))
        self.world.counts["grown"] += 1
        used = (usage.cost_micros, usage.tokens)
        self.clients._ask(delivery, "grow", command, steps=plans, usage=used)

    # -- healing

    def heal(self) -> bool:
        """Answer what is asked, send the signals that are waited for, pay. Whether nothing waits any more."""
        self.healing = True
        if not self.is_on:
            return True
        kernel = self.world.core.kernel
        waits = False
        for task in list(kernel.state.board.tasks.values()):
            if task.paused and task.closing is None:
                waits = True
                self.set_budget(task.id, 0, 0)
            for number in list(task.waiting):
                wait, plan = task.steps[number].wait, task.plan_of(number).wait
                waits = True
                if wait is not None and plan is not None and wait.kind == "ask":
                    self.reply(task.id, task.name_of(number), wait.asked, plan.options)
                elif plan is not None and plan.kind == "signal":
                    self._count += 1
                    self._signal(task.id, plan.signal, f"i{self._count}")
        return not waits and not kernel.look(OwedNotices())


def _nothing(delivery: Delivery) -> None:
    """Until it is known how."""


def _nothing_yet(task: str, hard: bool) -> None:
    """Until it is known how."""


def outcome(error: MeshError | None) -> tuple[Any, str]:
    """What a client was told: done, refused, or nothing that it can build on."""
    if error is None:
        return "done", ""
    known = error.code in REFUSED or isinstance(error, Refused | Conflict)
    return "refused" if known else "unknown", error.code
