"""The reference says what the source says, and leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import relaymesh
from relaymesh import errors
from tests.project.reference import PAGES, promise_tests
from tests.project.tree import ROOT


@pytest.mark.parametrize("path", PAGES)
def test_the_reference_is_up_to_date(path: str) -> None:
    written = (ROOT / path).read_text(encoding="utf-8")
    assert written == PAGES[path](), f"{path} is stale: run make docs"


def test_every_setting_says_what_it_does() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", PAGES["docs/reference/settings.md"](), re.MULTILINE)
    assert len(rows) > 30
    assert [name for name, words in rows if not words.strip()] == []


def test_every_error_has_a_code_of_its_own_and_a_hint() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    coded = [kind for kind in kinds if issubclass(kind, errors.MeshError) and "code" in vars(kind)]
    leaves = [kind for kind in coded if kind is not errors.MeshError]
    assert len({kind.code for kind in leaves}) == len(leaves)
    assert [kind.__name__ for kind in leaves if not kind.default_hint] == []


def test_public_names_are_few_and_exist() -> None:
    assert len(relaymesh.__all__) <= 32
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
