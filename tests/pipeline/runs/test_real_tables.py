"""A mesh that was at work, as tables, and audited: do they say what the mesh itself says?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import assert_bronze_is_the_journal, check_whole

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from relaymesh.wire.stats import MeshStats
    from tests.pipeline.runs.conftest import Opening


def by_mailbox(rows: list[Row], counted: Callable[[Row], bool] = lambda row: True) -> Counter[str]:
    return Counter(row.mailbox for row in rows if counted(row))


def counters_of(tables: dict[str, list[Row]]) -> dict[str, Counter[str]]:
    """Every journalled counter of `mesh.stats()`, as sums over the rows of the tables."""
    messages, attempts, letters = (tables[name] for name in ("messages", "attempts", "dead_letters"))
    back = ("nack", "lease_expired", "reclaimed", "abandoned")
    return {
        "accepted": by_mailbox(messages),
        "acked": by_mailbox(messages, lambda row: row.final_state == "acked"),
        "dropped": by_mailbox(messages, lambda row: row.final_state == "dropped"),
        "dead": by_mailbox(messages, lambda row: row.final_state == "dead"),
        "pending": by_mailbox(messages, lambda row: row.final_state == "pending"),
        "leased": by_mailbox(messages, lambda row: row.in_flight),
        "delivered": by_mailbox(attempts),
        "retried": by_mailbox(attempts, lambda row: row.outcome in back),
        "deferred": by_mailbox(attempts, lambda row: row.outcome == "deferred"),
        "redriven": by_mailbox(messages, lambda row: row.redriven_from is not None),
        "expired": by_mailbox(letters, lambda row: row.reason == "ttl_expired"),
        "dead_letters": by_mailbox(letters, lambda row: row.status == "pending"),
    }


def assert_tables_say_what_the_mesh_says(stats: MeshStats, counters: dict[str, Counter[str]]) -> None:
    for counter, found in counters.items():  # a subscription that ended took its counters along
        said = {name: getattr(box, counter) for name, box in stats.mailboxes.items()}
        kept = {name: found[name] for name in said}
        assert kept == said, counter


@pytest.mark.slow
def test_every_counter_of_the_mesh_is_a_sum_over_the_tables_and_days_add_up_to_a_full_build(
    pipeline: Opening, traffic: Traffic, spark: SparkSession
) -> None:
    from relaymesh.pipeline.catalog import TABLES

    silver = [table for table in TABLES if table.layer == "silver"]
    pipeline(tables=silver).run()
    traffic.day()
    traffic.day()
    audited = [table for table in TABLES if table.layer != "gold"]  # which report/test_whole.py builds
    opened = pipeline(tables=audited)
    record = opened.run()  # silver goes on by day; the audit is new
    assert record.status == "published"
    assert [each for each in record.expectations if each["severity"] == "error"] == []
    stats = traffic.mesh.stats()
    assert_bronze_is_the_journal(opened.store, traffic.path)
    published = {table.name: opened.store.current(spark, table.name).collect() for table in silver}
    assert_tables_say_what_the_mesh_says(stats, counters_of(published))

    manifest = check_whole(opened.store)
    assert manifest is not None
    sums = manifest.reconciliation
    assert sums["balanced"]
    assert sums["accepted"] == sums["acked"] + sums["dropped"] + sums["dead"] + sums["pending"]
    assert sums["pending"] == stats.pending
    assert [each.through_sequence + 1 for each in manifest.inputs] == [stats.synced]
    assert set(manifest.tables) == {table.name for table in audited} | {"pipeline_metrics", "quarantine"}

    # Day by day or all at once: the same rows.
    full = {"bronze": opened.bronze.read(spark, opened.bronze.snapshot().pieces)}
    for table in silver:
        full[table.name] = table.build(**{name: full[name] for name in table.inputs})
        built = Counter(map(str, full[table.name].collect()))
        assert Counter(map(str, published[table.name])) == built, table.name
