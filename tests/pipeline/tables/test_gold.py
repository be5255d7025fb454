"""Gold tables of journals small enough to check by hand, the seed's worked numbers among them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.backlog import flows
from relaymesh.pipeline.gold.formulas import buffer_needed, p_drop, recurrence, workers_required
from relaymesh.pipeline.gold.split_advice import split_advice
from relaymesh.pipeline.schema import gold, silver
from tests.pipeline.tables.conftest import Rows
from tests.pipeline.tables.golden import (
    ALARM,
    BURST,
    CODER,
    FLOW,
    LAYERED,
    LIFE,
    LOSS,
    MIX,
    OTHERS,
    RARE,
    TALK,
)
from tests.pipeline.tables.journal import moment
from tests.pipeline.tables.test_silver import AUDIT, BILLING, naive, one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_seed_s_formulas(spark: SparkSession) -> None:
    lit = f.lit
    row = (
        spark.range(1)
        .select(
            workers_required(lit(120.0), lit(35.0), lit(500), lit(60.0)).alias("workers"),
            workers_required(lit(300.0), lit(80.0), lit(500), lit(60.0)).alias("more"),
            buffer_needed(lit(1200.0), lit(900.0), lit(10.0)).alias("buffer"),
            (buffer_needed(lit(1200.0), lit(900.0), lit(10.0)) * 2048).alias("bytes"),
            buffer_needed(lit(900.0), lit(1200.0), lit(10.0)).alias("none"),
            p_drop(lit(0.2), lit(2)).alias("p_drop"),
        )
        .first()
    )
    assert row is not None
    assert (row.workers, row.more, row.buffer, row.none) == (4, 4, 3_000, 0)
    assert row.bytes == pytest.approx(6e6, rel=0.03)
    assert row.p_drop == pytest.approx(0.008)


def test_the_backlog_grows_by_fifty_a_second(golden: dict[str, DataFrame]) -> None:
    """Seed 001: 50, 100, 150, 250 and 500 after 1, 2, 3, 5 and 10 seconds."""
    flow = flows(golden["messages"].filter(f.col("partition") == FLOW))
    series = recurrence(flow, ["mailbox"], "second").orderBy("second").collect()
    assert [(row.arrivals, row.completions) for row in series] == [(120, 70)] * 10
    assert [row.backlog for row in series] == list(range(50, 501, 50))


def test_five_minutes_at_300_in_and_80_out_are_66_000(spark: SparkSession) -> None:
    steps = spark.range(300).select(
        f.col("id").alias("t"), f.lit(300).alias("arrivals"), f.lit(80).alias("completions")
    )
    end = (
        recurrence(steps.withColumn("box", f.lit("b")), ["box"], "t")
        .agg(f.max("backlog").alias("most"))
        .first()
    )
    assert end is not None
    assert end.most == 66_000


def test_the_backlog_is_never_below_zero(spark: SparkSession) -> None:
    """B(t+1) = max(0, B + I - C): capacity that found nothing to do is not saved up."""
    steps = [(0, 10, 4), (1, 0, 50), (2, 7, 2), (3, 0, 1)]
    rows = spark.createDataFrame(steps, "t int, arrivals int, completions int").withColumn("box", f.lit("b"))
    assert [row.backlog for row in recurrence(rows, ["box"], "t").orderBy("t").collect()] == [6, 0, 5, 4]


def test_backlog_tells_minutes_with_their_peak(rows: Rows) -> None:
    assert rows("backlog", FLOW) == [
        {"partition": FLOW, "namespace": "default", "mailbox": CODER, "day": date(2026, 3, 2),
         "minute": naive(0),
         "arrivals": 1_200, "completions": 700, "backlog": 500, "backlog_peak": 500, "capacity": 600,
         "used_share": pytest.approx(500 / 600)},
    ]  # fmt: skip


def test_throughput_counts_what_happened_in_each_minute(rows: Rows) -> None:
    told = {row["mailbox"]: row for row in rows("throughput", LIFE)}
    counts = ("accepted", "accepted_bytes", "delivered", "acked", "retried", "dropped", "dead")
    assert {mailbox: [row[name] for name in counts] for mailbox, row in told.items()} == {
        CODER: [3, 30, 5, 1, 1, 0, 0], BILLING: [2, 20, 1, 0, 0, 0, 1], AUDIT: [1, 10, 0, 0, 0, 1, 0],
    }  # fmt: skip
    minutes = sorted(row["minute"] for row in rows("throughput", OTHERS))
    assert minutes == [naive(0)]


def test_latency_runs_from_due_to_done(rows: Rows) -> None:
    told = {(row["mailbox"], row["priority"]): row for row in rows("latency", LIFE)}
    assert (told[CODER, 3]["acked"], told[CODER, 3]["delivered"]) == (1, 1)
    assert (told[CODER, 3]["wait_p50_ms"], told[CODER, 3]["latency_p99_ms"]) == (100, 1_500)
    assert told[CODER, 1]["wait_p50_ms"] == 100, "forced at 2,000, delivered at 2,100"
    assert "latency_p50_ms" not in told[CODER, 1]


def test_the_predicted_loss_stands_beside_the_observed(rows: Rows) -> None:
    """31 of 155 attempts failed: 0.2; with two retries 0.008 are lost, and so it was: 1 of 125."""
    told = {row["code"]: row for row in rows("failure_rates", LOSS)}
    assert told.keys() == {"other", "*"}
    for row in told.values():
        assert (row["attempts"], row["failures"], row["retried"], row["messages"], row["dead"]) == (
            155,
            31,
            30,
            125,
            1,
        )
        assert row["retries_allowed"] == 2
        assert row["p_fail"] == pytest.approx(0.2)
        assert row["p_drop_predicted"] == pytest.approx(0.008)
        assert row["p_drop_observed"] == pytest.approx(0.008)


@pytest.mark.parametrize(("partition", "wasted", "deliveries"), [(MIX, 15, 180), (LAYERED, 0, 180)])
def test_a_contract_by_class_wastes_nothing_on_what_no_retry_cures(
    rows: Rows, partition: int, wasted: int, deliveries: int
) -> None:
    """Seed 001: 70 % timeouts, 20 % invalid, 10 % rate limits. Retrying all alike wastes tries."""
    shares = {row["code"]: row["share_of_failures"] for row in rows("failure_rates", partition)}
    assert shares == pytest.approx({"timeout": 0.7, "invalid": 0.2, "rate_limited": 0.1, "*": 1.0})
    waste = one(rows("duplicates_waste", partition))
    assert waste["wasted_attempts"] == wasted
    assert waste["deliveries"] == deliveries
    violations = [(row["violation"], row["code"], row["messages"], row["attempts"])
                  for row in rows("contract_violations", partition)]  # fmt: skip
    assert violations == ([("retried_final", "invalid", 5, 15)] if wasted else [])


def test_redeliveries_after_silence_are_likely_duplicates(rows: Rows) -> None:
    waste = one(rows("duplicates_waste", OTHERS))
    assert (waste["deliveries"], waste["redeliveries"], waste["after_silence"]) == (3, 2, 2)
    assert (waste["lease_ms"], waste["wasted_lease_ms"]) == (31_400, 31_000)
    life = one(rows("duplicates_waste", LIFE, mailbox=CODER))
    assert (life["redeliveries"], life["after_silence"], life["given_back"]) == (3, 0, 2)


def test_workers_are_sized_by_the_busy_seconds_and_the_median_worker(rows: Rows) -> None:
    told = one(rows("sizing", FLOW))
    assert (told["lambda_p95"], told["lambda_peak"], told["mu_peak"], told["span_s"]) == (120, 120, 70, 10)
    assert told["holders"] == 2
    assert told["mu_worker_p50"] == pytest.approx(35, rel=0.002)
    assert told["workers_required"] == 4
    assert (told["buffer_messages"], told["fits"]) == (500, True)


def test_a_buffer_takes_up_the_burst(rows: Rows) -> None:
    """(12 - 9) messages a second for 10 s, of 2,000 bytes: a hundredth of the seed's 3,000 and 6 MB."""
    told = one(rows("sizing", BURST))
    assert (told["lambda_peak"], told["mu_peak"], told["burst_s"]) == (12, 9, 10)
    assert (told["buffer_messages"], told["buffer_bytes"], told["fits"]) == (30, 60_000, False)
    assert told["lambda_p95"] == pytest.approx(11.45), "two busy seconds: one of 12 and one of 1"
    assert (told["busy_s"], told["span_s"]) == (2, 20)


