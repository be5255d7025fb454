"""A decision says what the code does."""

from __future__ import annotations

import re

import pytest

from relaymesh import Drop, MeshSettings
from relaymesh.kernel.contract import DEFAULT_CONTRACT
from relaymesh.kernel.settings import LEASE_MS_BY_PRIORITY, MailboxSettings
from relaymesh.testing import ManualMesh
from tests.project.tree import ROOT

DECISIONS = ROOT / "docs/decisions"
PAGE = DECISIONS / "022-where-the-seeds-disagree.md"


def rows() -> dict[str, list[str]]:
    """The cells of each row, by its subject."""
    text = PAGE.read_text(encoding="utf-8")
    found = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return {cells[0].strip("| "): cells[1:] for cells in found[1:]}


def test_every_decision_is_in_the_list_and_has_a_number_of_its_own() -> None:
    listed = re.findall(r"\((\d{3}-[\w-]+\.md)\)", (DECISIONS / "README.md").read_text(encoding="utf-8"))
    assert sorted(path.name for path in DECISIONS.glob("[0-9]*.md")) == sorted(listed)
    assert len({name[:3] for name in listed}) == len(listed)


@pytest.mark.parametrize(
    ("subject", "settings"),
    [
        ("which goes first", MailboxSettings()),
        ("largest backoff", MailboxSettings()),
        ("time to settle", MailboxSettings()),
        ("delayed messages at a stop", MeshSettings()),
    ],
)
def test_a_default_that_differs_from_a_seed_is_the_one_that_is_written_down(
    subject: str, settings: MailboxSettings | MeshSettings
) -> None:
    _, chosen, other = rows()[subject]
    written = re.match(r"`(\w+)=(.+?)`", chosen)
    assert written is not None
    assert getattr(settings, written[1]) == eval(written[2])
    instead = re.match(r"`(\w+)=(.+?)`", other)
    assert instead is not None
    type(settings)(**{instead[1]: eval(instead[2])})


def test_retries_leases_and_invalid_messages_are_as_written() -> None:
    assert [LEASE_MS_BY_PRIORITY[priority] // 1000 for priority in range(1, 6)] == [5, 10, 30, 60, 60]
    assert DEFAULT_CONTRACT["other"].retries == DEFAULT_CONTRACT["timeout"].retries == 3
    assert (DEFAULT_CONTRACT["invalid"].retries, DEFAULT_CONTRACT["invalid"].exit) == (0, "dead_letter")


def test_an_invalid_message_is_dropped_where_the_contract_says_so() -> None:
    with ManualMesh() as mesh:
        coder = mesh.agent("coder", contract={ValueError: Drop})

        @coder.handle
        def refuse(delivery: object) -> None:
            raise ValueError

        coder.send("coder", 1)
        mesh.advance()
        stats = mesh.stats().mailboxes["default/coder"]
        assert (stats.dropped, stats.dead) == (1, 0)


@pytest.mark.parametrize(("type", "found_under"), [("message", "m-1"), ("question", "q-1")])
def test_a_notice_carries_the_correlation_id_that_is_written(type: str, found_under: str) -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m-1", type=type, correlation_id="q-1", requires_ack=True)
        coder.receive(timeout=1).ack()
        notice = planner.receive(timeout=1)
        assert (notice.type, notice.correlation_id) == ("ack", found_under)
        assert notice.content["originalMessageId"] == "m-1"
        assert notice.sender == "default/coder"
