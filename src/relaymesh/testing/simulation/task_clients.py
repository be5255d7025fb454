"""The clients of tasks: they submit, finish, fail, come late, give up and cancel."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from relaymesh.errors import Conflict, MeshError, Refused
from relaymesh.kernel.commands import DrainAgent, Nack, RegisterAgent, Tick
from relaymesh.kernel.query import ReadySteps
from relaymesh.kernel.tasks.commands import Abandon, Cancel, Fail, Finish, Submit
from relaymesh.node.moves import move_of
from relaymesh.testing.simulation.clients import Clients, no_answer
from relaymesh.testing.simulation.history import Cancelled, Delivery, Shown, Submitted
from relaymesh.testing.simulation.task_talk import OWNER, TaskTalk
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.workflows import random_input, random_plan

DAY_S = 86_401
TASKS_MAX = 12
"""So many tasks in one run: a run is to end."""


class TaskClients:
    """Every client of tasks in one run; what they hold is among what all clients hold."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.world = clients.world
        self.history = clients.history
        self.trace = clients.trace
        self.rng = random.Random(f"tasks-{self.world.plan.seed}")
        self.talk = TaskTalk(clients)
        self.talk.finish = self.finish
        self.talk.cancel = lambda task, hard: self._cancel(task, hard=hard)
        self._count = 0
        self._interrupting = False
        self._day_passed = False
        self.drained: set[str] = set()
        """Agents that were told to drain, and perhaps to join again: a crash may take either back."""
        self.world.on_prepared = self.meanwhile
        boxes = self.world.plan.mailboxes
        self.agents = [
            address
            for address in self.world.plan.agents
            if boxes[address].settings.delivery_semantics != "at_most_once"
        ]
        self.habits: dict[str, Callable[[], None]] = {
            "submit": self.submit,
            "submit_again": self.submit_again,
            "submit_conflict": self.submit_conflict,
            "run_anew": self.run_anew,
            "finish_step": self.finish_step,
            "fail_step": self.fail_step,
            "nack_step": self.nack_step,
            "fatal_step": self.fatal_step,
            "redrive_step": self.redrive_step,
            "purge_step": self.purge_step,
            "a_day_passes": self.a_day_passes,
            "finish_late": self.finish_late,
            "pause_owner": self.pause_owner,
            "abandon": self.abandon,
            "cancel": self.cancel,
            "cancel_hard": self.cancel_hard,
            "cancel_race": self.cancel_race,
            "drain": self.drain,
            "join": self.join,
            "show_task": self.show_task,
            "list_tasks": self.list_tasks,
        }

    # -- submitting

    def submit(self) -> None:
        if self._count >= TASKS_MAX:
            self.finish_step()
            return
        self._count += 1
        plan = self.talk.richer(random_plan(self.rng, self.agents))
        self._ask(
            f"k{self._count}", plan, random_input(self.rng), b"r%d" % self._count, mail=self.talk.mail()
        )

    def submit_again(self) -> None:
        """A retry: the outcome was unknown, or the caller is just careless."""
        if self.history.tasks:
            old = self.rng.choice(self.history.tasks)
            self.world.counts["submit_again"] += 1
            self._ask(old.key, old.plan, old.input, old.request, mail=_mail(old))

    def submit_conflict(self) -> None:
        """The same key, another request."""
        if self.history.tasks:
            old = self.rng.choice(self.history.tasks)
            self._ask(old.key, old.plan, old.input, b"other", mail=_mail(old))

    def run_anew(self) -> None:
        """Once more, if it ended without success."""
        if self.history.tasks and self._count < TASKS_MAX:
            self._count += 1
            old = self.rng.choice(self.history.tasks)
            self._ask(old.key, old.plan, old.input, old.request, again=True, mail=_mail(old))

    def _ask(
        self,
        key: str,
        plan: Any,
        input: bytes,
        request: bytes,
        *,
        mail: tuple[str, str, tuple[Any, ...]],
        again: bool = False,
    ) -> None:
        world = self.world
        (id,) = world.node.new_ids(1)
        asked = Submitted(
            key, plan, input, request, self.history.next_order(), world.now(), world.life.number, again
        )
        asked.owner, asked.reply_to, asked.notify = mail
        self.trace.line(f"{asked.at} submit {key} {plan.name}{' again' if again else ''}")
        command = Submit(
            id,
            plan,
            input,
            key,
            request,
            asked.owner,
            again=again,
            reply_to=asked.reply_to,
            notify=asked.notify,
        )
        self.history.tasks.append(asked)

        def answered(result: Any, error: MeshError | None) -> None:
            asked.answered = self.history.next_order()
            if error is not None:
                asked.code = error.code
                asked.answer = "refused" if isinstance(error, Refused | Conflict) else "unknown"
            else:
                asked.answer, asked.task, asked.duplicate = "done", result.task, result.duplicate
            self.trace.line(f"submit {key}: {asked.task or asked.code}{' duplicate' * asked.duplicate}")

        world.submit(command, answered, decide=world.node.tasks.decide)

    def meanwhile(self, command: Submit) -> None:
        """Other threads, between the look-up of a key and the decision: its task ends, and is forgotten."""
        world = self.world
        if world.node.store is None or self._interrupting or self.rng.random() < 0.5:
            return
        live = [each.task for each in self.history.tasks if each.key == command.key and each.task]
        self._interrupting = True
        try:
            for delivery in [each for each in self.clients.held if each.step and _task_of(each) in live]:
                self.finish(delivery)
            if live and self.rng.random() < 0.5:
                self._cancel(live[-1], hard=True)
            world.core.sync()
            self.housekeeping()
        finally:
            self._interrupting = False

    def housekeeping(self) -> None:
        """As its thread would."""
        try:
            self.world.node.tend()
        except MeshError as error:
            if self.world.core.failure is not None:
                raise
            self.trace.line(f"no checkpoint: {error.code}")

    # -- working

    def _pick(self) -> Delivery | None:
        steps = [each for each in self.clients.held if each.step]
        if not steps:
            self.clients.take(self.rng.choice(self.agents), 3)
            return None
        return self.rng.choice(steps)

    def _pick_now(self) -> Delivery | None:
        """One that is held; if there is none, take what there is and wait for it."""
        if self._pick() is None and self.world.has_tasks:
            for agent in self.agents:
                self.clients.take(agent, 10)
            self.world.core.sync()
        return self._pick()

    def finish_step(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self.finish(delivery)

    def finish(self, delivery: Delivery) -> None:
        output = json.dumps({"by": delivery.token, "at": self.history.order}).encode()
        usage = self.talk.usage()
        used = (usage.cost_micros, usage.tokens)
        command = Finish(delivery.token, output, usage)
        self.clients._ask(delivery, "finish", command, output=output, usage=used)

    def fail_step(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            usage = self.talk.usage()
            command = Fail(delivery.token, "cannot", "asked to fail", usage)
            used = (usage.cost_micros, usage.tokens)
            self.clients._ask(delivery, "fail", command, code_given="cannot", usage=used)

    def nack_step(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self.clients._ask(
                delivery, "nack", Nack(delivery.token, "other", "try again"), code_given="other"
            )

    def fatal_step(self) -> None:
        delivery = self._pick_now()
        if delivery is not None:
            command = Nack(delivery.token, "other", "cannot be done", retryable=False)
            self.clients._ask(delivery, "fatal", command, code_given="other")

    def redrive_step(self) -> None:
        self._letter(purge=False)

    def purge_step(self) -> None:
        self._letter(purge=True)

    def _letter(self, *, purge: bool) -> None:
        """Put the dead letter of a step back, or purge it."""
        letters = self.world.core.read(
            lambda kernel: [
                (each.mailbox, each.dead_sequence)
                for each in kernel.state.letters
                if each.status == "pending" and each.envelope.type == "task_assign"
            ]
        )
        if letters:
            self.clients.put_back([self.rng.choice(letters)], purge=purge)

    def a_day_passes(self) -> None:
        """Dead letters grow old, or even keys do, and the daily work comes. Once in a run."""
        if self._day_passed:
            return
        self._day_passed = True
        letters_age = self.world.plan.settings.dead_letter_days < 1
        if letters_age:
            self.fatal_step()
        days = 1 if letters_age and self.rng.random() < 0.7 else 8
        self.world.counts["key_aged"] += days > 7 and any(each.task for each in self.history.tasks)
        self.world.clock.advance(days * DAY_S)
        self.trace.line(f"{self.world.now()} {days} days passed")
        self.housekeeping()

    def finish_late(self) -> None:
        """A worker that was paused comes back with the result of an old delivery."""
        late = [each for each in self.clients.finished[-25:] if each.step]
        if late:
            self.world.counts["late_result"] += 1
            self.finish(self.rng.choice(late))

    def pause_owner(self) -> None:
        """A worker is paused for longer than its lease, then goes on as if nothing had happened."""
        delivery = self._pick_now()
        if delivery is None:
            return
        world = self.world
        world.counts["paused_owner"] += 1
        world.clock.advance(max(0, delivery.deadline - world.now()) / 1000 + self.rng.choice((0.001, 1, 20)))
        self.trace.line(f"{world.now()} token {delivery.token} slept")
        world.submit(Tick(), no_answer)
        if self.rng.random() < 0.3:
            self.clients.take(delivery.mailbox, 3)
        self.finish(delivery)

    def count_late(self) -> None:
        """Results that came after the end of their lease, by what was answered."""
        for settle in self.history.settles:
            if settle.how == "finish" and settle.at > settle.delivery.deadline:
                kind = {"done": "late_result_taken", "refused": "late_result_refused"}.get(settle.answer)
                if kind is not None:
                    self.world.counts[kind] += 1

    def abandon(self) -> None:
        """A supervisor knows that the holder is dead."""
        delivery = self._pick()
        if delivery is not None:
            self.clients._ask(delivery, "abandon", Abandon([delivery.token], "killed"))

    def cancel(self, *, hard: bool = False) -> None:
        known = [each for each in self.history.tasks if each.task]
        if known:
            self._cancel(self.rng.choice(known[-5:]).task, hard=hard)

    def _cancel(self, task: str, *, hard: bool) -> None:
        asked = Cancelled(task, hard, self.history.next_order(), self.world.now())
        self.history.cancels.append(asked)
        self.trace.line(f"{asked.at} cancel {task}{' hard' * hard}")

        def answered(result: Any, error: MeshError | None) -> None:
            known = error is None or error.code == "NOT_FOUND"
            asked.answer = "done" if error is None else "refused" if known else "unknown"
            asked.result = str(result)
            self.trace.line(f"cancel {task}: {result if error is None else error.code}")

        self.world.submit(Cancel(task, "not wanted", OWNER, hard), answered)

    def cancel_hard(self) -> None:
        self.cancel(hard=True)

    def cancel_race(self) -> None:
        """A cancel and the result of a step at the same time, in either order."""
        delivery = self._pick_now()
        if delivery is None:
            return
        self.world.counts["cancel_race"] += 1
        hard, first = self.rng.random() < 0.5, self.rng.random() < 0.5
        if first:
            self._cancel(_task_of(delivery), hard=hard)
        self.finish(delivery)
        if not first:
            self._cancel(_task_of(delivery), hard=hard)

    def give_up(self, tasks: list[str]) -> None:
        """Cancel tasks with a step whose message is larger than its mailbox: it waits for ever."""
        for task in tasks:
            kernel = self.world.core.kernel
            ready, plan = kernel.look(ReadySteps(task)), kernel.state.board.tasks[task]
            if ready is None:
                continue
            for step in ready.steps:
                address = plan.plan_of(step.number).mailbox
                if not address:
                    continue  # it waits
                settings = self.world.plan.mailboxes[address].settings
                if len(move_of(ready, step).content) > settings.capacity_bytes:
                    self._cancel(task, hard=True)
                    break

    # -- agents that take no new steps

    def drain(self) -> None:
        agent = self.rng.choice(self.agents)
        self.drained.add(agent)
        self.trace.line(f"{self.world.now()} drain {agent}")
        self.world.submit(RegisterAgent(agent), no_answer)
        self.world.submit(DrainAgent(agent), no_answer)

    def join(self) -> None:
        """One that drained takes steps again."""
        if self.drained:
            self._join(self.rng.choice(sorted(self.drained)))

    def join_all(self) -> None:
        for agent in sorted(self.drained):
            self._join(agent)

    def _join(self, agent: str) -> None:
        self.trace.line(f"{self.world.now()} join {agent}")
        self.world.submit(RegisterAgent(agent), no_answer)

    # -- looking

    def show_task(self) -> None:
        known = [each.task for each in self.history.tasks if each.task]
        if not known:
            return
        world, task = self.world, self.rng.choice(known)
        at, synced = world.now(), world.core.synced
        try:
            found = world.node.tasks.show(task)
        except MeshError as error:
            self.trace.line(f"{at} show {task}: {error.code}")
            return
        shown = Shown(task, at, synced)
        if found is not None:
            shown.status, shown.result = found.task.status, found.task.result
            shown.steps = {step.name: (step.status, step.output) for step in found.steps}
        self.history.shown.append(shown)
        world.counts["task_shown"] += 1
        self.trace.line(f"{at} show {task}: {shown.status}")

    def list_tasks(self) -> None:
        """Page by page, until there is none: each task comes once."""
        world = self.world
        at, synced, limit = world.now(), world.core.synced, self.rng.choice((1, 3, 100))
        listed: dict[str, Shown] = {}
        cursor: str | None = None
        try:
            while True:
                page = world.node.tasks.list(limit=limit, before=cursor)
                for view in page.tasks:
                    if view.task in listed:
                        raise Violation("shown_is_true", f"task {view.task} is on two pages of one list")
                    listed[view.task] = Shown(view.task, at, synced, view.status, view.result)
                cursor = page.next
                if cursor is None:
                    break
        except MeshError as error:
            self.trace.line(f"{at} list tasks: {error.code}")
            return
        known = {each.task for each in self.history.tasks if each.task}
        self.history.shown += listed.values()
        self.history.shown += [Shown(task, at, synced) for task in sorted(known - listed.keys())]
        world.counts["task_shown"] += len(known)
        self.trace.line(f"{at} list tasks: {len(listed)}")


def _mail(old: Submitted) -> tuple[str, str, tuple[Any, ...]]:
    return old.owner, old.reply_to, old.notify


def _task_of(delivery: Delivery) -> str:
    return str(json.loads(delivery.content)["task"])
