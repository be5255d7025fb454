"""Each story in `stories` is what the kernel does, line by line.

    RELAYMESH_REWRITE_STORIES=1 pytest tests/kernel/test_stories.py

writes them as the kernel tells them now. The difference is the change of behaviour: read it, then commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kernel.story import VERBS, told

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_is_what_the_kernel_does(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    now = told(written)
    if os.environ.get("RELAYMESH_REWRITE_STORIES"):
        path.write_text(now, encoding="utf-8")
        return
    assert now.splitlines() == written.splitlines()


def test_the_stories_are_a_dozen_and_use_every_verb() -> None:
    assert len(STORIES) >= 12
    lines = [line for path in STORIES for line in path.read_text(encoding="utf-8").splitlines()]
    assert {line.split()[1] for line in lines if line.startswith("> ")} == {*VERBS, "restart", "show"}


def test_a_story_that_is_not_what_the_kernel_does_is_noticed() -> None:
    right = told("> open coder\n> send coder m1\n")
    assert told(right) == right
    assert told(right.replace("m1: #", "m1: #9")) == right
    assert "Accepted" in right


def test_a_restart_in_a_story_replays_the_records_alone() -> None:
    assert "receipt of m1: #2, a duplicate" in told(
        "> open coder\n> send coder m1\n> restart\n> send coder m1\n"
    )
