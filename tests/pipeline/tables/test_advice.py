"""A proposal says what to change and why, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

from relaymesh.pipeline.advice import INPUTS, Proposal, propose, write_proposal
from tests.pipeline.tables.conftest import Rows
from tests.pipeline.tables.golden import BURST, CODER, FLOW, MIX

AT = "2026-03-02T12:00:00Z"


def of(rows: Rows, partition: int) -> Proposal:
    names = {name: rows(name, partition) for name in INPUTS}
    whole = {name: [_Nulls(row) for row in found] for name, found in names.items()}
    return propose(whole, AT)


class _Nulls(dict[str, object]):
    """Rows here leave out what is empty; a table has it as null."""

    def __missing__(self, name: str) -> None:
        return None


def test_more_workers_are_proposed_with_the_formula(rows: Rows) -> None:
    (workers,) = of(rows, FLOW).suggestions
    assert (workers.mailbox, workers.setting, workers.current, workers.proposed) == (CODER, "workers", 2, 4)
    assert workers.reasoning.startswith("W = ceil(λ_p95 / μ_p50) = ceil(120 / 35.04)")


def test_room_for_a_burst_is_proposed_where_there_is_none(rows: Rows) -> None:
    (capacity,) = of(rows, BURST).suggestions
    assert (capacity.setting, capacity.current, capacity.proposed) == ("capacity", 25, 30)
    assert "(12 - 9) · 10 s = 30 messages" in capacity.reasoning


def test_a_contract_that_retries_the_hopeless_is_questioned(rows: Rows) -> None:
    contract = next(each for each in of(rows, MIX).suggestions if each.table == "contract_violations")
    assert contract.setting == "contract.invalid"
    assert contract.proposed == {"retries": 0, "exit": "dead_letter", "alert": False}
    assert "5 messages, 15 attempts" in contract.reasoning


def test_the_file_says_that_nothing_was_applied(rows: Rows, tmp_path: Path) -> None:
    for_programs, for_people = write_proposal(of(rows, FLOW), tmp_path / "advice")
    told = json.loads(for_programs.read_text(encoding="utf-8"))
    assert told["version"] == 1
    assert told["made_at"] == AT
    assert told["suggestions"][0]["proposed"] == 4
    text = for_people.read_text(encoding="utf-8")
    assert "Nothing in it has been applied" in text
    assert "  workers = 4 (now 2)\n      because W = ceil" in text
    assert sorted(path.name for path in (tmp_path / "advice").iterdir()) == ["proposal.json", "proposal.txt"]


def test_without_a_reason_there_is_nothing_to_propose() -> None:
    empty = propose({name: [] for name in INPUTS}, AT)
    assert empty.suggestions == ()
    assert "Nothing to propose" in empty.text()
