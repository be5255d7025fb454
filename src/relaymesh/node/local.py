"""The local session: requests to a node in this process, in the caller's thread.

The same few calls exist for a remote node; the SDK is written against them alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relaymesh.errors import JournalDamaged, MailboxFull, MeshError, NotFound, Refused
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.commands import Nack, Release
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.query import Query, ShowWorkflow
from relaymesh.kernel.request import Command, Request, Result
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.tasks.views import TaskShown
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.clock import Latch
from relaymesh.node.core import Core, Receiver
from relaymesh.node.filling import DAMAGED, Filled, fill, fill_deliveries, has_files
from relaymesh.node.node import Node
from relaymesh.node.originals import SENDING, Sending
from relaymesh.node.payloads import FILING
from relaymesh.node.release import Marks, all_needs
from relaymesh.node.workflows import (
    whole_document,
)
from relaymesh.wire.schedules import OfSchedules, PutSchedule
from relaymesh.wire.tasks import (
    FindTask,
    FindTasks,
    FindWorkflow,
    GrowStep,
    OfTasks,
    PutWorkflow,
    RerunTask,
    SubmitTask,
    TellTask,
    WatchTask,
)

alert = logging.getLogger("relaymesh.alert")

Arrival = Callable[[Deliveries, MeshError | None], None]
ROOM_POLL_S = 1.0


class Pull(Receiver, eq=False, kw_only=True):
    """A receive that no thread waits in: its deliveries are handed to `arrived`."""

    mailbox: str = ""
    arrived: Any = None
    core: Any = None
    payloads: Any = None

    def release(self, error: MeshError | None) -> None:
        given = self.deliveries or nothing_from(self.mailbox)
        if self.payloads.used and has_files(given):
            given, beyond, damaged = fill_deliveries(given, self.payloads)
            give_up(self.core, beyond, damaged)
            if damaged and not given and error is None:
                self.core.receive(self.mailbox, self)  # it goes on with other messages
                return
        self.arrived(given, error)

    def forgo(self) -> None:
        """Stop waiting. Deliveries that are already on their way are still handed over."""
        self.core.forgo(self.mailbox, self)


class Watch:
    """A caller that waits for news of a task."""

    __slots__ = ("latch", "needs")

    def __init__(self) -> None:
        self.latch = Latch()
        self.needs: Marks = (0, 0)

    def release(self, error: MeshError | None) -> None:  # noqa: ARG002 - the look that follows raises it
        self.latch.open()


def give_up(
    core: Core, beyond: Sequence[int], damaged: Sequence[tuple[int, JournalDamaged]], settled: bool = False
) -> None:
    """Give back deliveries that are too many, and fail those whose content cannot be read: they are tried
    again, and become dead letters in the end. Does not wait.
    """
    for token, error in damaged:
        alert.error("delivery %d cannot be made: %s", token, error.message)
    try:
        if beyond:
            core.submit(Release(beyond))
        for token, error in () if settled else damaged:
            core.submit(Nack(token, DAMAGED, error.message))
    except MeshError:
        return  # the leases end by themselves
    core.ask_idle_sync()


class InProcess:
    """The state of a node in this process, for both the sync and the async session."""

    namespace = DEFAULT_NAMESPACE

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holder = f"process-{os.getpid()}"
        self._core = node.core
        self._payloads = node.payloads
        self.now = node.time.now
        """Mesh time, in milliseconds."""

    @property
    def payload_bytes_max(self) -> int:
        return self.node.tuning.values.payload_max_bytes

    @property
    def path(self) -> Path | None:
        """The data directory; None in memory."""
        return self.node.path

    @property
    def failure(self) -> MeshError | None:
        """Whether the journal failed or the mesh is closed: no call succeeds any more."""
        return self._core.failure

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy: everything here belongs to the parent."""
        return self._core.forked

    def new_ids(self, count: int) -> list[str]:
        return self.node.new_ids(count)

    def _left(self, given: Deliveries, filled: Filled) -> Deliveries:
        """The deliveries that a receive returns, with their content. Does not wait."""
        deliveries, beyond, damaged = filled
        if beyond or damaged:
            give_up(self._core, beyond, damaged, given.settled)
        if damaged and not deliveries:
            raise damaged[0][1]
        return deliveries

    def holds(self, token: int) -> bool:
        """Whether the lease is still held."""
        return self._core.kernel.holds(token)