def test_quiet_seconds_count_in_the_mean_alone(rows: Rows) -> None:
    assert one(rows("sizing", BURST))["lambda_mean"] == pytest.approx(13 / 20)


def test_a_burst_once_an_hour_needs_workers(rows: Rows) -> None:
    """600 at once, each 1 s of work for one worker, and one an hour later: two busy seconds."""
    told = one(rows("sizing", RARE, mailbox="default/bursts"))
    assert (told["queue_peak"], told["mu_worker_p50"]) == (600, pytest.approx(1, rel=0.01))
    assert told["lambda_p95"] == pytest.approx(570.05), "two busy seconds: one of 600 and one of 1"
    assert told["workers_required"] == 570, "a worker does 1.001 a second"


def test_no_more_workers_than_there_were_messages_at_once(rows: Rows) -> None:
    """One message every ten minutes, a minute of work each: 1 / s over 1 / min would be 60 workers."""
    told = one(rows("sizing", RARE, mailbox="default/sparse"))
    assert (told["lambda_p95"], told["queue_peak"], told["workers_required"]) == (1, 1, 1)


def test_a_queue_that_grew_slowly_is_worked_off_in_a_minute(rows: Rows) -> None:
    """600 messages, one a second, while no worker was there; then one does 2 a second."""
    told = one(rows("sizing", RARE, mailbox="default/late"))
    assert (told["lambda_p95"], told["queue_peak"], told["drain_s"]) == (1, 600, 60)
    assert told["workers_required"] == 5


