"""The audit finds what is wrong, and only that: beside an independent checker, over random journals."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relaymesh.pipeline.audit.rules import RULES
from relaymesh.pipeline.audit.violations import audit_summary, audit_violations
from relaymesh.pipeline.schema.audit import AUDIT_VIOLATIONS
from relaymesh.pipeline.silver.messages import messages
from tests.pipeline.audit.checker import Checker, Found
from tests.pipeline.audit.planted import CERTAIN, PLANTERS
from tests.pipeline.audit.traffic import Story, rows_of, stories, story_of
from tests.pipeline.tables.journal import Row, bronze

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONG = 120


def audited(spark: SparkSession, cases: list[list[Row]]) -> Found:
    """What Spark finds in journals that are partitions of one bronze."""
    rows = audit_rows(bronze(spark, *cases)).collect()
    return {(row.rule, row.partition, row.mailbox, row.message_sequence, row.sequence) for row in rows}


def audit_rows(events: DataFrame) -> DataFrame:
    kept = events.cache()
    return audit_violations(kept, messages(kept).cache())


def checked(cases: list[list[Row]]) -> Found:
    return set().union(*[Checker(rows).check() for rows in cases])


def sound(seed: int, partition: int) -> list[Row]:
    return rows_of(story_of(seed, LONG), partition)


@given(told=st.lists(stories, min_size=10, max_size=25), seed=st.integers(0, 1 << 32))
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_spark_and_the_checker_agree_on_any_journal(
    spark: SparkSession, told: list[Story], seed: int
) -> None:
    """Half of the journals as the kernel wrote them, half with something broken at random."""
    chance = random.Random(seed)
    cases: list[list[Row]] = []
    for story in told:
        whole = rows_of(story, len(cases))
        cases.append(whole)
        broken = chance.choice(PLANTERS)([row | {"partition": len(cases)} for row in whole], chance)
        if broken is not None:
            cases.append(broken)
    assert audited(spark, cases) == checked(cases)


def test_every_planted_violation_is_found_and_nothing_else(spark: SparkSession) -> None:
    cases: list[list[Row]] = []
    wanted: dict[int, str] = {}
    untouched: set[int] = set()
    for seed in range(4):
        whole = sound(seed, len(cases))
        untouched.add(len(cases))
        cases.append(whole)
        for planter, rule in CERTAIN.items():
            broken = planter([row | {"partition": len(cases)} for row in whole], random.Random(seed))
            if broken is not None:
                wanted[len(cases)] = rule
                cases.append(broken)
    assert set(wanted.values()) == set(CERTAIN.values()), "the stories offer a place for each"
    found = audited(spark, cases)
    rules = {case: {each[0] for each in found if each[1] == case} for case in range(len(cases))}
    assert {case: rules[case] for case in untouched} == {case: set() for case in untouched}
    assert [(rule, rules[case]) for case, rule in wanted.items() if rule not in rules[case]] == []
    assert found == checked(cases)


def test_what_came_before_the_first_known_event_is_not_judged(spark: SparkSession) -> None:
    """Retention cut the past off: settles of unknown messages, unknown settings, old subscriptions."""
    cases = []
    for case in range(12):
        whole = sound(case, case)
        cases.append(whole[random.Random(case).randrange(5, len(whole) - 5) :])
    assert audited(spark, cases) == set()


def test_the_stories_hold_everything_that_can_happen() -> None:
    told = Counter(row["operation"] for seed in range(4) for row in sound(seed, 0))
    every = {
        "START", "OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "APPEND", "PUBLISH", "GRANT", "ACK", "DROP",
        "NACK", "LEASE_EXPIRED", "RECLAIM", "DEFER", "RELEASE",
        "DEAD_LETTER", "REDRIVE", "PURGE", "REPRIORITISE",
        "FORCE_DELIVER", "COMPLETE",
    }  # fmt: skip
    assert told.keys() == every


def test_the_summary_has_a_row_for_every_rule(spark: SparkSession) -> None:
    rows = sound(0, 0)
    acks = sum(row["operation"] == "ACK" for row in rows)
    broken = [
        ("early", 0, "default/a", 4, "m1", sequence, rows[0]["timestamp"], "…") for sequence in (31, 12)
    ]
    violations = spark.createDataFrame(broken, AUDIT_VIOLATIONS)
    summary = {row.rule: row for row in audit_summary(bronze(spark, rows), violations).collect()}
    assert summary.keys() == {rule.name for rule in RULES}
    assert summary["no_attempt"].checked == acks
    assert summary["sequence_gap"].checked == len(rows)
    assert {rule for rule, row in summary.items() if not row.passed} == {"early"}
    assert (summary["early"].violations, summary["early"].first_sequence) == (2, 12)
