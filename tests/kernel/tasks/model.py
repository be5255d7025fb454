"""A dumb model of one task: dictionaries, and readiness worked out from scratch after every record.

It believes what the records say about messages (granted, returned, acked, dropped, dead, redriven, purged),
because mailboxes are proven elsewhere, and works out for itself what that means for steps and task.
"""

from __future__ import annotations

import json
import re
from typing import Any

from relaymesh.kernel import records
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.advance import QUESTION_TYPE, SENDER_NAME, STEP_TYPE
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.commands import Advance, Answer, Fail, Finish, Grow, Report
from relaymesh.kernel.tasks.looks import ReadyTask
from relaymesh.kernel.tasks.plan import Plan, StepPlan

GOOD = ("SUCCESS", "SKIPPED")
ENDS = (*GOOD, "FAILED", "TIMEOUT", "CANCELLED")
WAITS = ("PENDING", "RETRYING", "ABANDONED")
RETURNS = {
    "nack": "RETRYING",
    "expired": "ABANDONED",
    "restart": "ABANDONED",
    "abandoned": "ABANDONED",
    "deferred": "PENDING",
    "released": "PENDING",
}


class Thing:
    """A step of the plan, an item of one, a step that was added, or one that undoes another."""

    def __init__(self, number: int, plan: StepPlan, parent: Thing | None = None, first: int = 0) -> None:
        self.number, self.plan, self.parent, self.first = number, plan, parent, first
        self.is_item = False
        self.undoes: Thing | None = None
        self.status = "PENDING"
        self.message: int | None = None
        self.was_sent = False
        self.sent_at = 0
        self.children: list[Thing] | None = None
        self.output: Any = None
        self.code = ""
        self.token = 0
        self.attempts = self.failed = self.abandoned = 0
        self.wait: records.StepWaits | None = None
        self.used = (0, 0)
        self.done = 0
        self.grew = self.is_group = False

    @property
    def catches(self) -> bool:
        return self.plan.on_failure != "fail"

    @property
    def caught(self) -> bool:
        return self.catches or (self.parent is not None and self.parent.caught)

    @property
    def ended(self) -> bool:
        return self.status in ENDS or (self.status == "DEAD_LETTER" and self.caught)

    @property
    def needs(self) -> list[int]:
        alone = self.is_item or self.undoes is not None
        return [] if alone else [self.first + need for need in self.plan.needs]


