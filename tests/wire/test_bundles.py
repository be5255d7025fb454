"""Messages of several frames."""

from __future__ import annotations

from collections import deque

import pytest

from relaymesh.wire import frames
from relaymesh.wire.bundles import bundle, take, unbundle

PARTS = [frames.encode(frames.Ping(ref)) for ref in range(40)]


@pytest.mark.parametrize("count", [2, 15, 16, 40])
def test_frames_come_out_as_they_went_in(count: int) -> None:
    assert [bytes(part) for part in unbundle(bundle(PARTS[:count]))] == PARTS[:count]


def test_a_frame_by_itself_is_no_bundle() -> None:
    assert bundle(PARTS[:1]) == PARTS[0]
    assert list(unbundle(PARTS[0])) == [PARTS[0]]


def test_an_array_of_any_length_is_a_bundle() -> None:
    as_array32 = b"\xdd\x00\x00\x00\x02" + PARTS[0] + PARTS[1]
    assert [bytes(part) for part in unbundle(as_array32)] == PARTS[:2]
    assert list(unbundle(b"\x90")) == []


def test_what_fits_leaves_together_and_in_order() -> None:
    waiting = deque([b"x" * 10, b"y" * 10, b"z" * 10])
    assert take(waiting, 25) == [b"x" * 10, b"y" * 10]
    assert take(waiting, 25) == [b"z" * 10]


def test_a_frame_beyond_the_bound_leaves_by_itself() -> None:
    waiting = deque([b"x" * 100, b"y"])
    assert take(waiting, 25) == [b"x" * 100]
    assert take(waiting, 0) == [b"y"], "a bound of nothing bundles nothing"
