"""However records are batched, the tables say the same, and what a dumb model says."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.store import SqliteStore, rebuild
from relaymesh.store.queries import CHUNKS
from tests.store.stream import OPERATIONS, Stream, stored, whole

steps = st.lists(
    st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 100), st.integers(1, 30)), max_size=60
)


def check(stream: Stream, directory: Path) -> None:
    """All at once, one by one, in between, and rebuilt: the same rows, and those of the model."""
    expected = stream.tables()
    once, single, some, anew = (directory / name for name in ("once", "single", "some", "anew"))
    projected(once, stream, len(stream.projections) or 1)
    projected(single, stream, 1)
    projected(some, stream, 7)
    rebuild(anew, iter(stream.projections))
    assert stored(str(once), expected) == expected
    assert whole(str(once)) == whole(str(single)) == whole(str(some)) == whole(str(anew))


def streamed(choices: list[tuple[int, int, int]]) -> Stream:
    stream = Stream()
    for operation, choice, size in choices:
        stream.step(operation, choice, size)
    return stream


def projected(path: Path, stream: Stream, batch: int) -> None:
    store = SqliteStore(path)
    for start in range(0, len(stream.projections), batch):
        store.project(stream.projections[start : start + batch])
    assert store.applied == stream.sequence
    store.close()


@settings(max_examples=80, deadline=None)
@given(steps)
def test_all_at_once_one_by_one_and_rebuilt_agree_with_a_dumb_model(
    choices: list[tuple[int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check(streamed(choices), Path(directory))


@pytest.mark.parametrize("seed", range(12))
def test_long_streams_in_which_everything_happens_agree_too(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    stream = streamed([(dice.randrange(100), dice.randrange(100), dice.randrange(1, 30)) for _ in range(200)])
    kinds = {type(projection.record) for projection in stream.projections}
    assert len(kinds) == len(set(OPERATIONS)) - 2  # nack and release are one kind of record; so are accepts
    check(stream, tmp_path)


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 60))
def test_what_is_projected_again_changes_nothing(choices: list[tuple[int, int, int]], cut: int) -> None:
    stream = streamed(choices)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store.db"
        store = SqliteStore(path)
        store.project(stream.projections[:cut])
        store.project(stream.projections)
        store.project(stream.projections)
        store.close()
        expected = stream.tables()
        assert stored(str(path), expected) == expected


def test_more_rows_than_one_statement_holds_all_arrive(tmp_path: Path) -> None:
    stream = Stream()
    for operation in ("accept", "accept_alike", "publish"):
        stream.step(OPERATIONS.index(operation), 2, 1_234)
    stream.step(OPERATIONS.index("ack"), 0, 777)
    expected = stream.tables()
    projected(tmp_path / "store.db", stream, 2)
    assert stored(str(tmp_path / "store.db"), expected) == expected


def test_every_statement_is_kept_prepared(tmp_path: Path) -> None:
    stream = Stream()
    for operation in ("accept", "publish", "nack", "die"):
        stream.step(OPERATIONS.index(operation), 2, 1_234)
    for _ in range(max(CHUNKS)):
        stream.step(OPERATIONS.index("accept_alike"), 1, 2)
    store = SqliteStore(tmp_path / "store.db")
    store.project(stream.projections)
    assert store._writer.cache_stats()["too_big"] == 0
    store.close()