class LocalSession(InProcess):
    """Requests to a node in this process. Thread-safe."""

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        """Execute a command, a query or a request to the node; return once its promise holds.

        timeout: how long a send waits for room in a full mailbox. None: do not wait.
        durable: wait for the sync even where the durability setting does not.
        """
        result: Result
        if isinstance(request, SENDING):
            result = self._send(request, timeout)  # type: ignore[assignment]  # what these result in
        elif isinstance(request, Command):
            result = self._decide(request, durable)
        elif isinstance(request, Query):
            result = self._look(request)
        elif isinstance(request, OfTasks):
            result = self._of_tasks(request)
        elif isinstance(request, OfSchedules):
            result = self._of_schedules(request)
        else:
            result = self.node.answer(request)
        return result

    def _decide(self, command: Command[Result], durable: bool) -> Result:
        payloads = self._payloads
        try:
            if not (isinstance(command, FILING) and payloads.is_large(command)):
                return self._core.execute(command, durable=durable)
            with payloads.filed(command):
                result: Any = self._core.execute(command, durable=durable)
            return result  # type: ignore[no-any-return]
        except NotFound as error:
            raise self.node.tasks.refusal(command, error) from None

    def _look(self, query: Query[Result]) -> Result:
        if not query.durable:
            return self._whole(self._core.read(lambda kernel: kernel.look(query)))
        answer, needs = self._core.observe(lambda kernel: kernel.look(query))
        self._core.reach(needs)
        return self._whole(answer)

    def _whole(self, answer: Result) -> Result:
        """The answer with its content."""
        payloads = self._payloads
        if payloads.used and has_files(answer):
            whole: Result = fill(answer, payloads)
            return whole
        return answer

    def _of_tasks(self, request: OfTasks) -> Any:
        match request:
            case SubmitTask():
                return self.node.tasks.submit(self.node.workflows.command(request))
            case RerunTask():
                return self.node.tasks.submit(self.node.rerun.command(request))
            case GrowStep():
                return self._core.execute(self.node.growing.command(request))
            case FindTask():
                return self._whole(self.node.tasks.show(request.task))
            case FindTasks():
                return self.node.tasks.found(request)
            case WatchTask():
                return self._watch(request)
            case PutWorkflow():
                return self.node.tasks.put(self.node.workflows.put_command(request))
            case FindWorkflow():
                found = self._look(ShowWorkflow(request.namespace, request.name, request.version))
                return None if found is None else whole_document(found)
            case TellTask():
                return self.node.tasks.story(request.task)

    def _of_schedules(self, request: OfSchedules) -> Any:
        schedules = self.node.schedules
        if isinstance(request, PutSchedule):
            return self._core.commit(schedules.decide_put(schedules.put_command(request)))
        return self._core.execute(schedules.pause_command(request))

    def _watch(self, request: WatchTask) -> TaskShown | None:
        """Wait until the task has changed or the time is over, then return its state."""
        watch = Watch()
        waits = request.wait_s > 0 and self._core.when_task_moves(request.task, request.seen, watch)
        if waits and not self.node.clock.wait(watch.latch, request.wait_s):
            self._core.watch_no_longer(request.task, watch)
        return self._whole(self.node.tasks.show(request.task))

    def _send(self, command: Sending, timeout: float | None) -> list[Receipt]:
        """Try a full mailbox again whenever a mailbox gets room, until the time is over."""
        try:
            if command.size > self._payloads.inline_max:
                with self._payloads.filed(command):
                    return self._wait_for_room(command, timeout or 0)
            return self._admit(command) if not timeout else self._wait_for_room(command, timeout)
        except Refused as error:
            self.node.refusals.note(error)
            raise

    def _wait_for_room(self, command: Sending, timeout: float) -> list[Receipt]:
        deadline = self.node.time.now() + timeout * 1000
        latch: Latch | None = None
        while True:
            try:
                receipts = self._admit(command)
            except MailboxFull:
                left = (deadline - self.node.time.now()) / 1000
                if left <= 0:
                    raise
                if latch is not None:
                    self.node.clock.wait(latch, min(left, ROOM_POLL_S))
                latch = Latch()  # ask before the next try, so that no free slot is missed
                self._core.when_room(latch.open)
            else:
                return receipts

    def _admit(self, command: Sending) -> list[Receipt]:
        """Execute. If bytes differ from an earlier send of the same id, execute again with those that mean
        the same.
        """
        core = self._core
        self.node.prepare(command)
        step = core.submit(command)
        if step.differing is not None:
            core.reach(all_needs(step, waits_for_sync=core.waits_for_sync))
            equal = self.node.originals.equal(command, step.differing)
            if equal:
                command.equal = equal
                step = core.submit(command)
        receipts: list[Receipt] = core.commit(step)
        return receipts

    # -- receiving

    def receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        holder: str | None = None,
        remote: bool = False,
    ) -> Deliveries:
        """Return up to `max` deliveries; none if none came in time. `timeout` None waits forever.

        `holder`: the name that holds the leases, if not this process; `remote`: the leases survive a restart.
        """
        core = self._core
        latch = Latch()
        receiver = Receiver(Waiter(holder or self.holder, max, correlation_id, remote), latch=latch)
        try:
            if core.commit(core.receive(mailbox, receiver, wait=timeout is None or timeout > 0)):
                latch.wait(None)
            elif timeout is not None and timeout <= 0:
                return nothing_from(mailbox)
            elif not self.node.clock.wait(latch, timeout):
                if core.commit(core.forgo(mailbox, receiver)):
                    return nothing_from(mailbox)
                latch.wait(None)
        except BaseException:
            self._abandon(mailbox, receiver)
            raise
        if receiver.error is not None:
            raise type(receiver.error)(receiver.error.message, hint=receiver.error.hint)
        assert receiver.deliveries is not None
        return self._filled(receiver.deliveries)

    def _filled(self, given: Deliveries) -> Deliveries:
        """The deliveries with their content; raises `JournalDamaged` if none can be read."""
        payloads = self._payloads
        if not (payloads.used and has_files(given)):
            return given
        return self._left(given, fill_deliveries(given, payloads))

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """Receive without waiting: the thread that commits the grant calls `arrived`."""
        core = self._core
        payloads = self._payloads
        pull = Pull(Waiter(self.holder, max), mailbox=mailbox, arrived=arrived, core=core, payloads=payloads)
        core.commit(core.receive(mailbox, pull))
        return pull

    def _abandon(self, mailbox: str, receiver: Receiver) -> None:
        """The caller was interrupted: give back deliveries that it was granted meanwhile. No attempt is
        counted."""
        core = self._core
        try:
            core.commit(core.forgo(mailbox, receiver))
            if receiver.deliveries:
                core.execute(Release(receiver.deliveries.tokens))
        except MeshError:
            return

    def close(self, *, force: bool = False) -> None:
        self.node.close(force=force)
