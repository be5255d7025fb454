"""A warehouse made by hand: rows as dicts, published through a manifest as a run would, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql.types import StructType

from relaymesh.pipeline.catalog import TABLES
from relaymesh.pipeline.report.published import arrow_schema
from relaymesh.pipeline.runs import metrics
from relaymesh.pipeline.schema.bronze import QUARANTINE
from relaymesh.pipeline.tables.manifest import File, Input, Manifest, Part, PublishedTable
from relaymesh.pipeline.tables.store import TableStore

RUN = "20260301T000000000Z-0000"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = date(2026, 3, 1)
EVIL = "<script>alert('&')</script>"

Rows = Sequence[Mapping[str, Any]]

SUMS = {"accepted": 10, "acked": 6, "dropped": 1, "dead": 2, "pending": 1, "redriven": 1, "purged": 0}


def publish(root: Path, rows: Mapping[str, Rows], **facts: Any) -> Path:
    """Every table of the catalog, empty unless rows are given."""
    schemas: dict[str, tuple[str, StructType]] = {table.name: (table.layer, table.schema) for table in TABLES}
    schemas |= {metrics.NAME: ("bronze", metrics.METRICS), "quarantine": ("bronze", QUARANTINE)}
    tables = {
        name: _write(root, PublishedTable(
            name=name, layer=layer, version=1, rows=0, day_column=None, schema=schema.jsonValue()
        ), rows.get(name, ()))
        for name, (layer, schema) in schemas.items()
    }  # fmt: skip
    chosen = {
        "run_id": RUN,
        "started_at": "2026-03-01T12:00:00.000Z",
        "ended_at": "2026-03-01T12:00:09.000Z",
        "inputs": [Input(source="data", partition=0, first_sequence=1, through_sequence=40, events=40)],
        "reconciliation": {**SUMS, "balanced": True, "judged": True},
    }
    TableStore.open(root).swap(Manifest(tables=tables, **chosen | facts))
    return root


def _write(root: Path, table: PublishedTable, rows: Rows) -> PublishedTable:
    if not rows:
        return table
    schema = arrow_schema(table)
    unknown = {name for row in rows for name in row} - set(schema.names)
    assert not unknown, f"{table.name} has no {unknown}"
    path = f"tables/{table.name}/run_id={RUN}/part-0.parquet"
    (root / path).parent.mkdir(parents=True)
    whole = [{name: row.get(name) for name in schema.names} for row in rows]
    pq.write_table(pa.Table.from_pylist(whole, schema=schema), root / path)
    part = Part(day=None, run_id=RUN, files=[File(path=path, rows=len(rows), bytes=1)])
    return PublishedTable(
        name=table.name, layer=table.layer, version=1, rows=len(rows), day_column=None, schema=table.schema,
        parts=[part],
    )  # fmt: skip


def box(name: str = "default/coder", **more: Any) -> dict[str, Any]:
    return {"partition": 0, "namespace": "default", "mailbox": name, **more}


def flow(workflow: str, /, **more: Any) -> dict[str, Any]:
    """A row about a workflow."""
    return {"partition": 0, "namespace": "default", "workflow": workflow, **more}


def minutes(count: int, **columns: Any) -> list[dict[str, Any]]:
    """A row for each of so many minutes, every one with these figures."""
    return [
        box("default/coder", day=DAY, minute=NOON + timedelta(minutes=number), **columns)
        for number in range(count)
    ]


def full() -> dict[str, Rows]:
    """Something in every table that a figure reads; names and errors as bad as they come."""
    evil = f"default/{EVIL}"
    at = {"first_seen": NOON, "last_seen": NOON}
    states = ["acked"] * 6 + ["dropped", "dead", "dead", "pending"]
    counted = {"accepted": 5, "acked": 3, "retried": 1, "dropped": 0, "dead": 1, "accepted_bytes": 90}
    spent = {"messages": 2, "input_tokens": 10, "output_tokens": 4, "cost_usd": 0.25}
    return {
        "messages": [
            {"mailbox": evil, "message_sequence": n, "final_state": state} for n, state in enumerate(states)
        ],
        "throughput": [*minutes(3, **counted), box(evil, day=DAY, minute=NOON, **counted)],
        "latency": [
            box(
                each,
                day=DAY,
                priority=p,
                acked=3,
                delivered=3,
                wait_p95_ms=5.0,
                latency_p50_ms=7.5,
                latency_p95_ms=1_500.0 * p,
                latency_p99_ms=9_000.0,
                latency_max_ms=9_001,
            )
            for each in ("default/coder", evil)
            for p in (1, 3)
        ],
        "backlog": [
            box(
                day=DAY,
                minute=NOON,
                arrivals=5,
                completions=1,
                backlog=4,
                backlog_peak=5,
                capacity=100,
                used_share=0.05,
            ),
            box(
                day=DAY,
                minute=NOON + timedelta(minutes=3),
                arrivals=0,
                completions=2,
                backlog=2,
                backlog_peak=4,
            ),
            box(
                evil,
                day=DAY,
                minute=NOON + timedelta(minutes=1),
                arrivals=1,
                completions=0,
                backlog=1,
                backlog_peak=1,
            ),
        ],
        "failure_rates": [
            box(
                each,
                code=code,
                attempts=10,
                failures=2,
                share_of_failures=1.0,
                retried=1,
                messages=8,
                dead=1,
                dropped=0,
                retry_rate=0.1,
                p_fail=0.2,
                retries_allowed=2,
                p_drop_predicted=0.008,
                p_drop_observed=0.125,
            )
            for each in ("default/coder", evil)
            for code in ("*", "timeout")
        ],
        "dead_letters_daily": [
            box(
                evil,
                day=DAY,
                reason="retries_exhausted",
                code=EVIL,
                letters=2,
                pending=1,
                redriven=1,
                purged=0,
                alerts=1,
                example_id="one",
                example_sequence=4,
                example_error=EVIL,
                **at,
            )
        ],
        "alert_history": [
            {
                "rule": "queue_deep",
                "severity": "critical",
                "partition": 0,
                "mailbox": evil,
                "started_at": NOON,
                "ended_at": NOON + timedelta(minutes=5),
                "windows": 5,
                "peak": 1200.0,
                "threshold": 1000.0,
                "unit": "messages",
                "evaluable": True,
                "note": "largest second",
            },
            {"rule": "journal_slow", "severity": "warning", "evaluable": False, "note": "not in the journal"},
        ],
        "sizing": [
            box(
                evil,
                first_at=NOON,
                last_at=NOON,
                span_s=1,
                lambda_mean=1.0,
                lambda_p95=100.0,
                lambda_peak=150.0,
                holders=1,
                mu_worker_p50=20.0,
                mu_peak=50.0,
                workers_required=5,
                burst_s=30.0,
                buffer_messages=3000,
                mean_bytes=10.0,
                buffer_bytes=30000,
                capacity=1000,
                capacity_bytes=10**9,
                fits=False,
            )
        ],
        "split_advice": [
            box(
                evil,
                backlog_minutes=12,
                backlog_long=True,
                latency_p99_ms=9000.0,
                sla_ms=1000.0,
                latency_over=True,
                traffic_share=0.5,
                traffic_over=True,
                conditions=3,
                split=True,
                reasoning=EVIL,
            )
        ],
        "contract_violations": [
            box(
                evil,
                code="invalid",
                violation="retried_final",
                messages=1,
                attempts=2,
                example_sequence=1,
                reasoning=EVIL,
                **at,
            )
        ],
        "agent_scorecards": [
            {
                "partition": 0,
                "namespace": "default",
                "address": evil,
                "kind": "agent",
                "sent": 1,
                "received": 9,
                "acked": 6,
                "success_share": 0.75,
                "first_time_share": 0.5,
                "last_seen_at": NOON,
            },
            {
                "partition": 1,
                "namespace": "default",
                "address": "default/planner",
                "kind": "sender",
                "sent": 7,
                "received": 0,
            },
        ],
        "message_traces": [
            {
                "partition": 0,
                "trace_id": f"{n:032x}",
                "day": DAY,
                "started_at": NOON,
                "ended_at": NOON,
                "duration_ms": 1000 * n,
                "messages": 2,
                "mailboxes": 2,
                "attempts": 3,
                "dead": 0,
                "pending": 0,
            }
            for n in range(60)
        ],
        "duplicates_waste": [
            box(
                evil,
                day=DAY,
                deliveries=9,
                redeliveries=3,
                after_silence=1,
                given_back=0,
                wasted_attempts=2,
                lease_ms=1000,
                wasted_lease_ms=300,
            )
        ],
        "cost": [
            {
                "partition": 0,
                "namespace": "default",
                "agent": evil,
                "day": DAY,
                "type": "task",
                "outcome": outcome,
            }
            | spent
            for outcome in ("acked", "dead")
        ],
        "tasks": [
            flow(
                name,
                task_id=f"t{n}",
                submitted_date=DAY,
                status=status,
                submitted_at=NOON,
                ended_at=end,
                latency_ms=end and 1_500 * n,
                attempts=2,
                failed=1,
                abandoned=0,
            )
            for n, (name, status, end) in enumerate(
                [("release", "SUCCESS", NOON), (EVIL, "SUCCESS", NOON), ("release", "DEAD_LETTER", None)], 1
            )
        ],
        "steps": [
            flow(
                name,
                task_id="t3",
                submitted_date=DAY,
                step=0,
                name=EVIL,
                plan_step=EVIL,
                kind=kind,
                agent=evil,
                status=status,
                code="timeout",
                reason=EVIL,
                attempts=3,
                granted_at=NOON,
                ended_at=end,
                latency_ms=800,
                waited_ms=90,
                ran_ms=700,
            )
            for name, kind, status, end in (
                ("release", "step", "DEAD_LETTER", None),
                ("release", "item", "SUCCESS", NOON),
                (EVIL, "step", "SUCCESS", NOON),
            )
        ],
        "task_outcomes": [
            flow(
                name,
                day=DAY,
                submitted=4,
                succeeded=2,
                failed=1,
                timed_out=0,
                cancelled=0,
                steps_ended=7,
                live=1,
                waiting_dead=1,
                paused=0,
            )
            for name in ("release", EVIL)
        ],
        "critical_steps": [
            flow(
                name,
                step=EVIL,
                tasks=3,
                on_path=2,
                path_ms=900,
                path_share=0.75,
                path_p50_ms=300.0,
                path_p95_ms=600.0,
                waited_ms=80,
                ran_ms=700,
            )
            for name in ("release", EVIL)
        ],
        "step_retries": [
            {
                "partition": 0,
                "namespace": "default",
                "agent": evil,
                "day": DAY,
                "steps": 3,
                "attempts": 5,
                "failed": 2,
                "abandoned": 1,
                "dead": 1,
                "given_back": 0,
                "held_ms": 900,
                "lost_ms": 300,
            }
        ],
        "task_cost": [
            flow(
                "release",
                task_id="t1",
                agent=evil,
                day=DAY,
                attempts=2,
                cost_micros=250_000,
                cost_usd=0.25,
                tokens=1_200,
            )
        ],
        "audit_summary": [
            {"rule": "settled_once", "promise": EVIL, "checked": 40, "violations": 0, "passed": True}
        ],
        "pipeline_metrics": [
            {
                "run_id": RUN,
                "measured_at": NOON,
                "table_name": "bronze",
                "metric": "freshness_s",
                "value": 99999.0,
                "most": 86400.0,
                "severity": "warning",
                "passed": False,
            }
        ],
        "quarantine": [
            {
                "source": "data",
                "segment": "0001",
                "frame_offset": 7,
                "reason": EVIL,
                "found_at": NOON,
                "run_id": RUN,
            }
        ],
    }
