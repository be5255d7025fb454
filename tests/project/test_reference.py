"""The reference says what the source says, and leaves nothing out."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import relaymesh
from relaymesh import AsyncMesh, Mesh, errors
from relaymesh.kernel.contract import DEFAULT_CONTRACT
from relaymesh.sdk import receipt
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.receipt import Receipt
from tests.project.reference import (
    PAGES,
    fields_with_words,
    members,
    promise_tests,
    summary,
)
from tests.project.signature import parameters
from tests.project.tree import ROOT


@pytest.mark.parametrize("path", PAGES)
def test_the_reference_is_up_to_date(path: str) -> None:
    written = (ROOT / path).read_text(encoding="utf-8")
    assert written == PAGES[path](), f"{path} is stale: run make docs"


def test_every_setting_says_what_it_does() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", PAGES["docs/reference/settings.md"](), re.MULTILINE)
    assert len(rows) > 30
    assert [name for name, words in rows if not words.strip()] == []


def test_every_argument_of_a_mesh_and_every_field_of_a_message_says_what_it_is() -> None:
    described = {
        Mesh: [(name, words) for name, _, _, words in parameters(Mesh.__init__)],
        Agent: [(name, words) for name, _, _, words in parameters(Agent.send)],
        Receipt: [(name, words) for name, _, _, words in fields_with_words(receipt, "Receipt")],
        Delivery: [(name, summary(member)) for name, member in members(Delivery)],
    }
    for cls, rows in described.items():
        assert len(rows) >= 6
        assert [f"{cls.__name__}.{name}" for name, words in rows if not words] == []
    page = PAGES["docs/reference/sdk.md"]()
    for rows in described.values():
        assert [name for name, _ in rows if f"`{name}" not in page] == []


def test_both_twins_take_the_same_arguments() -> None:
    names = [name for name, *_ in parameters(Mesh.__init__)]
    assert list(inspect.signature(AsyncMesh).parameters) == names


def test_the_default_contract_is_shown_row_by_row() -> None:
    page = PAGES["docs/reference/sdk.md"]()
    for code, rule in DEFAULT_CONTRACT.items():
        assert re.search(rf"^\| `{code}` \| .+ \| {rule.retries} \| ", page, re.MULTILINE)


def test_every_error_has_a_code_of_its_own_and_a_hint() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    coded = [kind for kind in kinds if issubclass(kind, errors.MeshError) and "code" in vars(kind)]
    leaves = [kind for kind in coded if kind is not errors.MeshError]
    assert len({kind.code for kind in leaves}) == len(leaves)
    assert [kind.__name__ for kind in leaves if not kind.default_hint] == []


def test_public_names_are_few_and_exist() -> None:
    assert len(relaymesh.__all__) <= 48
    assert all(hasattr(relaymesh, name) for name in relaymesh.__all__)
    assert set(relaymesh.__all__) <= set(dir(relaymesh))
    with pytest.raises(AttributeError, match="module 'relaymesh' has no attribute 'Mash'"):
        _ = relaymesh.Mash  # type: ignore[attr-defined]


def test_who_asks_for_no_mesh_loads_none() -> None:
    """Spark starts processes for every read, and each imports the package."""
    look = "import sys, relaymesh; print(*sorted(name for name in sys.modules if 'relaymesh' in name))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["relaymesh", "relaymesh.errors"]


def test_every_promise_is_held_by_a_test() -> None:
    assert sorted(promise_tests()) == list(range(1, 15))


def test_defaults_are_values_and_not_how_they_are_declared() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert "field(" not in text
    assert "| `default_ttl` | `int` | `3600` |" in text
