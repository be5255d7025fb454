"""One row per message, with the trace it belongs to and the message it follows from."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.silver import TRACES

__all__ = ["traces"]

_TRACEPARENT = "^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}"


def traces(messages: DataFrame) -> DataFrame:
    """The tree of conversations.

    An answer names what it answers by correlation, an edited redrive its origin. Messages without a
    traceparent take the trace of their thread if any of it has one.
    """

    def part(group: int) -> Column:
        return f.nullif(f.regexp_extract("traceparent", _TRACEPARENT, group), f.lit(""))

    answers = f.col("correlation_id").isNotNull() & (f.col("correlation_id") != f.col("message_id"))
    thread = f.when(answers, f.col("correlation_id")).otherwise(f.coalesce("origin_id", "message_id"))
    told = messages.withColumns(
        {"own_trace": part(1), "span_id": part(2), "thread": thread, "answers": answers}
    )
    # Joined rather than told by a window: only threads that have a trace are gathered, often few or none.
    threads = (
        told.filter(f.col("own_trace").isNotNull())
        .groupBy("partition", "thread")
        .agg(f.min("own_trace").alias("thread_trace"))
    )
    traced = told.join(threads, ["partition", "thread"], "left").withColumn(
        "trace_id", f.coalesce("own_trace", "thread_trace", "thread")
    )
    order = Window.partitionBy("partition", "trace_id").orderBy("message_sequence", "mailbox")
    link = (
        f.when(f.col("origin_id").isNotNull(), "edit")
        .when(f.col("redriven_from").isNotNull(), "redrive")
        .when(f.col("answers"), "answer")
        .otherwise("root")
    )
    parent = (
        f.when(f.col("link") == "edit", f.col("origin_id"))
        .when(f.col("link") == "redrive", f.col("message_id"))
        .when(f.col("link") == "answer", f.col("correlation_id"))
    )
    return (
        traced.withColumn("step", f.row_number().over(order))
        .withColumn("link", link)
        .withColumn("parent_id", parent)
        .to(TRACES)
    )
