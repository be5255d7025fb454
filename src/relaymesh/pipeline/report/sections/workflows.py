"""How tasks went: how long they took and why, what was tried again, what they cost, and what waits."""

from __future__ import annotations

from relaymesh.pipeline.report.figure import DAYS_MAX, Figure, Section, drawn_bars, drawn_days, newest_days
from relaymesh.pipeline.shown import count, dollars, duration, share

__all__ = ["workflow_sections"]

_WORKFLOW = "workflow || CASE partition WHEN 0 THEN '' ELSE ' @' || partition END"
_AGENT = "agent || CASE partition WHEN 0 THEN '' ELSE ' @' || partition END"
_NO_TASKS = "No task has ended."
_NO_USAGE = "No attempt reported what it used."

LATENCY = Figure(
    name="workflow_latency",
    title="From submitted to ended, by workflow",
    says="Of tasks that succeeded: half of them took no longer than p50, 95 of 100 no longer than p95.",
    sql=f"""\
SELECT {_WORKFLOW} AS workflow, count(*) AS tasks, count(*) FILTER (ended_at IS NOT NULL) AS ended,
       count(*) FILTER (status = 'SUCCESS') AS succeeded,
       quantile_disc(latency_ms, 0.5) FILTER (status = 'SUCCESS') AS latency_p50_ms,
       quantile_disc(latency_ms, 0.95) FILTER (status = 'SUCCESS') AS latency_p95_ms,
       max(latency_ms) FILTER (status = 'SUCCESS') AS latency_max_ms,
       sum(attempts)::BIGINT AS attempts, sum(failed)::BIGINT AS failed, sum(abandoned)::BIGINT AS abandoned
FROM tasks
GROUP BY ALL
ORDER BY latency_p95_ms DESC NULLS LAST, workflow""",
    draw=drawn_bars(("workflow",), {"p50": "latency_p50_ms", "p95": "latency_p95_ms"}, duration),
    empty="No task was submitted.",
)

OUTCOMES = Figure(
    name="task_outcomes",
    title="Tasks by day",
    says="How many ended on each day, and how.",
    sql=newest_days("""\
SELECT day, sum(submitted)::BIGINT AS submitted, sum(succeeded)::BIGINT AS succeeded,
       sum(failed)::BIGINT AS failed, sum(timed_out)::BIGINT AS timed_out,
       sum(cancelled)::BIGINT AS cancelled, sum(steps_ended)::BIGINT AS steps_ended, sum(live)::BIGINT AS live
FROM task_outcomes
GROUP BY day"""),
    draw=drawn_days(
        {"succeeded": "succeeded", "failed": "failed", "timed out": "timed_out", "cancelled": "cancelled"},
        count,
    ),
    rows_max=DAYS_MAX,
    empty="No task was submitted.",
)

CRITICAL = Figure(
    name="critical_steps",
    title="What a workflow's time goes into",
    says="The critical path of a task is the chain of steps that decided how long it took. Only a faster step"
    " on that path makes the task faster. Waited: sent, and not taken by an agent yet.",
    sql=f"""\
SELECT {_WORKFLOW} AS workflow, step, path_share, path_ms, tasks, on_path, path_p50_ms, path_p95_ms,
       waited_ms, ran_ms
FROM critical_steps
ORDER BY path_ms DESC, workflow, step""",
    draw=drawn_bars(("workflow", "step"), {"share of the workflow's time": "path_share"}, share),
    empty=_NO_TASKS,
    wide=True,
)

