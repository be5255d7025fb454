"""Every error says what happened in its docstring, which is its row in the reference."""

from __future__ import annotations

import inspect
import re

import pytest

from relaymesh import errors
from tests.project.reference import PAGES

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_has_a_docstring_of_its_own_and_a_row_that_is_this_docstring(
    cls: type[Exception],
) -> None:
    own = vars(cls).get("__doc__")
    assert own, f"{cls.__name__} has no docstring"
    said = re.escape(" ".join(inspect.cleandoc(own).split()))
    page = PAGES["docs/reference/errors.md"]()
    assert re.search(rf"^\| .*`{cls.__name__}` \| .*\| {said} \| ", page, re.MULTILINE)


def test_no_error_is_missing_from_the_tree() -> None:
    defined = {
        name
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, Exception) and cls.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)
    shown = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))
    assert shown == defined - {"MeshError", "Empty"}