def test_delayed_messages_are_no_queue(rows: Rows) -> None:
    told = one(rows("sizing", RARE, mailbox="default/delayed"))
    assert (told["lambda_p95"], told["queue_peak"], told["workers_required"]) == (50, 1, 1)


def test_dead_letters_are_told_by_day_and_cause(rows: Rows) -> None:
    told = one(rows("dead_letters_daily", ALARM))
    assert (told["reason"], told["code"], told["letters"], told["pending"]) == (
        "mailbox_full",
        "mailbox_full",
        51,
        51,
    )
    assert (told["first_seen"], told["last_seen"]) == (naive(300_000), naive(300_000 + 50 * 60_000))
    assert (told["example_id"], told["day"]) == ("x0", date(2026, 3, 2))
    purged = one(rows("dead_letters_daily", TALK))
    assert (purged["purged"], purged["pending"], purged["redriven"], purged["alerts"]) == (1, 0, 0, 0)


def test_the_five_alert_rules_over_history(rows: Rows) -> None:
    fired = {(row["rule"], row.get("mailbox")): row for row in rows("alert_history", ALARM)}
    assert fired.keys() == {
        ("latency_high", "default/slow"), ("queue_deep", "default/deep"), ("dead_letters_growing", None),
    }  # fmt: skip
    slow = fired["latency_high", "default/slow"]
    assert (slow["peak"], slow["threshold"], slow["severity"]) == (6_000, 5_000, "warning")
    assert (slow["started_at"], slow["ended_at"]) == (naive(0), naive(300_000))
    deep = fired["queue_deep", "default/deep"]
    assert (deep["peak"], deep["severity"]) == (1_001, "critical")
    assert (deep["started_at"], deep["ended_at"]) == (naive(0), naive(180_000)), "quiet minutes are as deep"
    growing = fired["dead_letters_growing", None]
    assert (growing["peak"], growing["windows"]) == (51, 1)
    failing = one(rows("alert_history", LOSS))
    assert (failing["rule"], failing["severity"]) == ("failures_high", "critical")
    assert failing["peak"] == pytest.approx(0.2)


def test_a_rule_the_journal_cannot_answer_says_so(rows: Rows) -> None:
    slow = one(rows("alert_history", None))
    assert (slow["rule"], slow["threshold"], slow["evaluable"]) == ("journal_slow", 100, False)
    assert "does not say" in slow["note"]