class Model:
    """What a task must look like after the records so far."""

    def __init__(self, task: str, plan: Plan, skips: set[str]) -> None:
        self.task, self.plan, self.skips = task, plan, skips
        self.things = [Thing(number, step) for number, step in enumerate(plan.steps)]
        self.letters: dict[tuple[str, int], Thing] = {}
        self.tokens: dict[int, Thing] = {}
        self.signals: list[tuple[str, bytes]] = []
        self.closing: str | None = None
        self.hard = False
        self.end: str | None = None
        self.result: bytes | None = None
        """Of a success, as the record has it."""
        self.budget = (plan.cost_micros, plan.tokens)
        self.paused = False
        self.undos: list[Thing] = []
        self.works_done = 0

    # -- from scratch

    def runs(self, thing: Thing) -> bool:
        """Whether it runs or is skipped, if its needs have ended."""
        for need in thing.needs:
            before = self.things[need]
            if before.plan.on_failure == "handle":
                went_well = before.status in GOOD
                if (before.first + before.plan.handler == thing.number) == went_well:
                    return False
        return True

    def is_ready(self, thing: Thing) -> bool:
        if thing.ended or thing.was_sent or thing.children is not None or thing.wait is not None:
            return False
        if self.undos:
            return thing is next((each for each in self.undos if not each.ended), None)
        return all(self.things[need].ended for need in thing.needs)

    def out(self) -> list[Thing]:
        return [thing for thing in self.things if thing.message is not None]

    def over_budget(self) -> bool:
        used = [sum(thing.used[i] for thing in self.spent) for i in (0, 1)]
        return any(0 < most <= have for most, have in zip(self.budget, used, strict=True))

    @property
    def spent(self) -> list[Thing]:
        return [*self.things, *self.earlier]

    earlier: tuple[Thing, ...] = ()
    """What attempts used that were followed by others."""

    def result_of(self, things: list[Thing]) -> Any:
        first = things[0].first
        needed = {first + need for thing in things for need in thing.plan.needs}
        handlers = {first + thing.plan.handler for thing in things if thing.plan.handler >= 0}
        ends = [thing for thing in things if thing.number not in needed]
        leaves = [thing for thing in ends if thing.number not in handlers] or ends
        if len(leaves) == 1:
            return leaves[0].output
        return {leaf.plan.name: leaf.output for leaf in leaves}

    def expected_undos(self) -> list[tuple[int, bool]]:
        found = []
        for thing in self.things:
            if thing.plan.undo is None or not thing.attempts or not thing.done:
                continue
            if thing.status == "SUCCESS" or thing.grew:
                found.append((thing.done, thing.number, False))
            elif thing.status != "FAILED" or thing.code == "purged":
                found.append((thing.done, thing.number, True))
        return [(number, doubt) for _, number, doubt in sorted(found, reverse=True)]

    # -- records

    def see(self, command: Command[Any], step: Step) -> None:
        sequence = step.base
        sent: list[int] = []
        for record in step.records:
            if isinstance(record, records.Accepted) and self._is_ours(record):
                sent += range(sequence, sequence + record.count)
            elif isinstance(record, records.StepsSent):
                for message in record.sequences:
                    sent.remove(message)
            elif isinstance(record, records.StepWaits) and record.sequence >= 0:
                sent.remove(record.sequence)
            words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).lower()
            handle = getattr(self, "on_" + words, None)
            if handle is not None and getattr(record, "task", self.task) == self.task:
                handle(record, sequence, command)
            sequence += record.count
        assert not sent, "a message of a step is the work of none"

    @staticmethod
    def _is_ours(record: records.Accepted) -> bool:
        first = record.envelopes[0]
        return first.sender.endswith(f"/{SENDER_NAME}") and first.type in (STEP_TYPE, QUESTION_TYPE)

    def _with_message(self, sequence: int) -> Thing | None:
        found = [thing for thing in self.things if thing.message == sequence]
        assert len(found) <= 1, "two steps have one message"
        assert not found or self.end is None, "a step moved after the end of its task"
        return found[0] if found else None

    def _asking(self, sequence: int) -> Thing | None:
        found = [each for each in self.things if each.wait is not None and each.wait.sequence == sequence]
        return found[0] if found and self.end is None else None

    def _work_is_done(self, thing: Thing) -> None:
        if thing.plan.undo is not None and not thing.done:
            self.works_done += 1
            thing.done = self.works_done

    def _end(self, thing: Thing, status: str, output: Any = None, code: str = "", reason: str = "") -> None:
        assert not thing.ended, f"step {thing.number} ended twice"
        thing.status, thing.message, thing.code, thing.wait = status, None, code, None
        self._work_is_done(thing)
        self._count_end(thing, output, code, reason)

    def _count_end(self, thing: Thing, output: Any, code: str, reason: str) -> None:
        good = thing.status in GOOD
        thing.output = output if good else {"error": {"code": code, "reason": reason}}
        if not good and not thing.caught and self.closing is None:
            self.closing = "TIMEOUT" if thing.status == "TIMEOUT" else "FAILED"
        if thing.parent is None:
            return
        fails = not good and code != "withdrawn" and not thing.is_item and not thing.catches
        if fails and thing.caught and self.closing is None:
            self._stop(thing.parent)
        self._join(thing.parent)

    def _stop(self, parent: Thing) -> None:
        for child in parent.children or ():
            if child.ended:
                continue
            if child.children:
                self._stop(child)
            elif child.message is None:
                self._end(child, "CANCELLED", None, "withdrawn", "another step of its group failed")

    def _join(self, parent: Thing) -> None:
        children = parent.children or []
        if parent.ended or not all(child.ended for child in children):
            return
        bad = [child for child in children if child.status not in GOOD]
        if not parent.is_group:
            if parent.plan.on_failure == "continue":
                bad = [child for child in bad if child.code == "withdrawn"]
        else:
            bad = [child for child in bad if not child.catches]
        failed = [child for child in bad if child.code != "withdrawn"]
        if failed:
            error = failed[0].output["error"]
            self._end(parent, "FAILED", None, error["code"], error["reason"])
        elif bad:
            error = bad[0].output["error"]
            self._end(parent, bad[0].status, None, error["code"], error["reason"])
        elif parent.is_group:
            self._end(parent, "SUCCESS", self.result_of(children))
        else:
            self._end(parent, "SUCCESS", [child.output for child in children])

    def on_steps_sent(self, record: records.StepsSent, sequence: int, command: object) -> None:
        assert self.closing is None or self.undos, "a step was sent although its task closes"
        assert not self.paused or self.undos, "a step was sent although its task has used its budget"
        for number, message in zip(record.steps, record.sequences, strict=True):
            thing = self.things[number]
            assert self.is_ready(thing), f"step {number} was sent before its needs ended, or twice"
            assert self.runs(thing), f"step {number} was sent although it does not run"
            assert thing.plan.wait is None
            assert not thing.plan.include
            assert thing.message is None
            thing.message, thing.was_sent, thing.sent_at = message, True, record.at
            if thing.is_item and thing.plan.parallel:
                siblings = [each for each in self.out() if each.parent is thing.parent]
                assert len(siblings) <= thing.plan.parallel
        assert len(record.steps) <= 64
        assert len(self.out()) <= 100
        assert not self.undos or len(self.out()) == 1, "two steps are undone at once"

    def on_steps_added(self, record: records.StepsAdded, sequence: int, command: object) -> None:
        parent = self.things[record.step]
        if record.token:
            assert isinstance(command, Grow)
            assert command.token == record.token == parent.token, "not by the last grant"
            assert self.closing is None
            parent.grew = True
            self._work_is_done(parent)
        else:
            assert self.is_ready(parent)
        first = len(self.things)
        plans = record.plans or [parent.plan] * len(record.items)
        parent.status, parent.message, parent.was_sent = "RUNNING", None, True
        parent.is_group = bool(record.plans)
        parent.children = [Thing(number, each, parent, first) for number, each in enumerate(plans, first)]
        for child in parent.children:
            child.is_item = not record.plans
        self.things += parent.children
        self._join(parent)

    def on_step_waits(self, record: records.StepWaits, sequence: int, command: object) -> None:
        thing = self.things[record.step]
        assert isinstance(command, Advance)
        assert self.is_ready(thing)
        assert self.closing is None
        assert thing.plan.wait is not None
        assert thing.plan.wait.kind == record.kind
        assert (record.kind == "ask") == (record.sequence >= 0)
        thing.status, thing.was_sent, thing.wait = "RUNNING", True, record

    def on_signal_received(self, record: records.SignalReceived, sequence: int, command: object) -> None:
        self.signals.append((record.name, record.value))
        assert len(self.signals) <= 100

    def on_steps_withdrawn(self, record: records.StepsWithdrawn, sequence: int, command: object) -> None:
        assert self.paused
        for number in record.steps:
            thing = self.things[number]
            assert thing.status in WAITS, "a step was taken from its holder"
            assert thing.message is not None
            thing.status, thing.message, thing.was_sent = "PENDING", None, False

    def on_usage_noted(self, record: records.UsageNoted, sequence: int, command: object) -> None:
        thing = self.things[record.step]
        assert isinstance(command, Finish | Fail | Grow | Report)
        assert record.token == command.token == thing.token
        now = (record.cost_micros, record.tokens)
        assert all(new >= old for new, old in zip(now, thing.used, strict=True)), "usage fell"
        thing.used = now

    def on_budget_paused(self, record: records.BudgetPaused, sequence: int, command: object) -> None:
        assert self.over_budget()
        assert not self.paused
        assert self.closing is None
        self.paused = True

    def on_budget_set(self, record: records.BudgetSet, sequence: int, command: object) -> None:
        self.budget = (record.cost_micros, record.tokens)
        self.paused = self.paused and self.over_budget()

    def on_task_undoing(self, record: records.TaskUndoing, sequence: int, command: object) -> None:
        assert self.closing is not None
        assert not self.undos, "a task undoes twice"
        assert not self.out(), "a task undoes while a holder works"
        assert list(zip(record.steps, record.uncertain, strict=True)) == self.expected_undos()
        for number in record.steps:
            plan = self.things[number].plan.undo
            assert plan is not None
            undo = Thing(len(self.things), plan)
            undo.undoes = self.things[number]
            self.things.append(undo)
            self.undos.append(undo)

    def on_granted(self, record: records.Granted, sequence: int, command: object) -> None:
        for token, message in enumerate(record.sequences, record.token):
            thing = self._with_message(message)
            if thing is not None:
                assert thing.status in WAITS
                assert not self.paused or self.undos, "granted after its budget was used"
                spent = Thing(-1, thing.plan)
                spent.used = thing.used
                self.earlier = (*self.earlier, spent)
                thing.status, thing.token, thing.used = "RUNNING", token, (0, 0)
                thing.attempts += 1
                self.tokens[token] = thing

    def on_returned(self, record: records.Returned, sequence: int, command: object) -> None:
        for message in record.sequences:
            thing = self._with_message(message)
            if thing is not None:
                assert thing.status == "RUNNING"
                thing.status = RETURNS[record.cause]
                thing.failed += thing.status == "RETRYING"
                thing.abandoned += thing.status == "ABANDONED"
                thing.attempts -= thing.status == "PENDING"
                assert thing.failed < thing.plan.max_attempts
                assert thing.abandoned <= thing.plan.max_abandoned

    def on_acked(self, record: records.Acked, sequence: int, command: object) -> None:
        for message in record.sequences:
            thing = self._with_message(message)
            if thing is not None:
                self._end(thing, "SUCCESS")

    def on_dropped(self, record: records.Dropped, sequence: int, command: object) -> None:
        for message in record.sequences:
            thing = self._with_message(message)
            if thing is not None:
                self._end(thing, "FAILED", None, record.code)
            elif (asking := self._asking(message)) is not None:
                self._unanswered(asking, record.code)

    def _unanswered(self, thing: Thing, code: str) -> None:
        """Its question died."""
        assert thing.plan.wait is not None
        default = thing.plan.wait.default
        if default is not None:
            self._end(thing, "SUCCESS", json.loads(default))
        else:
            self._end(thing, "FAILED", None, code, "its question was not read")

    def on_dead_lettered(self, record: records.DeadLettered, sequence: int, command: object) -> None:
        for i, message in enumerate(record.sequences):
            thing = self._with_message(message)
            if thing is None:
                if (asking := self._asking(message)) is not None:
                    self._unanswered(asking, record.reason)
                continue
            assert thing.undoes is None or record.alert, "the death of an undo raises no alert"
            failure = record.failures[i] if record.failures else None
            thing.status, thing.message, thing.token, thing.code = "DEAD_LETTER", None, 0, record.reason
            self._work_is_done(thing)
            if thing.ended:
                self._count_end(thing, None, record.reason, failure.reason if failure else "")
            else:
                self.letters[record.mailbox, sequence + i] = thing

    def on_redriven(self, record: records.Redriven, sequence: int, command: object) -> None:
        thing = self.letters.pop((record.source, record.dead_sequence), None)
        if thing is not None:
            assert self.closing is None or thing.undoes is not None
            thing.status, thing.message, thing.sent_at = "PENDING", sequence, record.at
            thing.failed = thing.abandoned = thing.done = 0

    def on_dead_letters_purged(
        self, record: records.DeadLettersPurged, sequence: int, command: object
    ) -> None:
        for each in record.dead_sequences:
            thing = self.letters.pop((record.mailbox, each), None)
            if thing is not None:
                thing.status = "PENDING"
                self._end(thing, "FAILED", None, "purged", "its dead letter was purged")

    def on_steps_ended(self, record: records.StepsEnded, sequence: int, command: object) -> None:
        for i, number in enumerate(record.steps):
            thing = self.things[number]
            output = json.loads(record.outputs[i]) if record.outputs else None
            self._may_end(record, thing, command)
            self._end(thing, record.status, output, record.code, record.reason)

    def _may_end(self, record: records.StepsEnded, thing: Thing, command: object) -> None:
        if record.token:
            assert isinstance(command, Finish | Fail)
            assert command.token == record.token == thing.token, "not by the last grant"
            assert thing.message is not None or not thing.was_sent
            assert (record.status == "SUCCESS") == isinstance(command, Finish)
            if isinstance(command, Finish):
                assert record.outputs == [command.output]
        elif record.code == "withdrawn":
            assert self.closing is not None
            assert thing.undoes is None, "a close stopped what undoes it"
            leased = thing.message is not None and thing.status == "RUNNING"
            assert self.hard or not leased, "a soft close took a step from its holder"
        elif thing.wait is not None:
            self._may_stop_waiting(record, thing, command)
        elif record.code == "timeout":
            assert record.at >= thing.sent_at + thing.plan.timeout_ms > thing.sent_at
        else:
            assert isinstance(command, Advance)
            assert self.is_ready(thing)
            if record.status == "SKIPPED":
                assert thing.plan.name in self.skips or not self.runs(thing)

    def _may_stop_waiting(self, record: records.StepsEnded, thing: Thing, command: object) -> None:
        wait, plan = thing.wait, thing.plan.wait
        assert wait is not None
        assert plan is not None
        if record.code in ("default", "timeout") or wait.kind == "wait":
            assert 0 < wait.until <= record.at, "a wait ended before its time"
            assert (record.status == "SUCCESS") == (wait.kind == "wait" or plan.default is not None)
            if wait.kind != "wait" and plan.default is not None:
                assert record.outputs == [plan.default]
        elif wait.kind == "ask":
            assert isinstance(command, Answer)
            assert command.by == wait.asked, "a stranger answered"
            assert record.outputs == [command.value]
            assert not plan.options or json.loads(command.value) in plan.options
        else:
            first = next(value for name, value in self.signals if name == plan.signal)
            assert record.outputs == [first], "another signal than the first"
            self.signals.remove((plan.signal, first))

    def on_task_closing(self, record: records.TaskClosing, sequence: int, command: object) -> None:
        assert self.end is None
        assert self.closing in (None, record.status)
        assert not self.undos, "a close came while the task undoes"
        self.closing, self.hard = record.status, record.hard

    def on_task_ended(self, record: records.TaskEnded, sequence: int, command: object) -> None:
        assert self.end is None, "a task ended twice"
        assert not self.out()
        if self.closing is None:
            assert all(thing.ended for thing in self.things)
            assert record.status == "SUCCESS"
            assert json.loads(record.result) == self.result_of(self.things[: len(self.plan.steps)])
            self.result = record.result
        else:
            assert record.status == self.closing
            assert self.undos or not self.expected_undos(), "what was done is not undone"
            assert all(undo.ended for undo in self.undos)
        for thing in self.things:
            if not thing.ended:
                thing.status = "TIMEOUT" if record.status == "TIMEOUT" else "CANCELLED"
        self.letters.clear()
        self.end = record.status

    # -- the kernel beside it

    def compare(self, board: Board) -> None:
        """The kernel says the same."""
        task = board.tasks.get(self.task)
        assert (task is None) == (self.end is not None)
        if task is None:
            over = board.over.get(self.task)
            if over is not None:  # a restart forgets it: the store has it by then
                assert over.task.status == self.end
                assert over.task.result == self.result
                assert [view.status for view in over.steps] == [thing.status for thing in self.things]
            assert not board.questions
            return
        assert [step.status for step in task.steps] == [thing.status for thing in self.things]
        for step, thing in zip(task.steps, self.things, strict=True):
            assert step.ended == thing.ended
            told = (thing.attempts, thing.failed, thing.abandoned)
            assert (step.attempts, step.failed, step.abandoned) == told
            if step.output is not None:
                assert json.loads(step.output) == thing.output
        assert task.closing == self.closing
        assert set(task.ready) == {thing.number for thing in self.things if self.is_ready(thing)}
        assert set(task.steps_out) == {thing.number for thing in self.out()}
        assert set(task.waiting) == {thing.number for thing in self.things if thing.wait is not None}
        assert {link.number for link in board.letters.values()} == {x.number for x in self.letters.values()}
        self._compare_budget(task)

    def _compare_budget(self, task: Any) -> None:
        assert task.cost == sum(thing.used[0] for thing in self.spent)
        assert task.tokens == sum(thing.used[1] for thing in self.spent)
        assert bool(task.paused) == self.paused
        if self.closing is None and any(not thing.ended for thing in self.things):
            assert self.paused == self.over_budget(), "over its budget, and it goes on"
        if self.paused and self.closing is None:
            assert all(thing.status == "RUNNING" for thing in self.out()), "a paused task has messages"

    def compare_ready(self, ready: ReadyTask | None) -> None:
        """What the shell is told of steps to send: their needs have ended, and these are the outputs."""
        for each in ready.steps if ready is not None else ():
            thing = self.things[each.number]
            assert self.is_ready(thing)
            assert (each.action == "skip") == (not self.runs(thing))
            if each.action == "send" and each.parked is None:
                told = {name: json.loads(output) for name, output in each.outputs}
                assert told == {source.plan.name: source.output for source in self.sources(thing)}
            if thing.undoes is not None and thing.undoes.status == "SUCCESS":
                assert json.loads(each.output or b"null") == thing.undoes.output

    def sources(self, thing: Thing) -> list[Thing]:
        """The steps whose outputs its expressions read: those of its own group hide the others."""
        home = thing if thing.undoes is None else thing.undoes
        while home.is_item:
            assert home.parent is not None
            home = home.parent
        numbers = [*thing.plan.outer, *[home.first + each for each in thing.plan.refers]]
        return [self.things[number] for number in numbers]
