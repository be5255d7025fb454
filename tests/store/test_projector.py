"""The projector: behind, but never beyond a bound, and down for good once it failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from relaymesh.errors import StoreLagging
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Accepted
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.store import Projection, Purged, SqliteStore
from relaymesh.store.aging import Cut, PurgedPart

DAY = 86_400_000


class Gate:
    """A store that works only while it is let."""

    def __init__(self) -> None:
        self.applied = 0
        self.batches: list[int] = []
        self.purges: list[int] = []
        self.more = 0
        self.error: Exception | None = None
        self.entered = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def project(self, batch: Sequence[Projection]) -> None:
        self.entered.set()
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        self.batches.append(len(batch))
        self.applied = batch[-1].base + batch[-1].record.count

    def purge(self, now_ms: int, limit: int | None = None) -> Purged:
        self.purges.append(now_ms)
        self.more -= 1
        return Purged(more=self.more >= 0)

    def purge_part(self, cut: Cut, after: int) -> PurgedPart:
        self.entered.set()
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        return PurgedPart(1, 0, 0, 0, 0, after + 1, cut.messages_end > after)


def offers(count: int, events: int = 10) -> list[Projection]:
    envelopes = [Envelope(f"m{i}", "default/s", b"") for i in range(events)]
    return [Projection(i * events, Accepted(events, 1, "default/a", envelopes)) for i in range(count)]


def test_what_is_offered_is_in_the_store_after_a_drain(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    projector = Projector(store, now_ms=lambda: 1)
    for projection in offers(3):
        projector.offer([projection], 10)
    assert projector.drain(10)
    assert (projector.applied, projector.lag, store.counts()) == (30, 0, {"pending": 10 * 3})
    assert projector.close(10)
    store.close()


def test_what_gathers_meanwhile_is_one_transaction_up_to_the_bound() -> None:
    store = Gate()
    store.go.clear()
    projector = Projector(store, now_ms=lambda: 1, batch_events_max=50, linger_s=0)
    first, *rest = offers(12)
    projector.offer([first], 10)
    assert store.entered.wait(10)
    for projection in rest:
        projector.offer([projection], 10)
    store.go.set()
    assert projector.drain(10)
    assert store.batches == [1, 5, 5, 1]
    projector.close(10)


def test_close_commits_what_was_offered() -> None:
    store = Gate()
    projector = Projector(store, now_ms=lambda: 1, linger_s=60)
    projector.offer(offers(1), 10)
    assert projector.close(10)
    assert projector.applied == 10


def test_beyond_its_bound_it_is_lagging_until_it_catches_up() -> None:
    store = Gate()
    store.go.clear()
    projector = Projector(store, now_ms=lambda: 1, lag_max=15, linger_s=0)
    one, two = offers(2)
    projector.offer([one], 10)
    assert not projector.lagging
    projector.offer([two], 10)
    assert (projector.lag, projector.lagging) == (20, True)
    assert not projector.drain(0.01)
    store.go.set()
    assert projector.drain(10)
    assert (projector.lag, projector.lagging) == (0, False)
    projector.close(10)


def made_inline(store: Gate) -> InlineProjector:
    return InlineProjector(store, now_ms=lambda: 1)


def made_threaded(store: Gate) -> Projector:
    return Projector(store, now_ms=lambda: 1, linger_s=0)


@pytest.mark.parametrize("make", [made_inline, made_threaded])
def test_a_store_that_fails_is_down_and_said_so_once(
    make: Callable[[Gate], Projector | InlineProjector], caplog: pytest.LogCaptureFixture
) -> None:
    store = Gate()
    store.error = OSError("disk is gone")
    projector = make(store)
    with caplog.at_level(logging.ERROR):
        for projection in offers(3):
            projector.offer([projection], 10)
        assert not projector.drain(10)
    assert projector.failed is store.error
    assert (projector.lagging, projector.lag, projector.applied) == (True, 30, 0)
    assert [record.message[:29] for record in caplog.records] == ["store is down at sequence 0; "]
    assert not projector.close(10)


def test_it_purges_at_start_and_then_once_a_day() -> None:
    store, now = Gate(), [DAY]
    projector = InlineProjector(store, now_ms=lambda: now[0])
    one, two, three = offers(3)
    projector.offer([one], 10)
    now[0] += DAY - 1
    projector.offer([two], 10)
    assert store.purges == [DAY]
    now[0] += 1
    projector.offer([three], 10)
    assert store.purges == [DAY, 2 * DAY]


def test_a_long_purge_goes_on_in_slices_between_batches() -> None:
    store = Gate()
    store.more = 2
    projector = Projector(store, now_ms=lambda: DAY, linger_s=0)
    projector.offer(offers(1), 10)
    assert projector.drain(10)
    projector.close(10)
    assert store.purges == [DAY] * 3


def test_an_inline_projector_is_never_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    projector = InlineProjector(store, now_ms=lambda: 1)
    for projection in offers(2):
        projector.offer([projection], 10)
        assert (projector.lag, projector.lagging) == (0, False)
    assert projector.applied == 20
    assert projector.drain()
    assert projector.close()
    store.close()


CUT = Cut(3, 3, None)


def test_a_window_is_purged_between_two_batches_while_its_caller_waits() -> None:
    store = Gate()
    projector = Projector(store, now_ms=lambda: 1)
    projector.offer(offers(1), 10)
    assert projector.purge_part(CUT, 2) == PurgedPart(1, 0, 0, 0, 0, 3, True)
    assert projector.drain(10)
    assert projector.close(10)
    with pytest.raises(StoreLagging, match="closes"):
        projector.purge_part(CUT, 0)


def test_a_purge_that_fails_is_its_callers_and_the_store_goes_on() -> None:
    store = Gate()
    projector = Projector(store, now_ms=lambda: 1)
    store.error = OSError("no room")
    with pytest.raises(OSError, match="no room"):
        projector.purge_part(CUT, 0)
    store.error = None
    projector.offer(offers(1), 10)
    assert projector.drain(10)
    assert (projector.failed, store.batches) == (None, [1])
    assert projector.close(10)


def test_a_caller_whose_projector_closes_hears_of_it() -> None:
    store = Gate()
    projector = Projector(store, now_ms=lambda: 1, linger_s=0)
    store.go.clear()
    projector.offer(offers(1), 10)
    assert store.entered.wait(10)
    heard: list[BaseException] = []

    def ask() -> None:
        try:
            projector.purge_part(CUT, 0)
            projector.purge_part(CUT, 0)
        except StoreLagging as error:
            heard.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    store.error = RuntimeError("the store breaks")
    store.go.set()
    asking.join(10)
    assert len(heard) == 1
    projector.close(10)
