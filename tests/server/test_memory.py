"""A served node is not stopped by the garbage collector, and gives large blocks back to the system."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from relaymesh.server.memory import collected_seldom, leave_out_what_exists

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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_large_blocks_go_back_to_the_system_when_they_are_freed() -> None:
    code = """
import re
from relaymesh.server.memory import map_large_blocks
assert map_large_blocks()
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
before = resident()
blocks, pins = [], []
for _ in range(40):
    blocks.append(bytes([1]) * 4_000_000)
    pins.append(bytes(100_000))  # small ones that stay in between
held = resident()
blocks.clear()
print(before, held, resident())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    before, held, after = map(int, done.stdout.split())
    assert held - before > 140
    assert after - before < 40
