"""Greed hurts only the greedy: attackers beside a victim, in short; at length: `python -m tests.attacks`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.attacks.catalogue import ATTACKS
from tests.attacks.memory import excess
from tests.attacks.stage import Plan, Stage
from tests.attacks.verdict import Latency, Seen, judged_alone, judged_together

SHORT = Plan(seconds=2.0, base_s=0.5, after_s=0.2)
ALONE_MS_MAX = 300.0
ALL_MS_MAX = 1_500.0
"""In 2 s there are 80 trips, and the worst of them is the p99: more is allowed than at length."""
ALL_EXCESS_MAX = 1 << 30
"""Beside counted mail, with all attacks at once: twice what is wanted at length."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One node for all attacks, one after the other: what each leaves behind adds up."""
    with Stage(SHORT) as opened:
        yield opened


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the node's memory is read from /proc")


@linux_only
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_not_felt_by_others(stage: Stage, name: str) -> None:
    seen = stage.attack([name])
    if reason := seen.attackers[name]["skipped"]:
        pytest.skip(reason)
    verdict = judged_alone(name, seen, ALONE_MS_MAX)
    assert verdict.broken == [], "\n".join(verdict.lines())


@linux_only
@pytest.mark.alone
@pytest.mark.slow
def test_all_attacks_at_once_are_felt_little_more_than_an_equal_load() -> None:
    with Stage(SHORT) as fresh:
        verdict = judged_together(fresh.attack(list(ATTACKS), control=True), ALL_MS_MAX, ALL_EXCESS_MAX)
    assert verdict.broken == [], "\n".join(verdict.lines())


QUIET = Latency([4.0] * 100, [5.0] * 100)
ATTACKED = {"done": 1, "refused": 0, "cut": 0, "bytes": 1, "processor_s": 0.1, "took_s": 1.0}
TALLY = {"pings": {**ATTACKED, "skipped": "", "last_refusal": ""}}


def seen_with(
    *,
    attacked: Latency = QUIET,
    errors: dict[str, int] | None = None,
    attackers: dict[str, dict[str, object]] | None = None,
    excess_bytes: int = 0,
    after_bytes: int = 0,
    answers: bool = True,
) -> Seen:
    return Seen(
        base=QUIET,
        attacked=attacked,
        control=QUIET,
        errors=errors or {},
        attackers=TALLY if attackers is None else attackers,
        peak_bytes=0,
        excess_bytes=excess_bytes,
        after_bytes=after_bytes,
        answers=answers,
        others=0.0,
    )


def test_a_run_in_which_nothing_was_felt_passes() -> None:
    assert judged_alone("pings", seen_with()).passed
    assert judged_together(seen_with()).passed


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        (seen_with(attacked=Latency([4.0] * 98 + [101.0] * 2, [5.0])), "p99 is below 100 ms"),
        (seen_with(attacked=Latency([4.0], [101.0])), "p99 is below 100 ms"),
        (seen_with(attacked=Latency([], [])), "p99 is below 100 ms"),
        (seen_with(errors={"http: 503": 1}), "nothing of the victim is refused"),
        (seen_with(excess_bytes=1 << 29), "at most 512 MiB"),
        (seen_with(after_bytes=1 << 29), "at most 512 MiB"),
        (seen_with(answers=False), "the node answers"),
        (seen_with(attackers={"pings": {**TALLY["pings"], "bytes": 0}}), "pings attacked"),
    ],
    ids=["slow", "slow over HTTP", "unseen", "refused", "memory", "memory kept", "silent", "no attack"],
)
def test_each_claim_can_be_broken(seen: Seen, broken: str) -> None:
    verdict = judged_alone("pings", seen)
    assert not verdict.passed
    assert len(verdict.broken) == 1
    assert broken in verdict.broken[0]


def test_all_at_once_is_measured_against_an_equal_load() -> None:
    verdict = judged_together(seen_with(attacked=Latency([26.0], [5.0])))
    assert ["5 times 5 ms" in words for words in verdict.broken] == [True]


def test_mail_that_comes_between_two_counts_is_no_excess() -> None:
    assert excess([(1.5, 700)], [(0.0, 0), (1.0, 100), (2.0, 600)]) == 100
    assert excess([(1.5, 700), (2.5, 900)], [(0.0, 0), (1.0, 100), (2.0, 600)]) == 300
    assert excess([(0.5, 700)], [(0.0, 0)]) == 700
