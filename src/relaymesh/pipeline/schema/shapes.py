"""Which tables there are, in which version, and by which day each is kept.

Needs no pyspark: a run compares it with what is published before it starts Spark. The catalog takes versions
and days from here, so a table is named in both or in neither.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["AUDIT", "GOLD", "SHAPES", "SILVER", "SIZING", "Shape"]

SILVER = 1
GOLD = 1
SIZING = 2
"""2: lambda_p95 of busy seconds; busy_s, queue_peak and drain_s."""
AUDIT = 1


class Shape(NamedTuple):
    """The version of a table's schema, and its day column; None where it is not kept by day."""

    version: int
    day: str | None = None


SHAPES = {
    "messages": Shape(SILVER, "accepted_date"),
    "attempts": Shape(SILVER, "granted_date"),
    "dead_letters": Shape(SILVER, "dead_date"),
    "agents": Shape(SILVER),
    "traces": Shape(SILVER),
    "step_attempts": Shape(SILVER, "submitted_date"),
    "steps": Shape(SILVER, "submitted_date"),
    "tasks": Shape(SILVER, "submitted_date"),
    "audit_violations": Shape(AUDIT),
    "audit_summary": Shape(AUDIT),
    "throughput": Shape(GOLD, "day"),
    "latency": Shape(GOLD, "day"),
    "backlog": Shape(GOLD, "day"),
    "failure_rates": Shape(GOLD),
    "sizing": Shape(SIZING),
    "split_advice": Shape(GOLD),
    "contract_violations": Shape(GOLD),
    "dead_letters_daily": Shape(GOLD, "day"),
    "alert_history": Shape(GOLD),
    "agent_scorecards": Shape(GOLD),
    "message_traces": Shape(GOLD, "day"),
    "duplicates_waste": Shape(GOLD, "day"),
    "cost": Shape(GOLD, "day"),
    "task_outcomes": Shape(GOLD, "day"),
    "workflow_latency": Shape(GOLD, "day"),
    "step_retries": Shape(GOLD, "day"),
    "critical_paths": Shape(GOLD, "day"),
    "critical_steps": Shape(GOLD),
    "task_cost": Shape(GOLD, "day"),
}
"""In the order of the catalog."""
