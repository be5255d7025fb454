"""The simulator itself: one seed is one story, in any process, and a violation says how to see it again."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest

from relaymesh.node.core import Core
from relaymesh.testing import simulate
from relaymesh.testing.simulation import Violation, run_seed
from relaymesh.testing.simulation.plan import FAULTS, make_plan

SOME = range(100, 108)


def in_another_process(*arguments: str, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "relaymesh.testing.simulate", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_same_seed_tells_the_same_story() -> None:
    for seed in SOME:
        once, again = run_seed(seed, keep_trace=True), run_seed(seed, keep_trace=True)
        assert once.trace == again.trace
        assert once.digest == again.digest


def test_other_seeds_tell_other_stories() -> None:
    assert len({run_seed(seed).digest for seed in SOME}) == len(SOME)


def test_the_hash_is_the_same_in_other_processes_with_other_hash_seeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = ["--seed", str(SOME[0]), "--seeds", str(len(SOME)), "--json"]
    assert simulate.main(seeds) == 0
    here = json.loads(capsys.readouterr().out.splitlines()[-1])
    for hash_seed, jobs in (("1", "1"), ("77", "2")):
        there = json.loads(in_another_process(*seeds, "--jobs", jobs, hash_seed=hash_seed)[-1])
        assert there == here
    assert set(here) >= {"seeds", "violations", "faults", "trace_hash"}
    assert here["seeds"] == len(SOME)
    assert here["violations"] == 0


def test_each_seed_has_its_own_mix_of_faults() -> None:
    mixes = {tuple(sorted(make_plan(seed).faults)) for seed in range(50)}
    assert len(mixes) == 50
    assert {kind for mix in mixes for kind in mix} == set(FAULTS)


@pytest.fixture
def receipts_before_their_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Core, "passed", lambda core, needs: needs[0] <= core.written)


@pytest.mark.usefixtures("receipts_before_their_sync")
def test_a_violation_names_seed_invariant_and_the_command_that_shows_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate.main(["--seed", "3"]) == 1
    said = capsys.readouterr().out
    assert "seed 3 breaks synced_before_leaving" in said
    assert "python -m relaymesh.testing.simulate --seed 3 --trace" in said
    assert "1 VIOLATIONS" in said
    assert simulate.main(["--seed", "3", "--trace"]) == 1
    assert "start 0: epoch 1" in capsys.readouterr().out
    assert simulate.main(["--seed", "3", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (answer["violations"], answer["failing_seeds"]) == (1, [3])


def test_an_error_of_the_product_is_a_violation_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(core: Core) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(Core, "write", fail)
    violation = run_seed(3).violation
    assert violation is not None
    assert (violation.invariant, violation.seed) == ("no_surprises", 3)
    assert "KeyError" in violation.seen


def test_a_violation_travels_between_processes() -> None:
    violation = Violation("dedup", "twice")
    violation.seed, violation.trace = 4, ["1 send"]
    back = pickle.loads(pickle.dumps(violation))
    assert (back.invariant, back.seen, back.seed, back.trace) == ("dedup", "twice", 4, ["1 send"])


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        simulate.main(["--seeds", "0"])
    assert "--seeds must be more than 0" in capsys.readouterr().err


def test_minutes_bound_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--minutes", "0.0001", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == simulate.CHUNK
