"""The four gold tables in Polars: lazy frames of silver in, a lazy frame out."""

from __future__ import annotations

import polars as pl  # type: ignore[import-not-found, unused-ignore]

__all__ = ["backlog", "failure_rates", "latency", "throughput"]

MAILBOX = ["partition", "namespace", "mailbox"]
CLASS = [*MAILBOX, "code"]
RETRIED = ["nack", "lease_expired", "reclaimed"]
RETRIES = {"timeout": 3, "rate_limited": 5, "invalid": 0, "conflict": 0, "duplicate": 0, "fatal": 0}
"""The default contract, which the mailboxes of this bench have; any other class is retried three times."""


def _ms(begin: str, end: str) -> pl.Expr:
    return pl.col(end).dt.epoch("ms") - pl.col(begin).dt.epoch("ms")


def _at_rank(column: str, p: float) -> pl.Expr:
    """The value at rank ceil(p · n) of those that are there."""
    there = pl.col(column).drop_nulls().sort()
    rank = (there.len() * p).ceil().cast(pl.Int64).clip(lower_bound=1) - 1
    return there.get(rank, null_on_oob=True).cast(pl.Float64).alias(f"{column}_p{round(p * 100)}_ms")


def _rows(condition: pl.Expr) -> pl.Expr:
    return condition.sum().cast(pl.Int64)


def latency(messages: pl.LazyFrame, **_: pl.LazyFrame) -> pl.LazyFrame:
    timed = messages.with_columns(
        wait=_ms("due_at", "first_delivered_at"),
        latency=pl.when(pl.col("final_state") == "acked").then(_ms("due_at", "settled_at")),
    )
    return timed.group_by(*MAILBOX, "priority", pl.col("accepted_date").alias("day")).agg(
        pl.col("latency").count().alias("acked"),
        pl.col("wait").count().alias("delivered"),
        *[_at_rank(column, p) for column in ("wait", "latency") for p in (0.5, 0.95, 0.99)],
        pl.col("latency").max().alias("latency_max_ms"),
    )


def throughput(messages: pl.LazyFrame, attempts: pl.LazyFrame, **_: pl.LazyFrame) -> pl.LazyFrame:
    state = pl.col("final_state")
    sums = ("accepted", "accepted_bytes", "delivered", "acked", "retried", "dropped", "dead")

    def counted(rows: pl.LazyFrame, time: str, **counts: pl.Expr) -> pl.LazyFrame:
        minute = pl.col(time).dt.truncate("1m").alias("minute")
        made = [counts.get(name, pl.lit(0)).cast(pl.Int64).alias(name) for name in sums]
        return rows.group_by(*MAILBOX, minute).agg(made)

    every = pl.concat(
        [
            counted(messages, "accepted_at", accepted=pl.len(), accepted_bytes=pl.col("content_bytes").sum()),
            counted(
                messages.filter(pl.col("settled_at").is_not_null()),
                "settled_at",
                **{name: _rows(state == name) for name in ("acked", "dropped", "dead")},
            ),
            counted(attempts, "granted_at", delivered=pl.len()),
            counted(attempts.filter(pl.col("outcome").is_in(RETRIED)), "ended_at", retried=pl.len()),
        ]
    )
    summed = every.group_by(*MAILBOX, "minute").agg(pl.col(name).sum() for name in sums)
    return summed.with_columns(day=pl.col("minute").dt.date())


