"""The audit finds what is wrong, and only that: beside an independent checker, over random journals."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relaymesh.pipeline.audit.rules import RULES
from relaymesh.pipeline.audit.violations import audit_summary, audit_violations
from relaymesh.pipeline.schema.audit import AUDIT_VIOLATIONS
from relaymesh.pipeline.schema.silver import STEPS
from relaymesh.pipeline.silver.messages import messages
from tests.pipeline.audit.checker import Checker, Found
from tests.pipeline.audit.planted import CERTAIN, PLANTERS
from tests.pipeline.audit.traffic import Story, rows_of, stories, story_of
from tests.pipeline.tables.journal import Row, bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = 120
STORIES = 50


@dataclass
class Cases:
    """Journals to be audited together: each is a partition of one bronze, and planning the audit is dear."""

    seed: int
    """Of Hypothesis: the same one tells the same stories again."""
    told: list[list[Row]] = field(default_factory=list)
    planted: dict[int, str] = field(default_factory=dict)
    """By partition: the rule that must notice what was broken there."""
    untouched: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    gaps: set[int] = field(default_factory=set)
    """A record was set aside there."""

    def add(self, rows: list[Row]) -> int:
        number = len(self.told)
        self.told.append([row | {"partition": number} for row in rows])
        return number

    def checked(self) -> Found:
        """What the checker finds. It has no rule for journals whose past, or a record, is gone."""
        whole = [rows for number, rows in enumerate(self.told) if number not in self.cut | self.gaps]
        return set().union(*[Checker(rows).check() for rows in whole])


def with_a_gap(rows: list[Row], operation: str) -> list[Row]:
    """The first event of this operation was set aside: its row has its place and the mailbox it named."""
    kept = ("partition", "sequence", "event_date", "epoch", "source", "segment", "frame_offset", "mailbox")
    gap = next(i for i, row in enumerate(rows) if row["operation"] == operation)
    row = rows[gap]
    code = row["operation_code"]
    late = row["timestamp"] + timedelta(seconds=1)  # the frame's time, not the record's
    blank = {name: row[name] if name in kept else None for name in row}
    blank |= {"operation": f"UNREADABLE_{code}", "operation_code": code, "timestamp": late}
    return [*rows[:gap], blank, *rows[gap + 1 :]]


@pytest.fixture(scope="module")
def cases() -> Cases:
    made = Cases(random.randrange(1 << 32))
    for story, seed in imagined(made.seed):
        add_sound_and_broken(made, story, random.Random(seed))
    for operation in sorted({row["operation"] for row in sound(0)}):
        made.gaps.add(made.add(with_a_gap(sound(0), operation)))
    for seed in range(4):
        add_planted(made, seed)
    add_repeated(made)
    for seed in range(12):
        add_cut(made, seed)
    return made


@pytest.fixture(scope="module")
def found(spark: SparkSession, cases: Cases) -> Found:
    """What Spark finds in them."""
    events = bronze(spark, *cases.told).cache()
    entries = messages(events).cache()
    no_steps = spark.createDataFrame([], STEPS)  # stories of tasks: tests/pipeline/tasks
    rows = audit_violations(events, entries, no_steps).collect()
    entries.unpersist()
    events.unpersist()
    return {(row.rule, row.partition, row.mailbox, row.message_sequence, row.sequence) for row in rows}


def imagined(number: int) -> list[tuple[Story, int]]:
    """Stories of Hypothesis, and for each a number that decides what is broken in it.

    They are judged together, after the last of them: that Spark agrees is asserted in a test below.
    """
    told: list[tuple[Story, int]] = []

    @hypothesis.seed(number)
    @given(story=stories, seed=st.integers(0, 1 << 32))
    @settings(
        max_examples=STORIES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def listen(story: Story, seed: int) -> None:
        told.append((story, seed))

    listen()
    return told


def add_sound_and_broken(cases: Cases, story: Story, chance: random.Random) -> None:
    """As the kernel wrote it, and with something broken at random."""
    whole = rows_of(story, 0)
    cases.add(whole)
    broken = chance.choice(PLANTERS)(whole, chance)
    if broken is not None:
        cases.add(broken)


def add_planted(cases: Cases, seed: int) -> None:
    """Each violation that must be found, planted into one journal."""
    whole = sound(seed)
    cases.untouched.add(cases.add(whole))
    for planter, rule in CERTAIN.items():
        broken = planter(whole, random.Random(seed))
        if broken is not None:
            cases.planted[cases.add(broken)] = rule


def add_repeated(cases: Cases) -> None:
    """One event of each kind is there twice."""
    whole = sound(0)
    last = {row["operation"]: place for place, row in enumerate(whole)}
    for place in last.values():
        cases.add([*whole[: place + 1], *whole[place:]])


def add_cut(cases: Cases, seed: int) -> None:
    """Retention cut the past off: settles of unknown messages, unknown settings, old subscriptions."""
    whole = sound(seed)
    cases.cut.add(cases.add(whole[random.Random(seed).randrange(5, len(whole) - 5) :]))


def sound(seed: int) -> list[Row]:
    return rows_of(story_of(seed, LONG), 0)


def test_spark_and_the_checker_agree_on_any_journal(cases: Cases, found: Found) -> None:
    """On journals as the kernel wrote them, and on journals with something broken."""
    assert len(cases.told) > 2 * STORIES
    judged = {each for each in found if each[1] not in cases.cut | cases.gaps}
    assert judged == cases.checked(), f"the stories of imagined({cases.seed})"


def test_every_planted_violation_is_found_and_nothing_else(cases: Cases, found: Found) -> None:
    assert set(cases.planted.values()) == set(CERTAIN.values()), "the stories offer a place for each"
    rules: dict[int, set[str]] = {}
    for rule, partition, *_ in found:
        rules.setdefault(partition, set()).add(rule)
    assert cases.untouched & rules.keys() == set()
    assert [
        (each, rules.get(case)) for case, each in cases.planted.items() if each not in rules.get(case, ())
    ] == []


def test_what_came_before_the_first_known_event_is_not_judged(cases: Cases, found: Found) -> None:
    assert len(cases.cut) == 12
    assert [each for each in found if each[1] in cases.cut] == []


def test_a_record_that_was_set_aside_is_no_violation(cases: Cases, found: Found) -> None:
    assert len(cases.gaps) > 15
    assert [each for each in found if each[1] in cases.gaps] == []


def test_the_stories_hold_everything_that_can_happen() -> None:
    told = Counter(row["operation"] for seed in range(4) for row in sound(seed))
    every = {
        "START", "OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "APPEND", "PUBLISH", "GRANT", "ACK", "DROP",
        "NACK", "LEASE_EXPIRED", "RECLAIM", "DEFER", "RELEASE",
        "DEAD_LETTER", "REDRIVE", "PURGE", "REPRIORITISE",
        "FORCE_DELIVER", "COMPLETE", "SUSPEND", "RESUME",
    }  # fmt: skip
    assert told.keys() == every


def test_the_summary_has_a_row_for_every_rule(spark: SparkSession) -> None:
    rows = sound(0)
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
