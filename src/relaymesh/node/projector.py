"""The projector: writes synced records into the store, after everything else.

The committer passes synced records to it and continues at once. The projector's thread collects offers for a
moment and writes them as one transaction: a message that was accepted and settled meanwhile is then one row
written once, at about half the cost of two.

Only admission waits for the store, and only when the projector is so far behind that the ids it has not yet
written would fill the memory: `lagging`. A store that failed once stays down until a restart; the journal
has everything, and a restart continues from `applied`.

The thread shares the interpreter with the caller's threads. Inside SQLite it releases the interpreter lock.
Building rows is plain bytecode, which yields after each switch interval. One call that binds the values of a
chunk takes a fraction of a millisecond.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from relaymesh.errors import StoreLagging
from relaymesh.store import Projection, Purged
from relaymesh.store.aging import Cut, PurgedPart

_log = logging.getLogger(__name__)

BATCH_EVENTS_MAX = 20_000
LAG_EVENTS_MAX = 500_000
LINGER_S = 0.05
PURGE_EVERY_MS = 86_400_000
PURGE_ROWS_MAX = 5_000
PURGE_CHECK_S = 60.0


class Store(Protocol):
    """What the projector needs of a store."""

    @property
    def applied(self) -> int: ...
    def project(self, batch: Sequence[Projection]) -> None: ...
    def purge(self, now_ms: int, limit: int | None = None) -> Purged: ...
    def purge_part(self, cut: Cut, after: int) -> PurgedPart: ...


class _AskedPurge(NamedTuple):
    """A window that a caller in another thread wants to purge; the caller waits for it."""

    cut: Cut
    after: int
    done: Future[PurgedPart]


def _down() -> StoreLagging:
    return StoreLagging("the store is down, or closes: nothing can be purged", hint="see relaymesh doctor")


class _Progress:
    """The state of both projectors: how far the store is, whether it works, and when it was last purged."""

    def __init__(self, store: Store, now_ms: Callable[[], int], lag_max: int, purge_every_ms: int) -> None:
        self._store = store
        self._now_ms = now_ms
        self._purge_every_ms = purge_every_ms
        self._purge_at_ms = 0
        self._done = 0
        self._offered = 0
        self.lag_max = lag_max
        self.failed: BaseException | None = None

    @property
    def applied(self) -> int:
        """The next sequence to project; what lies before it is committed in the store."""
        return self._store.applied

    @property
    def lag(self) -> int:
        """Events offered and not yet committed in the store."""
        return self._offered - self._done

    @property
    def lagging(self) -> bool:
        """Whether to refuse sends: the store is too far behind, or has failed."""
        return self.failed is not None or self._offered - self._done > self.lag_max

    def _project(self, batch: Sequence[Projection], events: int) -> None:
        try:
            self._store.project(batch)
        except BaseException as error:
            self._fail(error)
        else:
            self._done += events

    def _purge_if_due(self) -> bool:
        """Purge a slice. Returns whether more can be purged now."""
        now_ms = self._now_ms()
        if now_ms < self._purge_at_ms:
            return False
        try:
            purged = self._store.purge(now_ms, PURGE_ROWS_MAX)
        except BaseException as error:
            self._fail(error)
            return False
        if not purged.more:
            self._purge_at_ms = now_ms + self._purge_every_ms
        return purged.more

    def _fail(self, error: BaseException) -> None:
        self.failed = error
        _log.error(
            "store is down at sequence %d; sends are refused until a restart. "
            "Nothing is lost: the journal has it. See relaymesh doctor",
            self._store.applied,
            exc_info=error,
        )


class Projector(_Progress):
    """Projects in a thread of its own, started at once."""

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], int],
        lag_max: int = LAG_EVENTS_MAX,
        batch_events_max: int = BATCH_EVENTS_MAX,
        linger_s: float = LINGER_S,
        purge_every_ms: int = PURGE_EVERY_MS,
    ) -> None:
        """`now_ms` is mesh time, for purging.

        `lag_max`: events the store may be behind before sends are refused. Raising it by a million
        costs up to 500 MB, since ids and envelopes stay in memory until they are stored.
        `batch_events_max`: events of one transaction. Raising it writes fewer rows twice and makes
        `drain` and `close` wait longer.
        `linger_s`: how long the first offer of a batch waits for others; queries see the tables later by
        that much.
        """
        super().__init__(store, now_ms, lag_max, purge_every_ms)
        self._batch_events_max = batch_events_max
        self._linger_s = linger_s
        self._queue: deque[tuple[Sequence[Projection], int]] = deque()
        self._queued = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._draining = 0
        self._asked: deque[_AskedPurge] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relaymesh-projector", daemon=True)
        self._thread.start()

    def offer(self, projections: Sequence[Projection], events: int) -> None:
        """Take synced records, in order. Never blocks and never raises: see `lagging` and `failed`."""
        with self._lock:
            self._offered += events
            if self.failed is not None:
                return
            was = self._queued
            self._queue.append((projections, events))
            self._queued += events
            # Wake the thread only for the offer that it waits for: the first one, and the one that fills a
            # batch.
            if was == 0 or was < self._batch_events_max <= self._queued:
                self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until everything offered so far is committed. False when the time is over, or the store has
        failed."""
        with self._lock:
            wanted = self._offered
            self._draining += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self.failed is not None or self._done >= wanted, timeout)
            finally:
                self._draining -= 1
            return self.failed is None and self._done >= wanted

    def purge_part(self, cut: Cut, after: int) -> PurgedPart:
        """Purge a window between two batches, and wait for it. Raises `StoreLagging`."""
        asked = _AskedPurge(cut, after, Future())
        with self._lock:
            if self.failed is not None or self._closing:
                raise _down()
            self._asked.append(asked)
            self._changed.notify_all()
        return asked.done.result()

    def close(self, timeout: float | None = None) -> bool:
        """Commit what was offered and end the thread. The store stays open: its owner closes it."""
        with self._lock:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive() and self.failed is None

    # -- the thread

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with self._lock:
                self._closing = True
                while self._asked:
                    self._asked.popleft().done.set_exception(_down())

    def _purge_asked(self) -> None:
        """Purge one requested window, if any. If it fails, nothing of it was removed, and the caller gets
        the error."""
        if not self._asked:
            return
        asked = self._asked.popleft()
        try:
            asked.done.set_result(self._store.purge_part(asked.cut, asked.after))
        except Exception as error:
            asked.done.set_exception(error)

    def _work(self) -> None:
        while self.failed is None:
            more = self._purge_if_due()
            self._purge_asked()
            batch, events = self._next(0.0 if more else PURGE_CHECK_S)
            if batch:
                self._project(batch, events)
                with self._lock:
                    self._changed.notify_all()
            elif self._closing:
                return
        with self._lock:
            self._queue.clear()
            self._queued = 0
            self._changed.notify_all()

    def _next(self, wait_s: float) -> tuple[list[Projection], int]:
        """Collect the next batch; an empty one when nothing came within the time."""
        with self._lock:
            self._changed.wait_for(lambda: self._queued or self._asked or self._closing, wait_s)
            if self._queued and self._linger_s:
                self._changed.wait_for(self._is_full_or_urgent, self._linger_s)
            batch: list[Projection] = []
            events = 0
            while self._queue and (not batch or events + self._queue[0][1] <= self._batch_events_max):
                projections, count = self._queue.popleft()
                batch += projections
                events += count
            self._queued -= events
            return batch, events

    def _is_full_or_urgent(self) -> bool:
        return self._queued >= self._batch_events_max or self._draining > 0 or self._closing


class InlineProjector(_Progress):
    """The same without a thread, for tests and the simulator: an offer is committed when it returns."""

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], int],
        lag_max: int = LAG_EVENTS_MAX,
        purge_every_ms: int = PURGE_EVERY_MS,
    ) -> None:
        super().__init__(store, now_ms, lag_max, purge_every_ms)
        self._purge_all()

    def offer(self, projections: Sequence[Projection], events: int) -> None:
        self._offered += events
        if self.failed is None:
            self._project(projections, events)
            self._purge_all()

    def drain(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - there is nothing to wait for
        return self.failed is None

    def purge_part(self, cut: Cut, after: int) -> PurgedPart:
        if self.failed is not None:
            raise _down()
        return self._store.purge_part(cut, after)

    def close(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return self.failed is None

    def _purge_all(self) -> None:
        while self.failed is None and self._purge_if_due():
            pass
