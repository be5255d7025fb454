"""The core of a node: kernel, lock and committer, without an event loop.

A command is decided under the lock; no I/O is done under it. The command's records join those that wait to
be written. A caller that needs them durable writes and syncs for all waiting callers at once:

    submit(command)      decide; the records wait                          (any thread)
    reach(needs)         come back when the marks have passed              (callers' threads)
    write(), sync()      move the marks, then hand over what waited        (one thread each at a time)
    write_light()        the same for a few numbers, without waiting     (an event loop)

`written` and `synced` are the marks: every event below `written` is written, every event below `synced` is
durable. A receipt, a delivery or a refusal leaves only after its marks have passed. After a failed write or
sync the core is dead: every waiting call, and every later call, gets `JournalPoisoned`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from relaymesh.errors import Closed, JournalPoisoned, MeshError
from relaymesh.kernel.commands import Forgo, Receive
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.query import TaskRevision
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.request import Command, Result
from relaymesh.kernel.snapshot import Snapshot
from relaymesh.kernel.step import Delivered, Step
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.clock import Latch, MeshTime
from relaymesh.node.light import LIGHT_BYTES_MAX, are_light
from relaymesh.node.release import (
    Marks,
    Ticket,
    all_needs,
    delivery_needs,
    look_needs,
    may_leave,
    result_needs,
)
from relaymesh.node.sent import log_sent
from relaymesh.node.step_log import log_not_undone, log_step
from relaymesh.node.watchers import Watchers, is_news
from relaymesh.store.projection import Projection
from relaymesh.wire.records import payload_of

Seen = TypeVar("Seen")
STOP_BROKEN_S = 5.0
"""How long a broken kernel waits for a running sync before it ends without a sync of its own."""


class JournalPort(Protocol):
    """What the core needs of a journal: `relaymesh.journal.Writer`, or `NullJournal`."""

    def append(self, payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None: ...

    def sync(self) -> int: ...

    def room(self, bytes_needed: int = 0) -> bool: ...

    @property
    def at_hand(self) -> int: ...

    def reserve_for_checkpoint(self, bytes_expected: int) -> None: ...

    def close(self) -> None: ...

    @property
    def synced(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...


class Receiver(msgspec.Struct, eq=False):
    """What this process does with the deliveries for one waiter: `release` is called once they may leave. The
    kernel has only the waiter, which is a value. See `Core.receive`.
    """

    waiter: Waiter
    needs: Marks = (0, 0)
    deliveries: Deliveries | None = None
    error: MeshError | None = None
    latch: Latch | None = None

    def release(self, error: MeshError | None) -> None:
        self.error = error
        if self.latch is not None:
            self.latch.open()


class Core:
    """One partition of a node. Thread-safe; see the module for who calls what."""

    def __init__(
        self,
        kernel: Kernel,
        journal: JournalPort,
        mesh_time: MeshTime,
        *,
        waits_for_sync: bool = True,
        project: Callable[[list[Projection], int], None] | None = None,
    ) -> None:
        self.kernel = kernel
        self.journal = journal
        self.time = mesh_time
        self.waits_for_sync = waits_for_sync
        """False when a receipt leaves after the write (`batched`, `memory`)."""
        self.written = self.synced = self.through = kernel.state.sequence
        """Every event below `through` was decided. No event of a failed step lies below it."""
        self.failure: MeshError | None = None
        self.on_release: Callable[[list[tuple[Ticket, MeshError | None]]], None] = _release_here
        self.on_timer: Callable[[], None] = _nothing
        """Called when the timer must fire earlier than `timer_at`."""
        self.timer_at = 0
        self.on_due: Callable[[int], None] = _nothing_now
        """Called without the lock before a step at or after `timer_at`: it may let leases expire."""
        self.on_ready: Callable[[Step], None] = _nothing_now
        """Called without the lock after a step that made steps of tasks ready: it sends them."""
        self.idle_sync_asked = False
        """Something was written whose sync no caller waits for; `on_timer` was called for it."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self.forked = False
        """Whether this is a forked child's copy: its threads are gone, and its locks may be held forever."""
        _cores.add(self)
        self._records: list[AnyRecord] = []
        self._encoded: list[bytes] = []
        self._projections: list[Projection] = []
        self._unprojected: deque[tuple[int, list[Projection], int]] = deque()
        self._project = project
        if project is not None:
            kernel.state.board.collect()
        else:
            kernel.state.board.moved = None
        self._tickets: list[Ticket] = []
        self._receivers: dict[Waiter, Receiver] = {}
        """By waiter, those that were not served yet."""
        self._room_latches: list[Callable[[], None]] = []
        self._watchers = Watchers()

    # -- deciding -----------------------------------------------------------------------------

    def submit(self, command: Command[Any], *, send_ready: bool = True) -> Step:  # noqa: C901 - hot: one call
        """Decide a command. The records are not durable yet: `commit` the step, or wait with a ticket.

        `send_ready`: also send the steps of tasks that it made ready; else the caller does.
        """
        if self.failure is not None:
            self._refuse()
        now = self.time.now()
        if now >= self.timer_at:
            self.on_due(now)
        kernel = self.kernel
        try:
            with self._lock:
                if self.failure is not None:  # it arrived while this thread waited
                    self._refuse()
                step = kernel.step(command, now)
                if step.records:
                    self._collect(step)
                if step.delivered is not None:
                    self._tickets.extend([self._addressed(delivered) for delivered in step.delivered])
                if step.changed is not None or (step.freed and self._room_latches):
                    self._tell(step)
                next_at = kernel.next_event_at
                if next_at < self.timer_at:
                    self.timer_at = next_at  # so that `on_due` comes first, even if housekeeping still sleeps
                    self.on_timer()
        except BaseException:
            if kernel.broken:
                self._stop_broken()
            raise
        if step.ended is not None or step.arrived is not None or step.moved is not None:
            log_step(step)
        if step.not_undone is not None:
            log_not_undone(step.not_undone)
        if step.sent is not None:
            log_sent(step.sent)
        if send_ready and (step.ready is not None or step.owes):
            self.on_ready(step)
        return step

    def receive(self, mailbox: str, receiver: Receiver, *, wait: bool = True) -> Step:
        """Decide a receive. The receiver is released once, now or when a later step serves its waiter."""
        waiter = receiver.waiter
        self._receivers[waiter] = receiver
        try:
            step = self.submit(Receive(mailbox, waiter, wait))
        except BaseException:
            self._receivers.pop(waiter, None)
            raise
        if not step.result and (not wait or step.error is not None):
            self._receivers.pop(waiter, None)
        return step

    def forgo(self, mailbox: str, receiver: Receiver) -> Step:
        """The receiver stops waiting. Returns whether it still waited: then it is not released."""
        step = self.submit(Forgo(mailbox, receiver.waiter))
        if step.result:
            self._receivers.pop(receiver.waiter, None)
        return step

    def _addressed(self, delivered: Delivered) -> Receiver:
        receiver = self._receivers.pop(delivered.waiter)
        receiver.deliveries = delivered.deliveries
        receiver.needs = delivery_needs(delivered, waits_for_sync=self.waits_for_sync)
        return receiver

    def _tell(self, step: Step) -> None:
        """Wake the senders that wait for room, and the callers that watch tasks. The latter are woken once
        the change may leave, so that they need not wait twice.
        """
        if step.freed:
            latches, self._room_latches = self._room_latches, []
            for open_latch in latches:
                open_latch()
        watching: list[Ticket] = []
        for task in step.changed or ():
            if task in self._watchers:
                watching += self._watchers.take(task, self.kernel.look(TaskRevision(task)))
        if watching:
            self._release_after(step, watching)

    def _release_after(self, step: Step, tickets: list[Ticket]) -> None:
        """Release them with the result of the step: its caller moves the marks."""
        needs = result_needs(step, waits_for_sync=self.waits_for_sync)
        if self.passed(needs):
            self.on_release([(ticket, None) for ticket in tickets])
            return
        for ticket in tickets:
            ticket.needs = needs
        self._tickets += tickets

    def _stop_broken(self) -> None:
        """The kernel raised in the middle of a step. Write what was decided before, then fail every call.

        If this thread or a hanging disk is in the middle of a sync, write nothing: only fail the waiting
        calls.
        """
        if self._syncing.acquire(timeout=STOP_BROKEN_S):
            try:
                self.write()
                self._sync()
            except MeshError:
                return  # the core is already dead, and its waiting calls have failed
            finally:
                self._syncing.release()
        self.shut(self.kernel.failure)

    def _collect(self, step: Step) -> None:
        self._records.extend(step.records)
        self._encoded.extend(step.encoded)
        self.through = self.kernel.state.sequence
        if self._project is not None:
            base = step.base
            projections = self._projections
            if len(step.records) == 1:
                projections.append(Projection(base, step.records[0], step.details[0]))
            else:
                for record, detail in zip(step.records, step.details, strict=True):
                    projections.append(Projection(base, record, detail))
                    base += record.count

    def when_task_moves(self, task: str, seen: int, ticket: Ticket) -> bool:
        """Release the ticket once the task ends or its revision is not `seen`. False: this is already the
        case."""
        with self._lock:
            if self.failure is not None:
                self._refuse()
            waits = not is_news(self.kernel.look(TaskRevision(task)), seen)
            if waits:
                self._watchers.add(task, seen, ticket)
            return waits

    def watch_no_longer(self, task: str, ticket: Ticket) -> None:
        with self._lock:
            self._watchers.remove(task, ticket)

    def when_room(self, open_latch: Callable[[], None]) -> None:
        """Call back once, when a mailbox has got room."""
        with self._lock:
            if self.failure is not None:
                self._refuse()
            self._room_latches.append(open_latch)

    def read(self, look: Callable[[Kernel], Seen]) -> Seen:
        """Read the state. What is read may not be durable yet: see `observe`."""
        if self.failure is not None:
            self._refuse()
        with self._lock:
            return look(self.kernel)

    def observe(self, look: Callable[[Kernel], Seen]) -> tuple[Seen, Marks]:
        """Read the state, and return the marks for which the answer must wait, so that a power loss cannot
        revert it.
        """
        if self.failure is not None:
            self._refuse()
        with self._lock:
            return look(self.kernel), look_needs(self.through, waits_for_sync=self.waits_for_sync)

    # -- committing ---------------------------------------------------------------------------

    def commit(self, step: Step, *, durable: bool = False) -> Any:
        """Wait until the step's result may leave, then return it or raise its error."""
        self.reach(all_needs(step, waits_for_sync=self.waits_for_sync, durable=durable))
        if step.error is not None:
            raise step.error
        return step.result

    def execute(self, command: Command[Result], *, durable: bool = False) -> Result:
        """Decide, commit and answer, in the caller's thread."""
        result: Result = self.commit(self.submit(command), durable=durable)
        return result

    def reach(self, needs: Marks) -> None:
        """Return when the marks have passed. The first caller writes and syncs for all that wait."""
        written, synced = needs
        while self.synced < synced:
            with self._syncing:  # before the lock of the write, so that callers wait in one queue, not in two
                if self.synced < synced:
                    self._write_through(synced)
                    self._sync()
        if self.written < written:
            self._write_through(written)
        if written > self.synced and not self.idle_sync_asked:
            self.ask_idle_sync()

    def _write_through(self, written: int) -> None:
        while self.written < written:
            with self._writing:
                if self.written < written:
                    self._write()

    def ask_idle_sync(self) -> None:
        """Schedule a sync of what is written although no caller waits for it."""
        if not self.idle_sync_asked:
            self.idle_sync_asked = True
            self.on_timer()

    def arm_timer(self) -> int:
        """Call `on_timer` for everything that is due before the next event. Returns the mesh time."""
        with self._lock:
            self.timer_at = self.kernel.next_event_at
            return self.timer_at

    def write(self) -> None:
        """Write what waits to be written."""
        with self._writing:
            self._write()

    def write_light(self) -> bool:
        """Write the waiting records, if that needs no wait for the disk or for another thread. Returns
        whether it wrote.

        Grants and acks can be written this way unless a sync runs: they are a few kilobytes, copied into
        pages that are in memory. Two switches between threads would cost several times that.
        """
        if self._syncing.locked() or not self._writing.acquire(blocking=False):
            return False
        try:
            if self.failure is not None:
                self._refuse()
            with self._lock:
                if not are_light(self._records) or self.journal.at_hand < LIGHT_BYTES_MAX:
                    return False
                taken = self._take()
            self._write_frame(*taken)
            return True
        finally:
            self._writing.release()

    def sync(self) -> None:
        """Write what waits, and sync all that is written."""
        self.write()
        self.sync_written()

    def sync_written(self) -> None:
        """Sync all that is written."""
        with self._syncing:
            self._sync()

    def _write(self) -> None:
        if self.failure is not None:
            self._refuse()
        with self._lock:
            taken = self._take()
        self._write_frame(*taken)

    def _take(self) -> tuple[list[bytes], list[Projection], int]:
        """Take the records that wait to be written. Returns them with the sequence after them. Rows of tasks
        and steps are made here: a row that several decisions of a frame changed is made once.
        """
        encoded, self._encoded = self._encoded, []
        self._records = []
        projections, self._projections = self._projections, []
        board = self.kernel.state.board
        if board.moved and projections:
            tasks, steps = board.take_rows()
            projections[-1] = projections[-1]._replace(tasks=tasks, steps=steps)
        return encoded, projections, self.through

    def _write_frame(self, encoded: list[bytes], projections: list[Projection], through: int) -> None:
        if encoded:
            events = through - self.written
            try:
                before, payload = payload_of(encoded)
                self.journal.append(payload, events, self.time.wall_ns(), before)
            except Exception as error:
                raise self._die(error) from error
            except BaseException as error:
                self._die(error)
                raise
            if projections:
                self._unprojected.append((through, projections, events))
            self.written = through
        if self._tickets:
            self._hand_over()

    def _sync(self) -> None:
        if self.failure is not None:
            self._refuse()
        try:
            self.synced = self.journal.sync()
        except Exception as error:
            raise self._die(error) from error
        except BaseException as error:
            self._die(error)
            raise
        unprojected = self._unprojected
        while unprojected and unprojected[0][0] <= self.synced:
            _, projections, events = unprojected.popleft()
            if self._project is not None:
                self._project(projections, events)
        if self._tickets:
            self._hand_over()

    @property
    def epoch(self) -> int:
        return self.kernel.state.epoch

    @property
    def unsynced(self) -> int:
        """Events written but not yet durable, or not yet written."""
        return self.through - self.synced

    # -- handing over -------------------------------------------------------------------------

    def wait_for(self, ticket: Ticket) -> None:
        """Release the ticket when the marks have passed it; another thread moves the marks."""
        with self._lock:
            if self.failure is not None:
                self._refuse()
            self._tickets.append(ticket)

    def passed(self, needs: Marks) -> bool:
        return may_leave(needs, self.written, self.synced)

    def _hand_over(self) -> None:
        with self._lock:
            ready: list[tuple[Ticket, MeshError | None]] = []
            waiting: list[Ticket] = []
            for ticket in self._tickets:
                if self.passed(ticket.needs):
                    ready.append((ticket, None))
                else:
                    waiting.append(ticket)
            self._tickets = waiting
        if ready:
            self.on_release(ready)

    # -- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Take a snapshot at a sequence that lies between two frames."""
        with self._writing:
            if self.failure is not None:
                self._refuse()
            with self._lock:
                taken = self._take()
                snapshot = Snapshot(self.kernel.state)
            self._write_frame(*taken)
        return snapshot

    def let_go(self, snapshot: Snapshot) -> None:
        """Called when the snapshot was taken or given up, even if the core is dead by now."""
        with self._lock:
            snapshot.close()

    def draw(self, pieces: Iterable[Any]) -> Any:
        """The next piece of a snapshot; None when there is none."""
        with self._lock:
            return next(iter(pieces), None)

    # -- ends ---------------------------------------------------------------------------------

    def _refuse(self) -> NoReturn:
        """Raise the error that ended the core. Takes no lock: a forked child's lock may be held forever."""
        assert self.failure is not None
        raise type(self.failure)(self.failure.message, hint=self.failure.hint)

    def _die(self, error: BaseException) -> MeshError:
        """The journal failed: fail every waiting call. The outcome of what was pending is unknown."""
        failure = error if isinstance(error, MeshError) else JournalPoisoned(f"the commit failed: {error!r}")
        self.shut(failure)
        return failure

    def shut(self, failure: MeshError) -> None:
        """Fail every waiting call and every later one."""
        with self._lock:
            if self.failure is None:
                self.failure = failure
            tickets, self._tickets = self._tickets, []
            latches, self._room_latches = self._room_latches, []
            tickets += self._watchers.take_all()
            tickets += self._receivers.values()
            self._receivers.clear()
        for open_latch in latches:
            open_latch()
        if tickets:
            self.on_release([(ticket, failure) for ticket in tickets])


def _release_here(released: list[tuple[Ticket, MeshError | None]]) -> None:
    for ticket, error in released:
        ticket.release(error)


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _end_forked() -> None:
    """In a forked child: mark every mesh of the parent as dead. Runs once per fork, not at each call."""
    for core in _cores:
        core.forked = True
        core.failure = Closed(
            "this mesh belongs to the process that opened it; this process was forked from that one"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_forked)


def _nothing() -> None:
    pass


def _nothing_now(_: object) -> None:
    pass


class NullJournal:
    """The journal of a mesh in memory: it stores nothing."""

    def __init__(self, next_sequence: int) -> None:
        self._next = next_sequence

    def append(self, payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None:  # noqa: ARG002
        """Nothing is kept."""
        self._next += events

    def sync(self) -> int:
        return self._next

    def room(self, bytes_needed: int = 0) -> bool:  # noqa: ARG002 - memory has no floor
        return True

    @property
    def at_hand(self) -> int:
        return LIGHT_BYTES_MAX

    def reserve_for_checkpoint(self, bytes_expected: int) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def synced(self) -> int:
        return self._next

    @property
    def bytes_written(self) -> int:
        return 0
