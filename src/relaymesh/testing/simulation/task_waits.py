"""The ledger of tasks: steps that wait for an answer, a time or a signal."""

from __future__ import annotations

import json
from typing import Any

from relaymesh.testing.simulation.task_ends import TaskEnds
from relaymesh.testing.simulation.told import StepTold, TaskTold, runs
from relaymesh.testing.simulation.verdict import Violation

SIGNALS_MAX = 100


class Waits(TaskEnds):
    """Which waits began, and why each of them ended."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[tuple[str, str], tuple[str, bytes]] = {}
        """By task and step: the agent that was asked, and the answer that counted."""
        self.signals: dict[tuple[str, str], tuple[str, bytes]] = {}
        """By task and id: the name and the value of each signal that came."""

    def waits(self, at: int, record: list[Any], content: bytes | None) -> StepTold:
        """`content`: of its question, if there is one."""
        id, number, kind, until, sequence, asked = (*record[3:9], *(0, -1, "")[len(record) - 6 :])[:6]
        step = self._step(id, number, "a wait")
        self._check_ready(step, at, "a wait")
        plan = step.plan["wait"]
        if plan is None or plan["kind"] != kind or not runs(step):
            raise Violation("follows_plan", f"{step} waits ({kind}), and its plan does not say so")
        if (kind == "ask") != (sequence >= 0) or asked != (step.plan["mailbox"] if kind == "ask" else ""):
            raise Violation("follows_plan", f"{step} waits ({kind}), and {asked!r} is asked")
        if asked in self.draining:
            raise Violation("drain_kept", f"{step} asks {asked}, which drains")
        limit_ms = step.plan["timeout_ms"]
        if kind == "wait":
            limit_ms = round(1000 * json.loads(step.plan["input"]))
        if until != (at + limit_ms if limit_ms or kind == "wait" else 0):
            raise Violation("follows_plan", f"{step} waits until {until} from {at} on, not for {limit_ms} ms")
        if content is not None:
            self._check_question(step, json.loads(content))
        step.status, step.sent_at, step.until = "WAITS", at, until
        return step

    def _check_question(self, step: StepTold, told: Any) -> None:
        task, plan = step.task, step.plan["wait"]
        wanted = {"task": task.id, "step": step.name, "workflow": task.plan[0]}
        input = json.loads(step.plan["input"])
        wanted["question"] = input["question"] if isinstance(input, dict) else input
        if plan["options"]:
            wanted["options"] = list(plan["options"])
        if step.plan["timeout_ms"]:
            wanted["timeoutSeconds"] = step.plan["timeout_ms"] / 1000
        if told != wanted:
            raise Violation("follows_plan", f"{step} asks {told}, not {wanted}")

    def signalled(self, at: int, record: list[Any]) -> None:
        id, name, signal, value = record[3:7]
        task = self._task(id, "a signal")
        if signal in task.signal_ids:
            raise Violation("signal_once", f"signal {signal} came to task {id} twice")
        task.signal_ids.add(signal)
        task.signals.append((name, signal, value))
        self.signals[id, signal] = name, value
        if len(task.signals) > SIGNALS_MAX:
            raise Violation("signal_once", f"task {id} keeps {len(task.signals)} signals")

    def _check_wait_ends(self, step: StepTold, at: int, status: str, output: bytes | None, code: str) -> None:
        """An end of a wait that no close brought about."""
        plan = step.plan["wait"]
        if plan["kind"] == "wait" or code in ("default", "timeout"):
            if not 0 < step.until <= at:
                raise Violation("wait_kept", f"{step} waits until {step.until}, and ended ({code}) at {at}")
            by_default = plan["kind"] != "wait" and plan["default"] is not None
            good = plan["kind"] == "wait" or by_default
            wanted = (plan["default"] if by_default else b"null") if good else None
            if (status, output) != ("SUCCESS" if good else "TIMEOUT", wanted):
                raise Violation(
                    "wait_kept", f"{step} ended as {status} with {output!r} when its time was over"
                )
        elif status != "SUCCESS" or output is None:
            raise Violation("wait_kept", f"{step} ended as {status} ({code}), and nothing says why")
        elif plan["kind"] == "signal":
            self._take_signal(step, plan["signal"], output)
        else:
            if plan["options"] and json.loads(output) not in plan["options"]:
                raise Violation("answer_counts", f"{step} was answered with {output!r}")
            self.answers[step.task.id, step.name] = step.plan["mailbox"], output

    def _take_signal(self, step: StepTold, name: str, output: bytes) -> None:
        task = step.task
        first = next((each for each in task.signals if each[0] == name), None)
        if first is None or first[2] != output:
            raise Violation("signal_once", f"{step} took {output!r}, the first signal {name} is {first}")
        task.signals.remove(first)

    def question_gone(self, step: StepTold, at: int, code: str) -> None:
        """A question died, or was given up: its default counts, if it has one."""
        if step.status != "WAITS":
            return
        default = step.plan["wait"]["default"]
        if default is not None:
            self._end(step, "SUCCESS", json.loads(default), at)
        else:
            self._end(step, "FAILED", None, at, code)

    def _check_signals(self, task: TaskTold) -> None:
        """No step waits for a signal that has come."""
        for step in task.steps:
            if step.status == "WAITS" and step.plan["wait"]["kind"] == "signal":
                name = step.plan["wait"]["signal"]
                if any(each[0] == name for each in task.signals):
                    raise Violation("signal_once", f"{step} waits for signal {name}, which has come")
