"""Who did what, what was done in vain, which conversations were slow, and what it cost."""

from __future__ import annotations

from relaymesh.pipeline.report.figure import DAYS_MAX, Figure, Section, drawn_bars, drawn_days, newest_days
from relaymesh.pipeline.report.sections.receiver import RECEIVER
from relaymesh.pipeline.shown import count, dollars, duration, share

__all__ = ["work_sections"]

AGENTS = Figure(
    name="agent_scorecards",
    title="Success of what was received",
    says="Acked of all that is settled, and acked at the first attempt.",
    sql="""\
SELECT address || CASE partition WHEN 0 THEN '' ELSE ' @' || partition END AS agent, kind, sent, received,
       acked, dead, dropped, pending, attempts, failures, silences, success_share, first_time_share,
       handling_p50_ms, handling_p95_ms, last_seen_at, cost_usd
FROM agent_scorecards
ORDER BY received DESC, sent DESC, agent""",
    draw=drawn_bars(
        ("agent",), {"acked": "success_share", "at the first attempt": "first_time_share"}, share
    ),
)

WASTE = Figure(
    name="duplicates_waste",
    title="Deliveries that were not the first",
    says="After silence: a lease ran out, so the work may have been done twice. Wasted: tried again after a"
    " failure that no retry can cure.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, sum(deliveries)::BIGINT AS deliveries,
       sum(redeliveries)::BIGINT AS redeliveries, sum(after_silence)::BIGINT AS after_silence,
       sum(given_back)::BIGINT AS given_back, sum(wasted_attempts)::BIGINT AS wasted_attempts,
       sum(wasted_lease_ms)::BIGINT AS wasted_lease_ms,
       sum(wasted_lease_ms) / nullif(sum(lease_ms), 0) AS wasted_lease_share
FROM duplicates_waste
GROUP BY receiver
ORDER BY redeliveries DESC, receiver""",
    draw=drawn_bars(
        ("receiver",),
        {"again": "redeliveries", "after silence": "after_silence", "wasted": "wasted_attempts"},
        count,
    ),
)

TRACES = Figure(
    name="slow_traces",
    title="The slowest traces",
    says="From the first acceptance to the last settle.",
    sql="""\
SELECT trace_id, started_at, duration_ms, messages, mailboxes, attempts, dead, pending, cost_usd
FROM message_traces
WHERE duration_ms IS NOT NULL
ORDER BY duration_ms DESC, trace_id
LIMIT 50""",
    draw=drawn_bars(("trace_id",), {"duration": "duration_ms"}, duration),
    rows_max=50,
    wide=True,
)

COST_OUTCOMES = Figure(
    name="cost",
    title="Cost by agent and outcome",
    says="What messages say they used: money spent on work that died is money lost.",
    sql="""\
SELECT agent, outcome, sum(messages)::BIGINT AS messages, sum(input_tokens)::BIGINT AS input_tokens,
       sum(output_tokens)::BIGINT AS output_tokens, sum(cost_usd) AS cost_usd,
       sum(cost_usd) / nullif(sum(messages), 0) AS cost_per_message_usd
FROM cost
GROUP BY ALL
ORDER BY cost_usd DESC NULLS LAST, agent, outcome""",
    draw=drawn_bars(("agent", "outcome"), {"cost": "cost_usd"}, dollars),
    empty="No message says what it used (extra.usage).",
)

COST_DAYS = Figure(
    name="cost_by_day",
    title="Cost by day",
    says="All agents together.",
    sql=newest_days("""\
SELECT day, sum(cost_usd) AS cost_usd, sum(input_tokens)::BIGINT AS input_tokens,
       sum(output_tokens)::BIGINT AS output_tokens
FROM cost
GROUP BY day"""),
    draw=drawn_days({"cost": "cost_usd"}, dollars),
    rows_max=DAYS_MAX,
    empty="No message says what it used (extra.usage).",
)


def work_sections() -> tuple[Section, ...]:
    return (
        Section(name="agents", title="Agents, duplicates and waste", figures=(AGENTS, WASTE)),
        Section(name="traces", title="Traces and cost", figures=(TRACES, COST_OUTCOMES, COST_DAYS)),
    )
