"""How many workers, how much room, and what to think of splitting."""

from __future__ import annotations

from relaymesh.pipeline.report.figure import Figure, Section, drawn_bars
from relaymesh.pipeline.report.sections.receiver import RECEIVER
from relaymesh.pipeline.shown import count

__all__ = ["advice_sections"]

WORKERS = Figure(
    name="sizing",
    title="Workers: needed beside seen",
    says="W = ceil(λ p95 / μ p50). The buffer is what a burst of T_burst seconds leaves behind.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, workers_required, holders, lambda_mean, lambda_p95, lambda_peak, mu_worker_p50,
       mu_peak, burst_s, buffer_messages, buffer_bytes, capacity, fits
FROM sizing
ORDER BY workers_required DESC NULLS LAST, receiver""",
    draw=drawn_bars(("receiver",), {"needed": "workers_required", "seen": "holders"}, count),
)

SPLITS = Figure(
    name="split_advice",
    title="Mailboxes to think of splitting",
    says="Two of three conditions: a long backlog, a p99 above twice what is asked, over 40 % of"
    " the traffic.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, split, conditions, backlog_minutes, latency_p99_ms, sla_ms, traffic_share
FROM split_advice
ORDER BY conditions DESC, traffic_share DESC, receiver""",
    draw=drawn_bars(("receiver",), {"conditions that hold, of 3": "conditions"}, count),
)


def advice_sections() -> tuple[Section, ...]:
    return (Section(name="sizing", title="Sizing", figures=(WORKERS, SPLITS)),)
