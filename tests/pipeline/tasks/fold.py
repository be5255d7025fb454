"""The tables of tasks once more, as one loop over the events: dumb, slow, and on its own.

Nothing here is shared with the pipeline or the kernel. Rows come out as dicts with the columns of the tables.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Row = dict[str, Any]
GOOD = ("SUCCESS", "SKIPPED")
ABANDONED = {"LEASE_EXPIRED": "lease_expired", "RECLAIM": "reclaimed", "ABANDON": "abandoned"}
OUTCOMES = {"ACK": "acked", "DROP": "dropped", "DEAD_LETTER": "dead", "NACK": "nack", "DEFER": "deferred"}
OUTCOMES |= {"RELEASE": "released", **ABANDONED}


def ms(begin: datetime | None, end: datetime | None) -> int | None:
    if begin is None or end is None:
        return None
    return round((end - begin).total_seconds() * 1_000)


@dataclass
class Step:
    number: int
    name: str
    plan_step: str
    needs: list[int]
    planned: str | None
    on_failure: str
    added_at: datetime
    parent: int | None = None
    kind: str = "step"
    status: str = "PENDING"
    code: str | None = None
    reason: str | None = None
    agent: str | None = None
    message: tuple[str, int] | None = None
    messages: int = 0
    sent_at: datetime | None = None
    attempts: list[Row] = field(default_factory=list)
    end: Row | None = None
    by: str | None = None
    token: int | None = None
    result: str | None = None

    @property
    def own_end(self) -> Row | None:
        return None if self.by == "TASK_ENDED" else self.end


@dataclass
class Task:
    row: Row
    plan: Row
    steps: list[Step]
    end: Row | None = None
    paused: bool = False

    @property
    def head(self) -> Row:
        return {
            "partition": self.row["partition"],
            "namespace": self.row["sender"].partition("/")[0],
            "task_id": self.row["task_id"],
            "workflow": self.plan["workflow"],
            "submitted_date": self.row["event_date"],
        }


class Fold:
    """All events in order; then `tables()`."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.tasks: dict[tuple[int, str], Task] = {}
        self.work: dict[tuple[int, str, int], tuple[Task, Step]] = {}
        self.letters: dict[tuple[int, str, int], tuple[Task, Step]] = {}
        self.usage: dict[tuple[int, int], Row] = {}
        for row in sorted(rows, key=lambda row: (row["partition"], row["sequence"])):
            self._event(row)

    def _event(self, row: Row) -> None:
        kind, here = row["operation"], row["partition"]
        if kind == "SUBMIT":
            plan = json.loads(row["settings"])
            steps = [
                Step(
                    number, each["name"], each["name"], each["needs"], each["agent"] or None,
                    each.get("on_failure", "fail"), row["timestamp"],
                )
                for number, each in enumerate(plan["steps"])
            ]  # fmt: skip
            self.tasks[here, row["task_id"]] = Task(row, plan, steps)
        elif kind == "USAGE":
            self.usage[here, row["lease_token"]] = row
        elif (task := self.tasks.get((here, row["task_id"]))) is not None and kind != "APPEND":
            self._of_task(task, row)
        elif kind == "REDRIVE":
            found = self.letters.pop((here, row["source_mailbox"], row["dead_sequence"]), None)
            if found is not None:
                found[1].code = found[1].reason = None
                self._goes_out(*found, row)
        elif kind == "PURGE":
            found = self.letters.pop((here, row["mailbox"], row["dead_sequence"]), None)
            if found is not None and found[1].end is None:
                self._end(*found, row, "FAILED", "purged", "its dead letter was purged", "PURGE")
        elif row["message_sequence"] is not None:
            found = self.work.get((here, row["mailbox"], row["message_sequence"]))
            if found is not None:
                self._of_message(*found, row)

    def _of_task(self, task: Task, row: Row) -> None:
        kind = row["operation"]
        if kind == "STEP_SENT":
            self._goes_out(task, task.steps[row["step"]], row)
        elif kind == "STEPS_ADDED":
            parent = task.steps[row["step"]]
            parent.kind, parent.status = "fan_out", "RUNNING"
            for index in range(row["items"]):
                name = f"{parent.name}/{index}"
                task.steps.append(
                    Step(
                        len(task.steps), name, parent.name, [], parent.planned, parent.on_failure,
                        row["timestamp"], parent.number, "item",
                    )
                )  # fmt: skip
            if not row["items"]:
                self._end(task, parent, row, "SUCCESS", None, None, "STEPS_ADDED")
        elif kind == "STEP_ENDED":
            step = task.steps[row["step"]]
            step.token, step.result = row["lease_token"], row["result_hash"]
            self._end(task, step, row, row["status"], row["code"], row["reason"], "STEP_ENDED")
        elif kind == "STEP_WITHDRAWN":
            step = task.steps[row["step"]]
            step.status, step.message = "PENDING", None
        elif kind in ("BUDGET_PAUSED", "BUDGET_SET"):
            task.paused = kind == "BUDGET_PAUSED"
        elif kind == "TASK_ENDED":
            task.end = row
            for step in task.steps:
                if step.end is None:
                    status = "TIMEOUT" if row["status"] == "TIMEOUT" else "CANCELLED"
                    self._end(task, step, row, status, step.code, step.reason, "TASK_ENDED")

    def _goes_out(self, task: Task, step: Step, row: Row) -> None:
        step.message = (row["mailbox"], row["message_sequence"])
        step.agent, step.messages, step.status = row["mailbox"], step.messages + 1, "PENDING"
        step.sent_at = step.sent_at or row["timestamp"]
        self.work[row["partition"], *step.message] = (task, step)

    def _of_message(self, task: Task, step: Step, row: Row) -> None:
        kind = row["operation"]
        mine = step.end is None and step.message == (row["mailbox"], row["message_sequence"])
        if kind == "GRANT":
            step.attempts.append(
                {"grant": row, "end": None, "outcome": "leased", "code": None, "error": None}
            )
            step.status = "RUNNING" if mine else step.status
            return
        if kind not in OUTCOMES:
            return
        if step.attempts and step.attempts[-1]["end"] is None:
            step.attempts[-1] |= {
                "end": row, "outcome": OUTCOMES[kind], "code": row["code"], "error": row["error"]
            }  # fmt: skip
        if not mine:
            return
        if kind == "NACK" or kind in ABANDONED:
            step.status = "RETRYING" if kind == "NACK" else "ABANDONED"
        elif kind in ("DEFER", "RELEASE"):
            step.status = "PENDING"
        if kind in ("NACK", "DEFER", "RELEASE", *ABANDONED) and row["code"] is not None:
            step.code, step.reason = row["code"], row["error"]
        elif kind in ("ACK", "DROP"):
            step.token = step.attempts[-1]["grant"]["lease_token"] if step.attempts else None
            status, code = ("SUCCESS", None) if kind == "ACK" else ("FAILED", row["code"] or "dropped")
            self._end(task, step, row, status, code, None, kind)
        elif kind == "DEAD_LETTER":
            step.status, step.code, step.reason = "DEAD_LETTER", row["reason"], row["error"]
            if step.on_failure != "fail":
                self._end(task, step, row, "DEAD_LETTER", row["reason"], row["error"], kind)
            else:
                self.letters[row["partition"], row["mailbox"], row["sequence"]] = (task, step)

    def _end(
        self, task: Task, step: Step, row: Row, status: str, code: str | None, reason: str | None, by: str
    ) -> None:
        if step.end is not None:
            return
        step.end, step.status, step.by = row, status, by
        step.code, step.reason = (None, None) if status in GOOD else (code or None, reason or None)
        if step.kind == "item" and by != "TASK_ENDED":
            self._item_ended(task, task.steps[step.parent or 0], row)

    def _item_ended(self, task: Task, parent: Step, row: Row) -> None:
        items = [each for each in task.steps if each.parent == parent.number]
        if any(each.end is None for each in items):
            return
        bad = [each for each in items if each.status not in GOOD]
        failed = [each for each in bad if each.code != "withdrawn"]
        if failed and parent.on_failure != "continue":
            self._end(task, parent, row, "FAILED", failed[0].code, failed[0].reason, "PARTS")
        elif back := [each for each in bad if each.code == "withdrawn"]:
            self._end(task, parent, row, back[0].status, back[0].code, back[0].reason, "PARTS")
        else:
            self._end(task, parent, row, "SUCCESS", None, None, "PARTS")

    # -- silver

    def step_attempts(self) -> list[Row]:
        return [
            task.head | self._attempt(step, each)
            for task in self.tasks.values()
            for step in task.steps
            for each in step.attempts
        ]

    def _attempt(self, step: Step, each: Row) -> Row:
        grant, end = each["grant"], each["end"]
        used = self.usage.get((grant["partition"], grant["lease_token"]), {})
        return {
            "step": step.number,
            "sequence": grant["sequence"],
            "lease_token": grant["lease_token"],
            "mailbox": grant["mailbox"],
            "message_sequence": grant["message_sequence"],
            "holder": grant["holder"],
            "granted_date": grant["event_date"],
            "granted_at": grant["timestamp"],
            "ended_at": end and end["timestamp"],
            "outcome": each["outcome"],
            "burned": each["outcome"] not in ("deferred", "released"),
            "code": each["code"],
            "error": each["error"],
            "held_ms": end and ms(grant["timestamp"], end["timestamp"]),
            "cost_micros": used.get("cost_micros"),
            "tokens": used.get("tokens"),
            "usage_at": used.get("timestamp"),
        }

    def steps(self) -> list[Row]:
        return [task.head | self._step(task, step) for task in self.tasks.values() for step in task.steps]

    def _step(self, task: Task, step: Step) -> Row:
        tries = [self._attempt(step, each) for each in step.attempts]
        ready, after = self._ready(task, step)
        first = tries[0]["granted_at"] if tries else None
        ended = step.end["timestamp"] if step.end is not None else None
        return {
            "step": step.number,
            "name": step.name,
            "plan_step": step.plan_step,
            "kind": step.kind,
            "parent": step.parent,
            "needs": ",".join(map(str, step.needs)) or None,
            "after_step": after,
            "agent": step.agent or step.planned,
            "status": step.status,
            "code": step.code,
            "reason": step.reason,
            "attempts": sum(each["burned"] for each in tries),
            "failed": sum(each["outcome"] == "nack" for each in tries),
            "abandoned": sum(each["outcome"] in ABANDONED.values() for each in tries),
            "messages": step.messages,
            "ready_at": ready,
            "sent_at": step.sent_at,
            "first_granted_at": first,
            "granted_at": tries[-1]["granted_at"] if tries else None,
            "ended_at": ended,
            "ended_sequence": step.end and step.end["sequence"],
            "ended_by": step.by,
            "latency_ms": ms(ready, ended),
            "waited_ms": ms(step.sent_at, first),
            "ran_ms": total(tries, "held_ms"),
            "lease_token": step.token,
            "result_hash": step.result,
            "cost_micros": total(tries, "cost_micros"),
            "tokens": total(tries, "tokens"),
        }

    def _ready(self, task: Task, step: Step) -> tuple[datetime | None, int | None]:
        ends = [(task.steps[need].own_end, need) for need in step.needs]
        if not ends:
            return step.added_at, None
        known = [(end["sequence"], need, end["timestamp"]) for end, need in ends if end is not None]
        if len(known) < len(ends):
            return None, None
        return max(known)[2], max(known)[1]

    def tasks_(self) -> list[Row]:
        return [self._task(task) for task in self.tasks.values()]

    def _task(self, task: Task) -> Row:
        steps = [self._step(task, step) for step in task.steps]
        counts: defaultdict[str, int] = defaultdict(int)
        for step in steps:
            counts[step["status"]] += 1
        begun = [step["first_granted_at"] for step in steps]
        begun += [step["ended_at"] for step in steps if step["ended_by"] != "TASK_ENDED"]
        begun += [step["ready_at"] for step in steps if step["kind"] == "item"]
        started = min((each for each in begun if each is not None), default=None)
        live = [step for step in steps if step["ended_at"] is None]
        waits = [step for step in live if step["status"] == "DEAD_LETTER"]
        moves = [
            step
            for step in live
            if step["status"] in ("RETRYING", "ABANDONED")
            or (step["status"] == "RUNNING" and step["kind"] != "fan_out")
            or (step["status"] == "PENDING" and step["ready_at"] is not None)
        ]
        status = "PENDING" if started is None else "DEAD_LETTER" if waits and not moves else "RUNNING"
        end = task.end
        return task.head | {
            "version": task.plan["version"] or None,
            "owner": task.row["sender"],
            "status": end["status"] if end else status,
            "reason": (end["reason"] or None) if end else None,
            "submitted_at": task.row["timestamp"],
            "submitted_sequence": task.row["sequence"],
            "started_at": started,
            "ended_at": end and end["timestamp"],
            "ended_sequence": end and end["sequence"],
            "latency_ms": end and ms(task.row["timestamp"], end["timestamp"]),
            "steps_total": len(steps),
            "steps_ended": len(steps) - len(live),
            "steps_succeeded": counts["SUCCESS"],
            "steps_failed": counts["FAILED"],
            "steps_timed_out": counts["TIMEOUT"],
            "steps_skipped": counts["SKIPPED"],
            "steps_cancelled": counts["CANCELLED"],
            "steps_dead": counts["DEAD_LETTER"],
            **{name: total(steps, name) or 0 for name in ("attempts", "failed", "abandoned")},
            "result_hash": end and end["result_hash"],
            "cost_micros": total(steps, "cost_micros"),
            "tokens": total(steps, "tokens"),
            "paused": task.paused and end is None,
        }

    # -- gold

    def task_outcomes(self) -> list[Row]:
        names = {"SUCCESS": "succeeded", "FAILED": "failed", "TIMEOUT": "timed_out", "CANCELLED": "cancelled"}
        zero = dict.fromkeys(
            ("submitted", *names.values(), "steps_ended", "live", "waiting_dead", "paused"), 0
        )
        found: dict[tuple[Any, ...], Row] = defaultdict(lambda: dict(zero))

        def at(row: Row, time: datetime) -> Row:
            return found[(*workflow(row), time.date())]

        for row in self.tasks_():
            begun = at(row, row["submitted_at"])
            begun["submitted"] += 1
            if row["ended_at"] is not None:
                at(row, row["ended_at"])[names[row["status"]]] += 1
                continue
            begun["live"] += 1
            begun["waiting_dead"] += row["status"] == "DEAD_LETTER"
            begun["paused"] += row["paused"]
        for row in self.steps():
            if row["ended_at"] is not None:
                at(row, row["ended_at"])["steps_ended"] += 1
        return [named(key, "day") | row for key, row in found.items()]

    def workflow_latency(self) -> list[Row]:
        groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.tasks_():
            whole = row | {"waited_ms": None, "ran_ms": None}
            groups[(*workflow(row), "task", "*", row["submitted_date"])].append(whole)
        for row in self.steps():
            groups[(*workflow(row), row["kind"], row["plan_step"], row["submitted_date"])].append(row)
        told = []
        for key, rows in groups.items():
            ended = [row for row in rows if row["ended_at"] is not None]
            done = [row for row in ended if row["status"] == "SUCCESS"]
            if ended:
                told.append(
                    named(key, "kind", "step", "day")
                    | {"ended": len(ended), "succeeded": len(done)}
                    | {
                        f"{name}_p{percent}_ms": rank([row[f"{name}_ms"] for row in done], percent)
                        for name in ("latency", "waited", "ran")
                        for percent in (50, 95)
                    }
                    | {"latency_max_ms": max((row["latency_ms"] for row in done), default=None)}
                )
        return told

    def step_retries(self) -> list[Row]:
        groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.step_attempts():
            groups[row["partition"], row["mailbox"], row["granted_date"]].append(row)
        told = []
        for (partition, agent, day), rows in groups.items():
            attempts = [row for row in rows if row["burned"] and row["ended_at"] is not None]
            failed = sum(row["outcome"] == "nack" for row in rows)
            lost = sum(row["outcome"] in ABANDONED.values() for row in rows)
            bad = [row for row in rows if row["outcome"] in ("nack", "dead", *ABANDONED.values())]
            told.append(
                {
                    "partition": partition,
                    "namespace": agent.partition("/")[0],
                    "agent": agent,
                    "day": day,
                    "steps": len({(row["task_id"], row["step"]) for row in rows}),
                    "attempts": len(attempts),
                    "failed": failed,
                    "abandoned": lost,
                    "dead": sum(row["outcome"] == "dead" for row in rows),
                    "given_back": sum(not row["burned"] for row in rows),
                    "failed_share": failed / len(attempts) if attempts else None,
                    "abandoned_share": lost / len(attempts) if attempts else None,
                    "held_ms": total(rows, "held_ms") or 0,
                    "lost_ms": total(bad, "held_ms") or 0,
                }
            )
        return told

    def critical_paths(self) -> list[Row]:
        return [row for task in self.tasks.values() if task.end for row in self._path(task)]

    def _path(self, task: Task) -> list[Row]:
        whole, rows = self._task(task), [self._step(task, step) for step in task.steps]
        own = [row for row in rows if row["ended_at"] is not None and row["ended_by"] != "TASK_ENDED"]
        plain = [row for row in own if row["kind"] != "item"]
        if not plain:
            return []
        walk = [max(plain, key=lambda row: (row["ended_sequence"], row["step"]))]
        while walk[0]["after_step"] is not None:
            walk.insert(0, rows[walk[0]["after_step"]])
        told, begun = [], whole["submitted_at"]
        for place, row in enumerate(walk, 1):
            items = [each for each in own if each["kind"] == "item" and each["parent"] == row["step"]]
            last = max(items, key=lambda each: each["ended_sequence"]) if items else None
            spent = ms(begun, row["ended_at"])
            told.append(
                {
                    **{name: whole[name] for name in ("partition", "namespace", "workflow", "task_id")},
                    "day": whole["submitted_date"],
                    "place": place,
                    "step": row["step"],
                    "name": row["name"],
                    "last_item": last and last["name"],
                    "kind": row["kind"],
                    "agent": last["agent"] if last else row["agent"],
                    "begun_at": begun,
                    "ended_at": row["ended_at"],
                    "path_ms": spent,
                    "waited_ms": last["waited_ms"] if last else row["waited_ms"],
                    "ran_ms": last["ran_ms"] if last else row["ran_ms"],
                    "latency_ms": whole["latency_ms"],
                    "path_share": spent / whole["latency_ms"]
                    if spent is not None and whole["latency_ms"]
                    else None,
                }
            )
            begun = row["ended_at"]
        return told

    def critical_steps(self) -> list[Row]:
        paths = self.critical_paths()
        groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in paths:
            groups[(*workflow(row), row["name"])].append(row)
        told = []
        for key, rows in groups.items():
            tasks = [row for row in paths if row["place"] == 1 and workflow(row) == key[:3]]
            spent, whole = total(rows, "path_ms") or 0, total(tasks, "latency_ms") or 0
            told.append(
                named(key, "step")
                | {
                    "tasks": len(tasks),
                    "on_path": len(rows),
                    "path_ms": spent,
                    "path_share": spent / whole if whole else None,
                    "path_p50_ms": rank([row["path_ms"] for row in rows], 50),
                    "path_p95_ms": rank([row["path_ms"] for row in rows], 95),
                    "waited_ms": total(rows, "waited_ms"),
                    "ran_ms": total(rows, "ran_ms"),
                }
            )
        return told

    def task_cost(self) -> list[Row]:
        groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.step_attempts():
            if row["usage_at"] is not None:
                key = (*workflow(row), row["task_id"], row["mailbox"], row["usage_at"].date())
                groups[key].append(row)
        return [
            named(key, "task_id", "agent", "day")
            | {
                "attempts": len(rows),
                "cost_micros": total(rows, "cost_micros"),
                "cost_usd": (total(rows, "cost_micros") or 0) / 1e6,
                "tokens": total(rows, "tokens"),
            }
            for key, rows in groups.items()
        ]

    def tables(self) -> dict[str, list[Row]]:
        return {
            "step_attempts": self.step_attempts(),
            "steps": self.steps(),
            "tasks": self.tasks_(),
            "task_outcomes": self.task_outcomes(),
            "workflow_latency": self.workflow_latency(),
            "step_retries": self.step_retries(),
            "critical_paths": self.critical_paths(),
            "critical_steps": self.critical_steps(),
            "task_cost": self.task_cost(),
        }


def total(rows: Iterable[Row], name: str) -> int | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) if values else None


def rank(values: Iterable[int | None], percent: int) -> float | None:
    """The value that so many of a hundred do not exceed."""
    known = sorted(value for value in values if value is not None)
    return float(known[math.ceil(percent / 100 * len(known)) - 1]) if known else None


def workflow(row: Row) -> tuple[int, str, str]:
    return row["partition"], row["namespace"], row["workflow"]


def named(key: tuple[Any, ...], *names: str) -> Row:
    return dict(zip(("partition", "namespace", "workflow", *names), key, strict=True))
