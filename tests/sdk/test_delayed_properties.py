"""The six properties of delayed delivery, each for any delays Hypothesis thinks of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh import MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.testing import ManualMesh, MemoryDisk

DELAYS = st.integers(min_value=1, max_value=7_200_000)
MANY = st.lists(DELAYS, min_size=1, max_size=8)
EXAMPLES = settings(max_examples=100, deadline=None)


def agents(mesh: ManualMesh) -> tuple[Any, Any]:
    return mesh.agent("planner"), mesh.agent("coder")


@EXAMPLES
@given(delays=MANY, look=st.integers(min_value=0, max_value=7_200_000))
def test_property_1_a_delayed_message_is_not_delivered_early(delays: list[int], look: int) -> None:
    """Whenever one looks, only messages whose time has come are there."""
    with ManualMesh() as mesh:
        planner, coder = agents(mesh)
        for delay in delays:
            planner.send("coder", delay, delay_ms=delay, ttl=0)
        mesh.advance(look / 1000)
        seen = [each.content for each in coder.receive_many(100)]
        assert sorted(seen) == sorted(delay for delay in delays if delay <= look)
        assert mesh.delayed_count("coder") == len(delays) - len(seen)


@EXAMPLES
@given(delays=MANY)
def test_property_2_a_delayed_message_is_delivered_in_the_end(delays: list[int]) -> None:
    """At its time, to the millisecond, to somebody who waits for it."""
    with ManualMesh() as mesh:
        planner, coder = agents(mesh)
        sent_at = mesh.now
        for delay in delays:
            planner.send("coder", delay, delay_ms=delay, ttl=0)
        for delay in sorted(delays):
            delivery = coder.receive(timeout=7200)
            assert delivery.content == delay
            assert mesh.now - sent_at == timedelta(milliseconds=delay)
            delivery.ack()


@EXAMPLES
@given(
    batch=st.lists(st.tuples(st.integers(1, 5), st.sampled_from([None, "k", "l"])), min_size=1, max_size=8),
    zero=st.sampled_from([0, 0.0, None]),
)
def test_property_3_no_delay_is_the_same_as_not_mentioning_it(
    batch: list[tuple[int, str | None]], zero: float | None
) -> None:
    def run(fields: dict[str, Any]) -> list[Any]:
        with ManualMesh() as mesh:
            planner, coder = agents(mesh)
            receipts = [
                planner.send("coder", n, priority=priority, key=key, **fields)
                for n, (priority, key) in enumerate(batch)
            ]
            got = [(each.content, each.attempt, each.sequence) for each in coder.receive_many(100)]
            return [*receipts, *got]

    assert run({"delay_ms": zero}) == run({})


@EXAMPLES
@given(delay=st.one_of(st.integers(max_value=-1), st.floats(max_value=-1e-9)))
def test_property_4_a_negative_delay_counts_as_none(delay: float) -> None:
    with ManualMesh() as mesh:
        planner, coder = agents(mesh)
        receipt = planner.send("coder", 1, delay_ms=delay)
        assert receipt.scheduled_at is None
        assert "negative" in receipt.notes[0]
        assert len(coder.receive_many(10)) == 1


@EXAMPLES
@given(delay=DELAYS, count=st.integers(2, 10), gaps=st.lists(st.integers(0, 1000), min_size=10, max_size=10))
def test_property_5_equal_times_keep_the_order_of_sending(delay: int, count: int, gaps: list[int]) -> None:
    """Also when they were sent at different times, so that their delays differ."""
    with ManualMesh() as mesh:
        planner, coder = agents(mesh)
        due = delay + sum(gaps)
        for n, gap in zip(range(count), gaps, strict=False):
            planner.send("coder", n, delay_ms=due, ttl=0)
            mesh.advance(gap / 1000)
            due -= gap
        mesh.advance(due / 1000)
        assert [each.content for each in coder.receive_many(100)] == list(range(count))


SMALL = MeshSettings(delayed_on_stop="deliver", journal=JournalSettings(allocate_bytes=0))


@EXAMPLES
@given(delays=MANY, passed=st.integers(0, 7_200_000))
def test_property_6_a_graceful_stop_delivers_what_is_delayed(delays: list[int], passed: int) -> None:
    """With `deliver`: every one is in its recipient's queue before the stop is complete, in send order."""
    disk = MemoryDisk()
    with ManualMesh(disk=disk, settings=SMALL) as mesh:
        planner, coder = agents(mesh)
        for n, delay in enumerate(delays):
            planner.send("coder", n, delay_ms=delay, ttl=0)
        mesh.advance(passed / 1000)
        on_time = mesh.delayed_count("coder")
    with ManualMesh(disk=disk, settings=SMALL, clock=mesh.clock) as mesh:
        coder = mesh.agent("coder")
        assert mesh.delayed_count() == 0
        seen = [each.content for each in coder.receive_many(100)]
        assert sorted(seen) == list(range(len(delays)))
        if on_time == len(delays):
            assert seen == list(range(len(delays)))
