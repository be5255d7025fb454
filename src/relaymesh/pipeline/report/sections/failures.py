"""What failed, what died, and which alerts should have been raised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from relaymesh.pipeline.report.charts.spans import Span, spans
from relaymesh.pipeline.report.figure import (
    DAYS_MAX,
    Bucket,
    Figure,
    Section,
    drawn_bars,
    drawn_days,
    newest_days,
    short,
)
from relaymesh.pipeline.report.published import Answer
from relaymesh.pipeline.report.sections.receiver import RECEIVER
from relaymesh.pipeline.shown import cell, count, share

__all__ = ["failure_sections"]

MIX = Figure(
    name="failure_mix",
    title="Failures by class of error",
    says="Of all attempts that failed.",
    sql="""\
SELECT code, sum(failures)::BIGINT AS failures,
       sum(failures) / nullif(sum(sum(failures)) OVER (), 0) AS share_of_failures,
       sum(retried)::BIGINT AS retried, sum(dead)::BIGINT AS dead, sum(dropped)::BIGINT AS dropped
FROM failure_rates
WHERE code <> '*'
GROUP BY code
ORDER BY failures DESC, code""",
    draw=drawn_bars(("code",), {"share of failures": "share_of_failures"}, share),
    empty="No attempt failed.",
)

RATES = Figure(
    name="failure_rates",
    title="Loss: predicted beside observed",
    says="Predicted is p_fail^(r+1), as if failures were independent. Observed far above it: failures come in"
    " bursts, and more retries at the same pace will not help.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, code, attempts, failures, p_fail, retry_rate, retries_allowed,
       p_drop_predicted, p_drop_observed
FROM failure_rates
WHERE failures > 0 OR dead > 0 OR dropped > 0
ORDER BY (code = '*') DESC, failures DESC, receiver, code""",
    draw=drawn_bars(
        ("receiver", "code"), {"predicted": "p_drop_predicted", "observed": "p_drop_observed"}, share
    ),
    empty="No attempt failed.",
    wide=True,
)

DEAD = Figure(
    name="dead_letters",
    title="By cause",
    says="With an example of each in the table; relaymesh dlq show tells the rest.",
    sql=f"""\
SELECT reason, code, {RECEIVER} AS receiver, sum(letters)::BIGINT AS letters,
       sum(pending)::BIGINT AS pending, sum(redriven)::BIGINT AS redriven, sum(purged)::BIGINT AS purged,
       min(first_seen) AS first_seen, max(last_seen) AS last_seen,
       arg_min(example_id, first_seen) AS example_id,
       left(arg_min(example_error, first_seen), 200) AS example_error
FROM dead_letters_daily
GROUP BY ALL
ORDER BY letters DESC, receiver, reason, code""",
    draw=drawn_bars(("receiver", "code"), {"letters": "letters", "pending": "pending"}, count),
    empty="No message died.",
)

DEAD_DAYS = Figure(
    name="dead_letters_by_day",
    title="By day",
    says="Letters that died on each day, and those of them that still wait for a decision.",
    sql=newest_days("""\
SELECT day, sum(letters)::BIGINT AS letters, sum(pending)::BIGINT AS pending, sum(alerts)::BIGINT AS alerts
FROM dead_letters_daily
GROUP BY day"""),
    draw=drawn_days({"letters": "letters", "pending": "pending"}, count),
    rows_max=DAYS_MAX,
    empty="No message died.",
)


def _episodes(title: str, answer: Answer) -> Markup:
    drawn: list[Span] = []
    for each in answer.records():
        if isinstance(each["started_at"], datetime):
            sign, kind = ("✖", "2") if each["severity"] == "critical" else ("▲", "4")
            words = f"{each['severity']}, at worst {_worst(each)}"
            where = "" if each["mailbox"] is None else short(each["mailbox"])
            label = f"{sign} {each['rule']} {where}".rstrip()
            drawn.append((label, each["started_at"], each["ended_at"], kind, words))
    if not drawn:
        return Markup("")
    first, last = min(each[1] for each in drawn), max(each[2] for each in drawn)
    return spans(title, drawn, first, last)


def _worst(alert: Mapping[str, Any]) -> str:
    """Times and shares have their unit with them; of anything else it follows."""
    peak, unit = cell("peak", alert["peak"], alert).text, alert["unit"]
    return peak if unit in ("ms", "share") else f"{peak} {unit}"


def _alerts(bucket: Bucket) -> Figure:
    return Figure(
        name="alerts",
        title=f"When the alert rules would have fired, by {bucket.words}",
        says="✖ critical, ▲ warning. Drawn from the first to the last moment at which a rule held in it.",
        sql=f"""\
SELECT rule, severity, mailbox, time_bucket({bucket.sql}, started_at) AS moment,
       min(started_at) AS started_at, max(ended_at) AS ended_at, count(*) AS episodes, max(peak) AS peak,
       any_value(threshold) AS threshold, any_value(unit) AS unit
FROM alert_history
WHERE evaluable
GROUP BY rule, severity, mailbox, moment
ORDER BY (severity = 'critical') DESC, rule, mailbox, moment""",
        draw=_episodes,
        empty="No rule fired.",
        rows_max=600,
        wide=True,
    )


RULES = Figure(
    name="alert_rules",
    title="The rules",
    says="How often each one held, and its worst value. A rule that never held has no row.",
    sql="""\
SELECT rule, severity, count(*) FILTER (evaluable) AS episodes, max(peak) AS peak,
       any_value(threshold) AS threshold, any_value(unit) AS unit, bool_and(evaluable) AS evaluable,
       any_value(note) AS note
FROM alert_history
GROUP BY rule, severity
ORDER BY episodes DESC, rule""",
    empty="No rule fired.",
    wide=True,
)

CONTRACTS = Figure(
    name="contract_violations",
    title="Failures treated otherwise than the default contract says",
    says="Retries that could not help, or help that was not tried.",
    sql=f"""\
SELECT {RECEIVER} AS receiver, code, violation, messages, attempts, first_seen, last_seen, reasoning
FROM contract_violations
ORDER BY messages DESC, receiver, code, violation""",
    draw=drawn_bars(("receiver", "violation"), {"messages": "messages", "attempts": "attempts"}, count),
    empty="Every failure was treated as the default contract says.",
)


def failure_sections(bucket: Bucket) -> tuple[Section, ...]:
    return (
        Section(name="failures", title="Failures and contracts", figures=(MIX, CONTRACTS, RATES)),
        Section(name="dead-letters", title="Dead letters", figures=(DEAD, DEAD_DAYS)),
        Section(name="alerts", title="Alerts", figures=(_alerts(bucket), RULES)),
    )