def backlog(messages: pl.LazyFrame, agents: pl.LazyFrame, **_: pl.LazyFrame) -> pl.LazyFrame:
    def moved(rows: pl.LazyFrame, time: str, arrivals: int, completions: int) -> pl.LazyFrame:
        second = pl.col(time).dt.truncate("1s").alias("second")
        return rows.select(*MAILBOX, second, arrivals=pl.lit(arrivals), completions=pl.lit(completions))

    moves = [
        moved(messages, "accepted_at", 1, 0),
        moved(messages.filter(pl.col("settled_at").is_not_null()), "settled_at", 0, 1),
    ]
    flows = pl.concat(moves).group_by(*MAILBOX, "second").agg(pl.col("arrivals", "completions").sum())
    net = (pl.col("arrivals") - pl.col("completions")).cum_sum().over("partition", "mailbox")
    lowest = pl.col("net").cum_min().over("partition", "mailbox").clip(upper_bound=0)
    seconds = flows.sort("second").with_columns(net=net).with_columns(backlog=pl.col("net") - lowest)
    minutes = seconds.group_by(*MAILBOX, pl.col("second").dt.truncate("1m").alias("minute")).agg(
        pl.col("arrivals").sum().cast(pl.Int64),
        pl.col("completions").sum().cast(pl.Int64),
        pl.col("backlog").sort_by("second").last(),
        backlog_peak=pl.col("backlog").max(),
    )
    rooms = agents.select("partition", pl.col("address").alias("mailbox"), "capacity")
    return minutes.join(rooms, on=["partition", "mailbox"], how="left").with_columns(
        day=pl.col("minute").dt.date(),
        used_share=pl.when(pl.col("capacity") > 0).then(pl.col("backlog_peak") / pl.col("capacity")),
    )


def failure_rates(messages: pl.LazyFrame, attempts: pl.LazyFrame, **_: pl.LazyFrame) -> pl.LazyFrame:
    counted = attempts.filter(pl.col("burned") & (pl.col("outcome") != "leased"))
    settled = messages.filter((pl.col("final_state") != "pending") & (pl.col("attempts") > 0))
    state = pl.col("final_state")
    failures = (
        counted.filter("failed")
        .group_by(*MAILBOX, pl.col("code").fill_null("unknown"))
        .agg(failures=pl.len().cast(pl.Int64), retried=_rows(pl.col("outcome").is_in(RETRIED)))
    )
    chosen = pl.col("code").is_in(["dropped", "unsubscribed"])
    losses = (
        settled.filter(state.is_in(["dead", "dropped"]) & pl.col("code").is_not_null() & ~chosen)
        .group_by(CLASS)
        .agg(dead=_rows(state == "dead"), dropped=_rows(state == "dropped"))
    )
    figures = ["failures", "retried", "dead", "dropped"]
    allowed = pl.col("code").replace_strict(RETRIES, default=3, return_dtype=pl.Int64)
    classes = (
        failures.join(losses, on=CLASS, how="full", coalesce=True)
        .with_columns(pl.col(figures).fill_null(0))
        .select(*CLASS, *figures, retries_allowed=allowed)
    )
    everything = (
        classes.group_by(MAILBOX)
        .agg(pl.col(figures).sum(), pl.col("retries_allowed").max())
        .select(*MAILBOX, pl.lit("*").alias("code"), *figures, "retries_allowed")
    )
    totals = counted.group_by(MAILBOX).agg(attempts=pl.len().cast(pl.Int64))
    tried = settled.group_by(MAILBOX).agg(messages=pl.len().cast(pl.Int64))
    p_fail = pl.col("failures") / pl.col("attempts")
    return (
        pl.concat([classes, everything])
        .join(totals, on=MAILBOX, how="left")
        .join(tried, on=MAILBOX, how="left")
        .join(everything.select(*MAILBOX, all_failures="failures"), on=MAILBOX)
        .with_columns(
            share_of_failures=pl.when(pl.col("all_failures") > 0).then(
                pl.col("failures") / pl.col("all_failures")
            ),
            retry_rate=pl.col("retried") / pl.col("attempts"),
            p_fail=p_fail,
            p_drop_predicted=p_fail ** (pl.col("retries_allowed") + 1),
            p_drop_observed=(pl.col("dead") + pl.col("dropped")) / pl.col("messages"),
        )
        .drop("all_failures")
    )
