"""Every planted bug is caught, the product is itself again behind it, and passes where the bug did not."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from relaymesh.node.core import Core
from relaymesh.testing.planted import BUGS, Bug, UnknownBug, bug_named
from relaymesh.testing.planted.__main__ import main
from relaymesh.testing.planted.bug import Reached, at, plant
from relaymesh.testing.planted.catching import catch, first_violation
from relaymesh.testing.planted.page import BEGIN, END
from tests.project.tree import ROOT

PAGE = ROOT / "docs/explanation/planted-bugs.md"

BY_ACCIDENT = ("no_surprises", "start_refused")
"""The product stumbled, before a checker looked."""

DEMANDED = {
    "receipt_before_sync",
    "crc_skipped",
    "retry_burns_no_attempt",
    "stale_token_accepted",
    "lane_hold_lost",
    "early_delayed_delivery",
    "dedup_forgotten_after_restart",
    "checkpoint_drops_remote_leases",
    "acknowledged_data_truncated",
    "sync_retried_to_success",
    "fan_in_off_by_one",
    "late_result_revives_step",
    "successor_lost_at_restart",
    "successor_sent_twice",
    "undo_in_wrong_order",
    "undo_twice",
    "budget_races_grants",
    "early_signal_lost",
    "strangers_answer_counts",
    "schedule_twice",
    "payload_swept_while_named",
}
OF_TASKS = {"tasks": 20, "talk": 12, "schedules": 2, "payloads": 3}
"""So many bugs at least are planted into each layer of tasks."""


@functools.cache
def holds_without_a_bug(seed: int) -> bool:
    return first_violation(range(seed, seed + 1))[1] is None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    caught = catch(bug, first_seed=bug.first_seed)
    assert caught.violation is not None, f"{bug.name}: {caught.verdict} in {caught.seeds} seeds"
    assert caught.reached > 0
    if bug.layer in OF_TASKS:
        assert caught.violation.invariant not in BY_ACCIDENT, "a checker is to see it"
    assert caught.violation.seed is not None
    assert holds_without_a_bug(caught.violation.seed)


def test_there_are_enough_of_them_and_no_two_of_one_name() -> None:
    names = {bug.name for bug in BUGS}
    assert len(names) == len(BUGS) >= 20
    assert names >= DEMANDED
    for layer, least in OF_TASKS.items():
        assert len([bug for bug in BUGS if bug.layer == layer]) >= least


def test_the_page_has_a_row_for_each() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [line.split("|")[2].strip(" `") for line in table.splitlines()[3:]]
    assert rows == [bug.name for bug in BUGS], "run: python -m relaymesh.testing.planted --write-docs"
    assert "MISSED" not in table
    assert "NEVER REACHED" not in table


# Planting


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_product_is_itself_again_also_after_an_error(bug: Bug) -> None:
    before = [seam.function for seam in bug.seams]

    class Interrupted(Exception):
        pass

    def interrupted() -> None:
        with bug.planted():
            for seam, right in zip(bug.seams, before, strict=True):
                assert seam.function is not right
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert all(seam.function is right for seam, right in zip(bug.seams, before, strict=True))


class Counter:
    def next(self, step: int = 1) -> int:
        return step

    @property
    def size(self) -> int:
        return 1


def doubled(original: object, *arguments: object, **options: object) -> int:
    assert callable(original)
    answer = original(*arguments, **options)
    assert isinstance(answer, int)
    return 2 * answer


def reached_while_used(bug: Bug) -> Reached:
    with bug.planted() as reached:
        assert (Counter().next(step=3), Counter().size) == (6, 2)
    assert (Counter().next(step=3), Counter().size) == (3, 1)
    return reached


def test_methods_and_properties_are_replaced_and_counted() -> None:
    bug = plant(at(Counter, "next", "size"), broken="twice as much")(doubled)
    assert (bug.name, bug.layer) == ("doubled", "test_planted")
    assert reached_while_used(bug).times == 2


def test_entries_of_a_table_are_replaced() -> None:
    table = {"three": lambda: 3}
    with plant(at(table, "three"), broken="twice as much")(doubled).planted():
        assert table["three"]() == 6
    assert table["three"]() == 3


def never_called(original: object, core: Core) -> None:
    raise AssertionError


def test_a_bug_that_is_never_reached_is_not_called_missed() -> None:
    bug = plant(at(Core, "when_room"), broken="nobody waits for room here")(never_called)
    caught = catch(bug, seeds=2)
    assert (caught.caught, caught.verdict, caught.seeds) == (False, "NEVER REACHED", 2)


def right_after_all(original: object, core: Core) -> object:
    assert callable(original)
    return original(core)


def test_a_bug_that_does_no_harm_is_missed() -> None:
    caught = catch(plant(at(Core, "_sync"), broken="nothing")(right_after_all), seeds=2)
    assert (caught.caught, caught.verdict) == (False, "MISSED")


# The command


def test_the_command_answers_in_a_table_and_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "receipt_before_sync", "--only", "early_delayed_delivery"]) == 0
    head, first, second, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["bug", "stands", "for", "caught", "by", "seeds", "seconds"]
    assert first.split()[0] == "receipt_before_sync"
    assert "never_early" in second
    found = json.loads(last)
    assert (found["bugs"], found["caught"], found["missed"]) == (2, 2, [])
    assert found["seeds_max"] == int(second.split()[-2])


def test_a_missed_bug_is_named_and_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "dedup_without_the_store", "--seeds", "1", "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["missed"] == ["dedup_without_the_store"]


def test_the_list_says_what_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(BUGS)
    assert all(bug.broken in line for bug, line in zip(BUGS, lines, strict=True))


def test_an_unknown_name_is_refused_with_the_way_to_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownBug, match="no planted bug 'gremlin'"):
        bug_named("gremlin")
    with pytest.raises(SystemExit) as ended:
        main(["--only", "gremlin"])
    assert ended.value.code == 2
    assert "`--list` shows all" in capsys.readouterr().err


def test_the_docs_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["--write-docs"])
    assert "from the top of a source tree" in capsys.readouterr().err
