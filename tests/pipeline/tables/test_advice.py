"""A proposal says what to change and why, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


def with_settings(settings: dict[str, object] | None, code: str, violation: str) -> list[str]:
    """What is proposed to a mailbox with these settings for one violation of the default contract."""
    violated = {"partition": 0, "mailbox": CODER, "code": code, "violation": violation, "reasoning": "why",
                "messages": 5, "attempts": 15}  # fmt: skip
    agent = {"partition": 0, "address": CODER, "settings": None if settings is None else json.dumps(settings)}
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in INPUTS}
    rows |= {"contract_violations": [violated], "agents": [agent]}
    return [each.setting for each in propose(rows, AT).suggestions]


CHOSEN = {"retries": 3, "exit": "dead_letter", "alert": False}


@pytest.mark.parametrize("settings", [None, {}, {"contract": None, "max_retries": None, "capacity": 5}])
def test_a_mailbox_that_retries_the_hopeless_is_questioned(settings: dict[str, object] | None) -> None:
    assert with_settings(settings, "invalid", "retried_final") == ["contract.invalid"]


@pytest.mark.parametrize(
    ("settings", "code", "violation"),
    [
        ({"contract": {"invalid": CHOSEN}}, "invalid", "retried_final"),
        ({"contract": {"fatal": CHOSEN}}, "fatal", "left_without_alert"),
        ({"contract": {"other": CHOSEN}}, "code of ours", "gave_up_early"),
        ({"max_retries": 0}, "timeout", "gave_up_early"),
        ({"max_retries": 9}, "timeout", "retried_too_often"),
    ],
)
def test_what_was_set_is_not_proposed_to_be_undone(
    settings: dict[str, object], code: str, violation: str
) -> None:
    assert with_settings(settings, code, violation) == []
    assert with_settings({}, code, violation) == [f"contract.{code}"]


def test_a_setting_for_something_else_answers_no_question() -> None:
    assert with_settings({"contract": {"timeout": CHOSEN}}, "invalid", "retried_final")
    assert with_settings({"max_retries": 2}, "fatal", "left_without_alert")
    assert with_settings({"contract": {"other": CHOSEN}}, "timeout", "gave_up_early")


def test_a_contract_of_a_mailbox_s_own_stays(rows: Rows) -> None:
    assert rows("contract_violations", MIX), "the table tells what happened, chosen or not"
    assert of(rows, MIX).suggestions == ()


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
