"""The calls for threads are those for an event loop."""

from __future__ import annotations

import pytest

from tests.project.twins import SDK, TWINS, twin_of


@pytest.mark.parametrize("source", TWINS)
def test_a_twin_is_what_its_source_says(source: str) -> None:
    written = (SDK / TWINS[source]).read_text(encoding="utf-8")
    assert written == twin_of(SDK / source), "write it again: make twins"
