"""A served node is not stopped by the garbage collector for what one client leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from relaymesh.server.garbage import collected_seldom, leave_out_what_exists

NEW_OBJECTS = 200_000


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """One item for each full collection."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_objects_of_one_request_bring_about_no_full_collection(full_collections: list[int]) -> None:
    with collected_seldom():
        kept = [[number] for number in range(NEW_OBJECTS)]
        assert full_collections == []
    assert len(kept) == NEW_OBJECTS


def test_what_was_restored_is_not_visited() -> None:
    with collected_seldom():
        state = [[number] for number in range(1_000)]
        before = gc.get_freeze_count()
        leave_out_what_exists()
        assert gc.get_freeze_count() >= before + len(state)


def test_the_process_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    with collected_seldom():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
