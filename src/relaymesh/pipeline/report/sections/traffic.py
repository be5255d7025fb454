"""How much went through, how long it took, and what waited."""

from __future__ import annotations

from relaymesh.pipeline.report.figure import (
    DAYS_MAX,
    Bucket,
    Figure,
    Section,
    drawn_bars,
    drawn_days,
    drawn_heat,
    drawn_lines,
    newest_days,
)
from relaymesh.pipeline.report.sections.receiver import RECEIVER
from relaymesh.pipeline.shown import count, duration, share

__all__ = ["traffic_sections"]

STATES = Figure(
    name="final_states",
    title="What became of every message",
    says="Each message in a mailbox is in exactly one of these states. A publish counts in every mailbox it"
    " went to, a redrive once more.",
    sql="""\
SELECT final_state AS state, count(*) AS messages
FROM messages
GROUP BY final_state
ORDER BY messages DESC, state""",
    draw=drawn_bars(("state",), {"messages": "messages"}, count, parts=True),
)

BY_MAILBOX = Figure(
    name="throughput_by_mailbox",
    title="By mailbox",
    says="Accepted, and of what was tried, done.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, sum(accepted)::BIGINT AS accepted, sum(acked)::BIGINT AS acked,
       sum(retried)::BIGINT AS retried, sum(dropped)::BIGINT AS dropped, sum(dead)::BIGINT AS dead,
       sum(accepted_bytes)::BIGINT AS bytes
FROM throughput
GROUP BY receiver
ORDER BY accepted DESC, receiver""",
    draw=drawn_bars(("receiver",), {"accepted": "accepted", "acked": "acked"}, count),
)

LATENCY = Figure(
    name="latency",
    title="From due to acked, by receiver and priority",
    says="95 of 100 messages took no longer, on the worst day. P1 is CRITICAL, P5 BACKGROUND.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, 'P' || priority AS priority, sum(acked)::BIGINT AS acked,
       max(wait_p95_ms) AS wait_p95_ms, median(latency_p50_ms) AS latency_p50_ms,
       max(latency_p95_ms) AS latency_p95_ms, max(latency_p99_ms) AS latency_p99_ms,
       max(latency_max_ms) AS latency_max_ms
FROM latency
GROUP BY ALL
ORDER BY receiver, priority""",
    draw=drawn_heat("receiver", "priority", "latency_p95_ms", duration, "p95 from due to acked"),
    rows_max=200,
)

LATENCY_DAYS = Figure(
    name="latency_by_day",
    title="Day by day",
    says="The mailbox and priority that was slowest on each day.",
    sql=newest_days(f"""\
SELECT day, arg_max({RECEIVER} || ', priority ' || priority, latency_p95_ms) AS slowest,
       max(latency_p95_ms) AS latency_p95_ms, max(latency_p99_ms) AS latency_p99_ms,
       max(wait_p95_ms) AS wait_p95_ms
FROM latency
WHERE acked > 0
GROUP BY day"""),
    draw=drawn_days({"p95": "latency_p95_ms", "wait p95": "wait_p95_ms"}, duration),
    rows_max=DAYS_MAX,
)

USED = Figure(
    name="backlog_peaks",
    title="Room that was used",
    says="The largest backlog of each mailbox, as a share of what it may hold.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, max(used_share) AS used_share, max(backlog_peak) AS backlog_peak,
       max(capacity) AS capacity, arg_max(minute, backlog_peak) AS peak_at,
       arg_max(backlog, minute) AS still_there
FROM backlog
GROUP BY receiver
ORDER BY used_share DESC NULLS LAST, receiver""",
    draw=drawn_bars(("receiver",), {"largest backlog / capacity": "used_share"}, share),
)


def traffic_sections(bucket: Bucket) -> tuple[Section, ...]:
    return (
        Section(name="throughput", title="Throughput", figures=(_throughput(bucket), STATES, BY_MAILBOX)),
        Section(name="latency", title="Latency", figures=(LATENCY, LATENCY_DAYS)),
        Section(name="backlog", title="Backlog", figures=(_backlog(bucket), USED)),
    )


def _throughput(bucket: Bucket) -> Figure:
    return Figure(
        name="throughput",
        title=f"Messages by {bucket.words}",
        says="Where accepted stays above acked, work piles up.",
        sql=f"""\
WITH counted AS (
    SELECT time_bucket({bucket.sql}, minute) AS moment, sum(accepted) AS accepted, sum(acked) AS acked,
           sum(retried) AS retried, sum(dropped) AS dropped, sum(dead) AS dead
    FROM throughput
    GROUP BY moment
), steps AS (
    SELECT unnest(generate_series(min(moment), max(moment), {bucket.sql})) AS moment FROM counted
)
SELECT moment, coalesce(accepted, 0)::BIGINT AS accepted, coalesce(acked, 0)::BIGINT AS acked,
       coalesce(retried, 0)::BIGINT AS retried, coalesce(dropped, 0)::BIGINT AS dropped,
       coalesce(dead, 0)::BIGINT AS dead
FROM steps LEFT JOIN counted USING (moment)
ORDER BY moment""",
        draw=drawn_lines({name: name for name in ("accepted", "acked", "retried", "dead")}, count),
        rows_max=200,
        wide=True,
    )


def _backlog(bucket: Bucket) -> Figure:
    return Figure(
        name="backlog",
        title=f"Messages waiting, the most of each {bucket.words}",
        says="The five mailboxes that held the most. Delayed messages count while they wait.",
        sql=f"""\
WITH held AS (
    SELECT {RECEIVER} AS receiver, minute, backlog, backlog_peak FROM backlog
), largest AS (
    SELECT receiver FROM held GROUP BY receiver ORDER BY max(backlog_peak) DESC, receiver LIMIT 5
), counted AS (
    SELECT receiver, time_bucket({bucket.sql}, minute) AS moment, max(backlog_peak) AS peak,
           arg_max(backlog, minute) AS left_over
    FROM held SEMI JOIN largest USING (receiver)
    GROUP BY ALL
), steps AS (
    SELECT unnest(generate_series(min(moment), max(moment), {bucket.sql})) AS moment FROM counted
)
SELECT moment, receiver,
       coalesce(peak, last_value(left_over IGNORE NULLS) OVER earlier, 0) AS messages
FROM (SELECT * FROM steps CROSS JOIN largest) LEFT JOIN counted USING (moment, receiver)
WINDOW earlier AS (PARTITION BY receiver ORDER BY moment)
ORDER BY receiver, moment""",
        draw=drawn_lines({"messages": "messages"}, count, split_by="receiver"),
        rows_max=800,
    )
