"""The steps of one task, worked out from its events in order. Plain Python: no Spark, no clock; times in ms.

What a step ends as depends on the order of events, and through groups of steps on steps at any depth: that is
a loop, and no join. `kernel/tasks/board.py` and `ends.py` are the truth this follows; a test plays random
tasks against the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["StepFold"]

Event = dict[str, Any]

_GOOD = ("SUCCESS", "SKIPPED")
_WITHDRAWN = "withdrawn"
_ABANDONS = ("LEASE_EXPIRED", "RECLAIM", "ABANDON")
_UNBURNED = ("DEFER", "RELEASE")
_RETURNS = ("NACK", *_ABANDONS, *_UNBURNED)
_SETTLES = ("ACK", "DROP", "DEAD_LETTER")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Step:
    """One step, and what it has gone through."""

    def __init__(self, number: int, name: str, plan: dict[str, Any]) -> None:
        self.number = number
        self.name = name
        self.plan = plan
        self.kind = "step"
        self.parent = -1
        self.undoes = -1
        self.plan_step: str = plan["name"]
        self.needs: list[int] = []
        self.waits_for = 0
        self.followers: list[int] = []
        self.parts: range | None = None
        self.is_group = False
        self.open_parts = 0
        self.status = "PENDING"
        self.code: str | None = None
        self.reason: str | None = None
        self.agent: str | None = None
        self.message: tuple[str, int] | None = None
        self.question: tuple[str, int] | None = None
        self.messages = 0
        self.ready_at: int | None = None
        self.after: int | None = None
        self.sent_at: int | None = None
        self.first_granted_at: int | None = None
        self.granted_at: int | None = None
        self.attempts = self.failed = self.abandoned = 0
        self.ran_ms: int | None = None
        self.token: int | None = None
        self.end: Event | None = None
        self.ended_by: str | None = None
        self.outcome_token: int | None = None
        self.result_hash: str | None = None

    @property
    def catches(self) -> bool:
        """Whether its own plan catches its failure."""
        return bool(self.plan.get("on_failure", "fail") != "fail")


class StepFold:
    """All events of one task, those of its messages too; then `rows`."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.steps: list[_Step] = []
        self._work: dict[tuple[str, int], _Step] = {}
        self._questions: dict[tuple[str, int], _Step] = {}
        self._letters: dict[tuple[str, int], _Step] = {}
        self._leases: dict[tuple[str, int], int] = {}
        self._undos: range | None = None
        self._last_end: int | None = None
        self._closes = False
        for event in sorted(events, key=lambda each: each["sequence"]):
            self._apply(event)

    # -- events

    def _apply(self, event: Event) -> None:
        operation = event["operation"]
        if operation == "SUBMIT":
            self._submitted(event)
        elif not self.steps:
            return  # its beginning is not known
        elif operation in _OF_TASK:
            _OF_TASK[operation](self, event)
        elif event["message_sequence"] is not None:
            self._of_message(event, (event["mailbox"], event["message_sequence"]))

    def _submitted(self, event: Event) -> None:
        plan = _decode(event["settings"])
        self._add(event, plan["steps"], -1)
        for number, status, result in plan.get("given", ()):
            step = self.steps[number]
            if step.end is None:
                step.result_hash = result
                self._end(step, event, status, None, None, "SUBMIT")

    def _add(self, event: Event, plans: list[dict[str, Any]], parent: int) -> None:
        """Steps that stand together: of the plan, or a group."""
        first = len(self.steps)
        prefix = f"{self.steps[parent].name}/" if parent >= 0 else ""
        for place, plan in enumerate(plans):
            step = _Step(first + place, prefix + plan["name"], plan)
            step.parent = parent
            if parent >= 0:
                step.plan_step = f"{self.steps[parent].plan_step}/{step.plan_step}"
            step.needs = [first + need for need in plan["needs"]]
            step.waits_for = len(step.needs)
            if not step.needs:
                step.ready_at = event["at"]
            self.steps.append(step)
        for step in self.steps[first:]:
            for need in step.needs:
                self.steps[need].followers.append(step.number)

    def _steps_added(self, event: Event) -> None:
        parent = self.steps[event["step"]]
        self._forget_work(parent)
        first = len(self.steps)
        parent.status, parent.parts = "RUNNING", range(first, first + event["items"])
        parent.open_parts = event["items"]
        if event["settings"]:
            parent.kind, parent.is_group = "group", True
            parent.sent_at = parent.sent_at or event["at"]
            self._add(event, _decode(event["settings"])["steps"], parent.number)
            return
        parent.kind = "fan_out"
        for index in range(event["items"]):
            item = _Step(first + index, f"{parent.name}/{index}", parent.plan)
            item.kind, item.parent, item.plan_step = "item", parent.number, parent.plan_step
            item.ready_at = event["at"]
            self.steps.append(item)
        if not event["items"]:
            self._end(parent, event, "SUCCESS", None, None, "STEPS_ADDED")

    def _sent(self, event: Event) -> None:
        self._goes_out(self.steps[event["step"]], event)

    def _goes_out(self, step: _Step, event: Event) -> None:
        step.message = (event["mailbox"], event["message_sequence"])
        step.agent = event["mailbox"]
        step.messages += 1
        step.sent_at = step.sent_at or event["at"]
        self._work[step.message] = step

    def _waits(self, event: Event) -> None:
        step = self.steps[event["step"]]
        step.status = "RUNNING"
        step.sent_at = step.sent_at or event["at"]
        if event["message_sequence"] is not None:
            step.agent = event["mailbox"]
            step.question = (event["mailbox"], event["message_sequence"])
            self._questions[step.question] = step

    def _withdrawn(self, event: Event) -> None:
        step = self.steps[event["step"]]
        step.status, step.message = "PENDING", None

    def _closing(self, event: Event) -> None:  # noqa: ARG002 - as all of them
        self._closes = True

    def _undoing(self, event: Event) -> None:
        first, undone = len(self.steps), _decode(event["settings"])["undo"]
        for place, number in enumerate(undone):
            target = self.steps[number]
            step = _Step(first + place, f"{target.name}!undo", target.plan["undo"])
            step.kind, step.undoes, step.plan_step = "undo", number, f"{target.plan_step}!undo"
            self.steps.append(step)
        for step in self.steps[:first]:
            if step.sent_at is None and step.end is None:
                step.ready_at = step.after = None  # it is not done any more
        self._undos = range(first, len(self.steps))
        self._next_undo(event, self._last_end)

    def _next_undo(self, event: Event, after: int | None) -> None:
        for number in self._undos or ():
            step = self.steps[number]
            if step.end is None:
                step.ready_at, step.after = event["at"], after
                return

    def _ended(self, event: Event) -> None:
        step = self.steps[event["step"]]
        if step.end is None:
            step.outcome_token, step.result_hash = event["lease_token"], event["result_hash"]
        self._forget_work(step)
        self._end(step, event, event["status"], event["code"], event["reason"], "STEP_ENDED")

    def _task_ended(self, event: Event) -> None:
        status = "TIMEOUT" if event["status"] == "TIMEOUT" else "CANCELLED"
        for step in self.steps:
            if step.end is None:
                self._forget_work(step)
                step.end, step.status, step.ended_by = event, status, "TASK_ENDED"

    def _redriven(self, event: Event) -> None:
        """The step of a redriven message is given with it."""
        step = self.steps[event["step"]]
        self._letters = {letter: each for letter, each in self._letters.items() if each is not step}
        step.code = step.reason = None
        step.status = "PENDING"
        self._goes_out(step, event)

    def _purged(self, event: Event) -> None:
        step = self._letters.pop((event["mailbox"], event["dead_sequence"]), None)
        if step is not None and step.end is None:
            self._end(step, event, "FAILED", "purged", "its dead letter was purged", "PURGE")

    # -- messages

    def _of_message(self, event: Event, message: tuple[str, int]) -> None:
        operation = event["operation"]
        if (asked := self._questions.get(message)) is not None:
            self._of_question(asked, event)
            return
        step = self._work.get(message)
        if step is None:
            return
        if operation == "GRANT":
            self._granted(step, event, message)
        elif operation in _RETURNS:
            self._lease_over(step, event, message)
            self._returned(step, event, mine=step.message == message)
        elif operation in _SETTLES:
            self._lease_over(step, event, message)
            if step.message == message:
                self._settled(step, event)

    def _granted(self, step: _Step, event: Event, message: tuple[str, int]) -> None:
        step.attempts += 1
        step.first_granted_at = step.first_granted_at or event["at"]
        step.granted_at, step.token = event["at"], event["lease_token"]
        self._leases[message] = event["at"]
        if step.message == message:
            step.status = "RUNNING"

    def _lease_over(self, step: _Step, event: Event, message: tuple[str, int]) -> None:
        begun = self._leases.pop(message, None)
        if begun is not None:
            step.ran_ms = (step.ran_ms or 0) + event["at"] - begun

    def _returned(self, step: _Step, event: Event, *, mine: bool) -> None:
        operation = event["operation"]
        if operation in _UNBURNED:
            step.attempts -= 1
        elif operation == "NACK":
            step.failed += 1
        else:
            step.abandoned += 1
        if mine:
            step.status = _AFTER_RETURN.get(operation, "ABANDONED")
            if event["code"] is not None:
                step.code, step.reason = event["code"], event["error"]

    def _settled(self, step: _Step, event: Event) -> None:
        operation = event["operation"]
        self._forget_work(step)
        if operation == "DEAD_LETTER":
            step.status, step.code, step.reason = "DEAD_LETTER", event["reason"], event["error"]
            if self._caught(step):
                self._end(step, event, "DEAD_LETTER", event["reason"], event["error"], operation)
            else:
                self._letters[event["mailbox"], event["sequence"]] = step
            return
        step.outcome_token = step.token
        if operation == "ACK":
            self._end(step, event, "SUCCESS", None, None, operation)
        else:
            self._end(step, event, "FAILED", event["code"] or "dropped", None, operation)

    def _of_question(self, step: _Step, event: Event) -> None:
        """A question that is read waits on for its answer; one that dies unread ends its step."""
        operation = event["operation"]
        if operation not in _SETTLES or step.question is None:
            return
        self._forget_work(step)
        if operation == "ACK":
            return
        code = event["reason"] if operation == "DEAD_LETTER" else event["code"] or "dropped"
        if step.plan.get("default"):
            self._end(step, event, "SUCCESS", None, None, operation)
        else:
            self._end(step, event, "FAILED", code, "its question was not read", operation)

    def _forget_work(self, step: _Step) -> None:
        """No message and no question is its own any more."""
        step.message = None
        if step.question is not None:
            self._questions.pop(step.question, None)
            step.question = None

    # -- ends

    def _caught(self, step: _Step) -> bool:
        """Whether its failure leaves the task alive."""
        while not step.catches:
            if step.parent < 0:
                return False
            step = self.steps[step.parent]
        return True

    def _end(
        self, step: _Step, event: Event, status: str, code: str | None, reason: str | None, by: str
    ) -> None:
        if step.end is not None:
            return
        step.end, step.status, step.ended_by = event, status, by
        step.code, step.reason = (None, None) if status in _GOOD else (code, reason)
        self._closes = self._closes or (status not in _GOOD and not self._caught(step))
        if step.parent < 0:
            self._last_end = step.number
        for number in step.followers:
            follower = self.steps[number]
            follower.waits_for -= 1
            if not follower.waits_for and follower.status == "PENDING" and self._undos is None:
                follower.ready_at, follower.after = event["at"], step.number
        if step.undoes >= 0:
            self._next_undo(event, step.number)
        if step.parent >= 0:
            self._part_ended(step, event)

    def _part_ended(self, step: _Step, event: Event) -> None:
        parent = self.steps[step.parent]
        parent.open_parts -= 1
        fails = step.status not in _GOOD and step.code != _WITHDRAWN and not step.catches
        if fails and parent.is_group and not self._closes:
            self._stop_group(parent, event)
        if not parent.open_parts and parent.end is None:
            self._join(parent, event)

    def _stop_group(self, parent: _Step, event: Event) -> None:
        """A step of a group failed: those of it that are not out are not done."""
        for number in parent.parts or ():
            step = self.steps[number]
            if step.parts and step.end is None:
                self._stop_group(step, event)
            elif step.end is None and step.message is None:
                self._forget_work(step)
                why = "another step of its group failed"
                self._end(step, event, "CANCELLED", _WITHDRAWN, why, "PARTS")

    def _join(self, parent: _Step, event: Event) -> None:
        """All that a step went on as has ended: it ends too."""
        parts = [self.steps[number] for number in parent.parts or ()]
        bad = [step for step in parts if step.status not in _GOOD]
        if parent.is_group:
            bad = [step for step in bad if not step.catches]
        elif parent.plan.get("on_failure") == "continue":
            bad = [step for step in bad if step.code == _WITHDRAWN]
        failed = [step for step in bad if step.code != _WITHDRAWN]
        if failed:
            self._end(parent, event, "FAILED", failed[0].code, failed[0].reason, "PARTS")
        elif bad:
            self._end(parent, event, bad[0].status, bad[0].code, bad[0].reason, "PARTS")
        else:
            self._end(parent, event, "SUCCESS", None, None, "PARTS")

    # -- rows

    def rows(self) -> list[dict[str, Any]]:
        return [_row(step) for step in self.steps]


