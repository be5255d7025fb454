"""Rows that a page finds hard to lay out: names without end, one burst, huge numbers, many or single days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from tests.pipeline.report.warehouse import DAY, NOON, Rows, box

ENDLESS = "default/" + "very-long-team-name-" * 10
"""Of 200 characters and more."""
WORDS = "default/a mailbox whose name is made of many words " + "and more words " * 10
CHINESE = "default/" + "订单处理邮箱" * 12
ARABIC = "default/" + "صندوق-البريد-" * 12
FAMILY = "default/" + "👩‍👩‍👧‍👦é" * 40
NAMES = (ENDLESS, ENDLESS[:-1] + "2", WORDS, CHINESE, ARABIC, FAMILY, "default/a", "default/" + "W" * 200)
BIG = 10**12
ERROR = "E" * 400 + " " + "失败" * 80


def hostile() -> dict[str, Rows]:
    """Everything that is hard, in every table that a figure reads."""
    return {name: list(_rows(name, [DAY + timedelta(days=number) for number in range(9)])) for name in _ROWS}


def two_years() -> dict[str, Rows]:
    """A day every fortnight: an axis that needs its years."""
    days = [DAY + timedelta(days=14 * number) for number in range(52)]
    return {name: list(_rows(name, days)) for name in ("throughput", "latency", "backlog", "cost")}


def single_day() -> dict[str, Rows]:
    """The same names on one day, in one minute."""
    return {name: list(_rows(name, [DAY])) for name in _ROWS}


def _rows(table: str, days: list[date]) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for number, day in enumerate(days):
        for place, name in enumerate(NAMES):
            burst = number == len(days) // 2 and place == 0
            rows.append(_ROWS[table](name, day, place, BIG if burst else BIG // 1_000 + place))
    return rows


def _noon(day: date) -> datetime:
    return NOON + (day - DAY)


def _throughput(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    counted = {"accepted": many, "acked": many - place, "retried": many // 7, "dropped": 3, "dead": many // 9}
    return box(name, day=day, minute=_noon(day), accepted_bytes=many * 900, **counted)


def _latency(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    ms = many / 10
    return box(
        name, day=day, priority=place % 5 + 1, acked=many, delivered=many, wait_p95_ms=ms / 3,
        latency_p50_ms=0.0004, latency_p95_ms=ms, latency_p99_ms=ms * 2, latency_max_ms=int(ms) * 3,
    )  # fmt: skip


def _backlog(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    held = {"backlog": many, "backlog_peak": many, "capacity": BIG, "used_share": many / BIG}
    return box(name, day=day, minute=_noon(day), arrivals=many, completions=place, **held)


def _failures(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        name, code=f"{'error_class_' * 10}{day:%d}", attempts=many * 2, failures=many, share_of_failures=0.5,
        retried=many, messages=many, dead=many, dropped=place, retry_rate=0.123456789, p_fail=1e-7,
        retries_allowed=2, p_drop_predicted=1e-12, p_drop_observed=0.123456789,
    )  # fmt: skip


def _dead(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        name, day=day, reason="retries_exhausted", code="c" * 120, letters=many, pending=many - place,
        redriven=1, purged=2, alerts=many, example_id="i" * 200, example_sequence=many, example_error=ERROR,
        first_seen=_noon(day), last_seen=_noon(day),
    )  # fmt: skip


def _alert(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    rule, severity = ("latency_high", "warning") if place % 2 else ("queue_deep", "critical")
    return {
        "rule": rule, "severity": severity, "partition": 0, "mailbox": name, "started_at": _noon(day),
        "ended_at": _noon(day) + timedelta(minutes=5), "windows": 5, "peak": float(many),
        "threshold": 1_000.0,
        "unit": "ms" if place % 2 else "messages", "evaluable": True, "note": "n" * 200,
    }  # fmt: skip


def _sizing(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        f"{name}{day:%d}", first_at=NOON, last_at=NOON, span_s=many, lambda_mean=1e-6, lambda_p95=many / 7,
        lambda_peak=float(many), holders=place, mu_worker_p50=1 / 3, mu_peak=50.0, workers_required=many,
        burst_s=30.0, buffer_messages=many, mean_bytes=10.0, buffer_bytes=many * 1_000, capacity=1_000,
        capacity_bytes=10**9, fits=False, busy_s=many, queue_peak=many, drain_s=60.0,
    )  # fmt: skip


def _split(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        f"{name}{day:%d}", backlog_minutes=many, backlog_long=True, latency_p99_ms=many * 1.5, sla_ms=5_000.0,
        latency_over=True, traffic_share=1 / 3, traffic_over=True, conditions=3, split=True, reasoning=ERROR,
    )  # fmt: skip


def _violation(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        f"{name}{day:%d}", code="invalid", violation="retried_final", messages=many, attempts=many * 2,
        example_sequence=many, reasoning=ERROR, first_seen=NOON, last_seen=NOON,
    )  # fmt: skip


def _agent(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {
        "partition": place, "namespace": "default", "address": f"{name}{day:%d}", "kind": "agent",
        "sent": many, "received": many, "acked": many, "success_share": 0.123456789, "first_time_share": None,
        "handling_p50_ms": 0.25, "handling_p95_ms": many / 3, "last_seen_at": NOON, "cost_usd": many / 7,
    }  # fmt: skip


def _trace(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {
        "partition": 0, "trace_id": f"{day:%d}{place}" * 40, "day": day, "started_at": _noon(day),
        "ended_at": _noon(day), "duration_ms": many, "messages": many, "mailboxes": place, "attempts": many,
        "dead": 0, "pending": 0, "cost_usd": many / 3,
    }  # fmt: skip


def _waste(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return box(
        name, day=day, deliveries=many * 2, redeliveries=many, after_silence=many // 3, given_back=place,
        wasted_attempts=many // 2, lease_ms=many * 5, wasted_lease_ms=many,
    )  # fmt: skip


def _cost(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {
        "partition": 0, "namespace": "default", "agent": name, "day": day, "type": "task", "outcome": "acked",
        "messages": many, "input_tokens": many * 1_000, "output_tokens": many, "cost_usd": many / 3,
    }  # fmt: skip


def _of(workflow: str, /, **more: Any) -> Mapping[str, Any]:
    return {"partition": 0, "namespace": "default", "workflow": workflow, **more}


def _task(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return _of(
        name, task_id=f"{day}{place}" * 9, submitted_date=day, status="SUCCESS", submitted_at=_noon(day),
        ended_at=_noon(day), latency_ms=many, attempts=many, failed=many, abandoned=place,
    )  # fmt: skip


def _step(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    dead = place % 2 == 0
    return _of(
        name, task_id=f"{day}{place}" * 9, submitted_date=day, step=place, name=name[8:], plan_step=name[8:],
        kind="item" if place % 3 else "step", agent=name, status="DEAD_LETTER" if dead else "SUCCESS",
        code="c" * 120, reason=ERROR, attempts=3, granted_at=_noon(day), latency_ms=many, waited_ms=many // 3,
        ran_ms=many // 2, ended_at=None if dead else _noon(day),
    )  # fmt: skip


def _outcome(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return _of(
        name, day=day, submitted=many, succeeded=many, failed=many // 7, timed_out=place, cancelled=many // 9,
        steps_ended=many * 9, live=place, waiting_dead=place, paused=0,
    )  # fmt: skip


def _critical(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return _of(
        name, step=f"{name[8:]}{day:%d}", tasks=many, on_path=many - 1, path_ms=many, path_share=0.123456789,
        path_p50_ms=1e-4, path_p95_ms=float(many), waited_ms=many // 3, ran_ms=many // 2,
    )  # fmt: skip


def _retry(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {
        "partition": place, "namespace": "default", "agent": name, "day": day, "steps": many,
        "attempts": many, "failed": many // 3, "abandoned": many // 5, "dead": place, "given_back": 0,
        "held_ms": many, "lost_ms": many // 2,
    }  # fmt: skip


def _spent(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return _of(
        name, task_id=f"{day}{place}", agent=name, day=day, attempts=many, cost_micros=many,
        cost_usd=many / 1e6, tokens=many * 1_000,
    )  # fmt: skip


def _audit(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {
        "rule": f"rule_{place}_{day:%d}",
        "promise": ERROR,
        "checked": many,
        "violations": 0,
        "passed": True,
    }


def _quarantine(name: str, day: date, place: int, many: int) -> Mapping[str, Any]:
    return {"source": name, "segment": "s" * 120, "frame_offset": many, "reason": ERROR, "found_at": NOON}


_ROWS: dict[str, Callable[[str, date, int, int], Mapping[str, Any]]] = {
    "throughput": _throughput,
    "latency": _latency,
    "backlog": _backlog,
    "failure_rates": _failures,
    "dead_letters_daily": _dead,
    "alert_history": _alert,
    "sizing": _sizing,
    "split_advice": _split,
    "contract_violations": _violation,
    "agent_scorecards": _agent,
    "message_traces": _trace,
    "duplicates_waste": _waste,
    "cost": _cost,
    "tasks": _task,
    "steps": _step,
    "task_outcomes": _outcome,
    "critical_steps": _critical,
    "step_retries": _retry,
    "task_cost": _spent,
    "audit_summary": _audit,
    "quarantine": _quarantine,
    "messages": lambda name, day, place, many: {
        "mailbox": name, "message_sequence": place, "final_state": ("acked", "dead", "pending")[place % 3],
    },
}  # fmt: skip