STEPS = Figure(
    name="slow_steps",
    title="The slowest steps",
    says="From ready to ended, of steps that succeeded; items of a for_each by themselves.",
    sql=f"""\
SELECT {_WORKFLOW} AS workflow, plan_step || CASE kind WHEN 'item' THEN ' (item)' ELSE '' END AS step,
       count(*) AS succeeded, quantile_disc(latency_ms, 0.5) AS latency_p50_ms,
       quantile_disc(latency_ms, 0.95) AS latency_p95_ms, max(latency_ms) AS latency_max_ms,
       quantile_disc(waited_ms, 0.95) AS waited_p95_ms, quantile_disc(ran_ms, 0.95) AS ran_p95_ms
FROM steps
WHERE status = 'SUCCESS' AND kind <> 'fan_out'
GROUP BY ALL
ORDER BY latency_p95_ms DESC NULLS LAST, workflow, step""",
    draw=drawn_bars(("workflow", "step"), {"p50": "latency_p50_ms", "p95": "latency_p95_ms"}, duration),
    empty="No step has succeeded.",
)

RETRIES = Figure(
    name="step_retries",
    title="Attempts at steps that led to nothing",
    says="Failed: the agent said so, and the step was tried again. Abandoned: its lease ran out, or its"
    " holder was lost; the work may have been done twice.",
    sql=f"""\
SELECT {_AGENT} AS agent, sum(attempts)::BIGINT AS attempts, sum(failed)::BIGINT AS failed,
       sum(abandoned)::BIGINT AS abandoned, sum(dead)::BIGINT AS dead,
       sum(failed) / nullif(sum(attempts), 0) AS failed_share,
       sum(abandoned) / nullif(sum(attempts), 0) AS abandoned_share,
       sum(lost_ms)::BIGINT AS lost_ms, sum(held_ms)::BIGINT AS held_ms
FROM step_retries
GROUP BY ALL
ORDER BY sum(failed) + sum(abandoned) DESC, agent""",
    draw=drawn_bars(("agent",), {"failed": "failed", "abandoned": "abandoned"}, count),
    empty="No step was granted.",
)

COST_AGENTS = Figure(
    name="task_cost",
    title="Cost of tasks by agent",
    says="What agents reported that their attempts used, those that led to nothing included.",
    sql=f"""\
SELECT {_AGENT} AS agent, count(DISTINCT task_id) AS tasks, sum(attempts)::BIGINT AS attempts,
       sum(tokens)::BIGINT AS tokens, sum(cost_micros) / 1e6 AS cost_usd,
       sum(cost_micros) / 1e6 / nullif(count(DISTINCT task_id), 0) AS cost_per_task_usd
FROM task_cost
GROUP BY ALL
ORDER BY cost_usd DESC, agent""",
    draw=drawn_bars(("agent",), {"cost": "cost_usd"}, dollars),
    empty=_NO_USAGE,
)

COST_DAYS = Figure(
    name="task_cost_by_day",
    title="Cost of tasks by day",
    says="All agents together, on the day of the last report of each attempt.",
    sql=newest_days("""\
SELECT day, sum(cost_micros) / 1e6 AS cost_usd, sum(tokens)::BIGINT AS tokens,
       count(DISTINCT task_id) AS tasks
FROM task_cost
GROUP BY day"""),
    draw=drawn_days({"cost": "cost_usd"}, dollars),
    rows_max=DAYS_MAX,
    empty=_NO_USAGE,
)

WAITING = Figure(
    name="tasks_waiting",
    title="Steps that wait for their dead letter",
    says="A redrive brings them back: relaymesh task replay ID. A cancel ends the task.",
    sql=f"""\
SELECT {_WORKFLOW} AS workflow, name AS step, task_id, {_AGENT} AS agent, granted_at AS last_granted_at,
       attempts, code, left(reason, 200) AS reason
FROM steps
WHERE status = 'DEAD_LETTER' AND ended_at IS NULL
ORDER BY granted_at, task_id, step""",
    empty="None does.",
    wide=True,
)


def workflow_sections() -> tuple[Section, ...]:
    return (
        Section(
            name="workflows",
            title="Workflows",
            figures=(LATENCY, OUTCOMES, CRITICAL, STEPS, RETRIES, COST_AGENTS, COST_DAYS, WAITING),
        ),
    )