def _row(step: _Step) -> dict[str, Any]:
    ended = None if step.end is None else step.end["at"]
    own = step.ended_by != "TASK_ENDED"
    return {
        "step": step.number,
        "name": step.name,
        "plan_step": step.plan_step,
        "kind": step.kind,
        "parent": next((each for each in (step.parent, step.undoes) if each >= 0), None),
        "needs": ",".join(map(str, step.needs)) or None,
        "after_step": step.after,
        "agent": step.agent or step.plan["agent"] or None,
        "status": step.status,
        "code": step.code or None,
        "reason": step.reason or None,
        "attempts": step.attempts,
        "failed": step.failed,
        "abandoned": step.abandoned,
        "messages": step.messages,
        "ready_at": step.ready_at,
        "sent_at": step.sent_at,
        "first_granted_at": step.first_granted_at,
        "granted_at": step.granted_at,
        "ended_at": ended,
        "ended_sequence": None if step.end is None else step.end["sequence"],
        "ended_by": step.ended_by,
        "latency_ms": None if ended is None or step.ready_at is None else ended - step.ready_at,
        "waited_ms": _waited(step),
        "ran_ms": step.ran_ms,
        "lease_token": step.outcome_token if own else None,
        "result_hash": step.result_hash,
    }


def _waited(step: _Step) -> int | None:
    if step.sent_at is None or step.first_granted_at is None:
        return None
    return step.first_granted_at - step.sent_at


_AFTER_RETURN = {"NACK": "RETRYING", "DEFER": "PENDING", "RELEASE": "PENDING"}
_OF_TASK = {
    "STEP_SENT": StepFold._sent,
    "STEPS_ADDED": StepFold._steps_added,
    "STEP_WAITS": StepFold._waits,
    "STEP_WITHDRAWN": StepFold._withdrawn,
    "TASK_CLOSING": StepFold._closing,
    "TASK_UNDOING": StepFold._undoing,
    "STEP_ENDED": StepFold._ended,
    "TASK_ENDED": StepFold._task_ended,
    "REDRIVE": StepFold._redriven,
    "PURGE": StepFold._purged,
}
"""Operations that name a task or a step, not a message."""