def test_a_scorecard_shows_how_an_agent_does(rows: Rows) -> None:
    card = one(rows("agent_scorecards", OTHERS, address=CODER))
    assert (card["received"], card["acked"], card["attempts"], card["failures"]) == (1, 1, 3, 2)
    assert (card["silences"], card["success_share"], card["first_time_share"]) == (2, 1.0, 0.0)
    assert (card["handling_p50_ms"], card["last_seen_at"]) == (400, naive(32_000))
    planner = one(rows("agent_scorecards", TALK, address="default/planner"))
    assert (planner["sent"], planner["cost_usd"], planner["received"]) == (1, 0.5, 1)
    assert one(rows("agent_scorecards", TALK, address=CODER))["cost_usd"] == 0.375


def test_cost_is_told_by_outcome_and_a_broadcast_costs_once(rows: Rows) -> None:
    spent = {(row["agent"], row["type"], row["outcome"]): row for row in rows("cost", TALK)}
    assert {key: row["cost_usd"] for key, row in spent.items()} == {
        ("default/planner", "question", "acked"): 0.5,
        (CODER, "answer", "acked"): 0.25,
        (CODER, "message", "acked"): 0.125,
    }
    assert spent["default/planner", "question", "acked"]["input_tokens"] == 1000


def test_a_trace_is_summed_up(rows: Rows) -> None:
    trace = one(rows("message_traces", TALK, trace_id="0af7651916cd43dd8448eb211c80319c"))
    assert (trace["messages"], trace["mailboxes"], trace["attempts"], trace["pending"]) == (2, 2, 2, 0)
    assert (trace["started_at"], trace["ended_at"], trace["duration_ms"]) == (naive(0), naive(900), 900)
    assert trace["cost_usd"] == 0.75


def test_contract_violations_tell_what_the_default_says(rows: Rows) -> None:
    silent = one(rows("contract_violations", TALK))
    assert (silent["violation"], silent["code"]) == ("left_without_alert", "fatal")
    assert "0 retries" in silent["reasoning"]
    early = one(rows("contract_violations", LOSS))
    assert (early["violation"], early["attempts"]) == ("gave_up_early", 1), (
        "the mailbox allows 2, the default 3"
    )


def test_two_of_three_conditions_advise_a_split(spark: SparkSession) -> None:
    """hot: full for 12 minutes and half of the traffic. slow: p99 above 10 s alone. calm: nothing."""
    names = silver.MESSAGES.fieldNames()

    def message(mailbox: str, sequence: int, took_ms: float) -> tuple[Any, ...]:
        row = dict.fromkeys(names) | {
            "partition": 0, "namespace": "default", "mailbox": mailbox, "message_sequence": sequence,
            "due_at": moment(0), "settled_at": moment(took_ms), "final_state": "acked",
        }  # fmt: skip
        return tuple(row[name] for name in names)

    sent = [message("default/hot", i, 100) for i in range(50)]
    sent += [message("default/slow", 100 + i, 11_000) for i in range(20)]
    sent += [message("default/calm", 200 + i, 10) for i in range(30)]

    def minute(mailbox: str, begin: int, backlog: int) -> tuple[Any, ...]:
        at = moment(begin * 60_000)
        return (0, "default", mailbox, at.date(), at, 0, 0, backlog, backlog, 100, backlog / 100)

    levels = [minute("default/hot", 0, 61), minute("default/hot", 11, 70), minute("default/hot", 12, 60)]
    levels += [minute("default/calm", 0, 90), minute("default/calm", 9, 10)]
    advice = split_advice(
        spark.createDataFrame(sent, silver.MESSAGES), spark.createDataFrame(levels, gold.BACKLOG)
    )
    told = {row.mailbox: row for row in advice.collect()}
    hot, slow, calm = (told[f"default/{name}"] for name in ("hot", "slow", "calm"))
    assert (hot.backlog_minutes, hot.backlog_long, hot.traffic_share, hot.traffic_over) == (
        12,
        True,
        0.5,
        True,
    )
    assert (hot.conditions, hot.split) == (2, True)
    assert (slow.latency_p99_ms, slow.latency_over, slow.conditions, slow.split) == (11_000, True, 1, False)
    assert (calm.backlog_minutes, calm.backlog_long, calm.split) == (9, False, False)
    assert "12 min" in hot.reasoning
