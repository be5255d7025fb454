"""The local session for an event loop: it decides on the loop and commits in one thread.

The loop never waits for the disk. Grants and acks need no sync: the loop writes them itself while the disk is
idle. The commit thread writes and syncs the rest. Commands that arrive while a sync runs share the next frame
and the next sync. One call into the loop then delivers every result of that sync.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from relaymesh.errors import MailboxFull, MeshError, NotFound, Refused
from relaymesh.journal.bell import Bell
from relaymesh.kernel.commands import Release
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.query import Query, ShowTask, ShowWorkflow
from relaymesh.kernel.request import Command, Request, Result
from relaymesh.kernel.schedules.commands import ScheduleStored, SetSchedule
from relaymesh.kernel.step import Receipt, Step
from relaymesh.kernel.tasks.commands import PutVersion, Stored, Submit, Submitted
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.core import Core, Receiver
from relaymesh.node.filling import fill, fill_deliveries, has_files
from relaymesh.node.local import ROOM_POLL_S, InProcess
from relaymesh.node.node import Node
from relaymesh.node.originals import SENDING, Sending
from relaymesh.node.payloads import FILING
from relaymesh.node.release import Marks, Ticket, all_needs, result_needs, shown_needs
from relaymesh.node.workflows import whole_document
from relaymesh.wire.housekeeping import Stats
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

Given = TypeVar("Given")
Done = TypeVar("Done")


class CommitThread:
    """Writes and syncs on request. Requests that arrive during one round are done in the next round."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wanted = Bell()
        self._sync_to = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relaymesh-commit", daemon=True)
        self._thread.start()

    def want(self, synced: int) -> None:
        """Move the marks: write what waits, and sync at least through `synced`."""
        self._sync_to = max(self._sync_to, synced)
        self._wanted.ring()

    def _run(self) -> None:
        core = self._core
        try:
            while True:
                self._wanted.wait()
                if self._closing:
                    return
                core.write()
                if self._sync_to > core.synced:
                    core.sync_written()
                elif core.written > core.synced:
                    core.ask_idle_sync()
        except MeshError:
            return  # the core has already failed every waiting call

    def close(self) -> None:
        self._closing = True
        self._wanted.ring()
        self._thread.join(timeout=30)


class _Pending:
    """A command whose answer waits for the marks."""

    __slots__ = ("future", "needs")

    def __init__(self, needs: Marks, future: asyncio.Future[None]) -> None:
        self.needs = needs
        self.future = future

    def release(self, error: MeshError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(type(error)(error.message))


class AsyncWatch:
    """A caller that waits for news of a task."""

    __slots__ = ("moved", "needs")

    def __init__(self, moved: asyncio.Future[None]) -> None:
        self.moved = moved
        self.needs: Marks = (0, 0)

    def release(self, error: MeshError | None) -> None:  # noqa: ARG002 - the look that follows raises it
        if not self.moved.done():
            self.moved.set_result(None)


class AsyncReceiver(Receiver, eq=False, kw_only=True):
    """A receive on the loop. Deliveries that come after it was cancelled go back; no attempt is counted."""

    future: Any = None
    session: Any = None

    def release(self, error: MeshError | None) -> None:
        self.error = error
        if self.future.done():
            if error is None and self.deliveries:
                self.session.give_back(self.deliveries.tokens)
        elif error is None:
            self.future.set_result(self.deliveries)
        else:
            self.future.set_exception(type(error)(error.message))


class AsyncLocalSession(InProcess):
    """Requests to a node in this process, awaited. Belongs to the loop it was opened on."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._core.on_release = self._release_on_loop
        if node.background:
            node.advancing.loop_thread = self._thread
        self._commits = CommitThread(node.core)

    def _release_on_loop(self, released: list[tuple[Ticket, MeshError | None]]) -> None:
        if threading.get_ident() == self._thread:
            _release_all(released)
            return
        try:
            self._loop.call_soon_threadsafe(_release_all, released)
        except RuntimeError:
            return  # the loop is closed: no call waits any more

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Coroutine[Any, Any, Result]:
        """Execute a command, a query or a request to the node; see `LocalSession.execute`. It is not a
        coroutine function: it returns an awaitable, which saves one coroutine for each call.
        """
        if isinstance(request, SENDING):
            return self._send(request, timeout)  # type: ignore[return-value]  # what these result in
        if isinstance(request, Submit):
            return self.submit(request)  # type: ignore[return-value]
        if isinstance(request, Command):
            return self._decide(request, durable)
        if isinstance(request, Query):
            return self._look_whole(request)
        if isinstance(request, OfTasks):
            return self._of_tasks(request)
        if isinstance(request, OfSchedules):
            return self._of_schedules(request)
        return self._ask_node(request)

    async def _decide(self, command: Command[Result], durable: bool) -> Result:
        held: Sequence[str] = ()
        if isinstance(command, FILING) and self._payloads.is_large(command):
            held = await self._filed(command)
        try:
            result: Result = await self._result(self._core.submit(command), durable)
        except NotFound as error:
            raise await asyncio.to_thread(self.node.tasks.refusal, command, error) from None
        finally:
            if held:
                self._payloads.release(held)
        return result

    async def _filed(self, command: Any) -> list[str]:
        """Move large content of a command into files, in another thread. Returns the files to release."""
        filing = self._loop.run_in_executor(None, self._payloads.file, command)
        try:
            return await asyncio.shield(filing)
        except asyncio.CancelledError:
            filing.add_done_callback(self._release_files)
            raise

    def _release_files(self, filing: asyncio.Future[list[str]]) -> None:
        if not filing.cancelled() and filing.exception() is None:
            self._payloads.release(filing.result())

    async def whole(self, answer: Result) -> Result:
        """The answer with its content from payload files. Every answer passes here."""
        if self._payloads.used and has_files(answer):
            whole: Result = await asyncio.to_thread(fill, answer, self._payloads)
            return whole
        return answer

    async def _result(self, step: Step, durable: bool = False) -> Any:
        if (left := self._commit(step, durable)) is not None:
            await left
        if step.error is not None:
            raise step.error
        return step.result

    async def submit(self, command: Submit) -> Submitted:
        """Begin a task whose workflow was compiled before, unless its key is known."""
        held = await self._filed(command) if self._payloads.is_large(command) else ()
        try:
            submitted: Submitted = await self._result(self.node.tasks.decide(command))
        finally:
            self._payloads.release(held)
        return submitted

    async def put(self, command: PutVersion) -> Stored:
        """Keep a version of a workflow that was checked before."""
        stored: Stored = await self._result(self.node.tasks.decide_put(command))
        return stored

    async def _of_tasks(self, request: OfTasks) -> Any:
        match request:
            case SubmitTask():
                return await self.submit(self.node.workflows.command(request))
            case RerunTask():
                return await self.submit(await self._off_loop(self.node.rerun.command, request))
            case GrowStep():
                return await self._decide(self.node.growing.command(request), False)
            case FindTask():
                return await self._shown(request.task)
            case FindTasks():
                return await self._found(request)
            case WatchTask():
                return await self._watch(request)
            case PutWorkflow():
                return await self.put(self.node.workflows.put_command(request))
            case FindWorkflow():
                found = await self.look(ShowWorkflow(request.namespace, request.name, request.version))
                return None if found is None else whole_document(found)
            case TellTask():
                return await self._off_loop(self.node.tasks.story, request.task)

    async def _found(self, request: FindTasks) -> list[TaskView]:
        if not request.limit:
            return []
        listing = self.node.tasks.listing(request)
        while (query := listing.query) is not None:
            listing.add(await self.look(query))
            await asyncio.sleep(0)  # a filter may pass over many tasks: others go in between
        page = await self._off_loop(self.node.tasks.page, listing)
        return page.tasks

    async def _off_loop(self, work: Callable[[Given], Done], given: Given) -> Done:
        """Do work that waits for the disk in another thread."""
        return await asyncio.to_thread(work, given)

    async def put_schedule(self, command: SetSchedule) -> ScheduleStored:
        """Keep a schedule that was checked before."""
        stored: ScheduleStored = await self._result(self.node.schedules.decide_put(command))
        return stored

    async def _of_schedules(self, request: OfSchedules) -> Any:
        schedules = self.node.schedules
        if isinstance(request, PutSchedule):
            return await self.put_schedule(schedules.put_command(request))
        return await self._decide(schedules.pause_command(request), durable=False)

    async def _shown(self, task: str) -> TaskShown | None:
        shown, seen = self._core.observe(lambda kernel: kernel.look(ShowTask(task)))
        needs = shown_needs(shown, seen)
        if not self._core.passed(needs):
            await self._passed(needs, needs[1])
        return await self.whole(shown or self.node.tasks.shown_in_store(task))

    async def _watch(self, request: WatchTask) -> TaskShown | None:
        """As `LocalSession._watch`."""
        watch = AsyncWatch(self._loop.create_future())
        if request.wait_s > 0 and self._core.when_task_moves(request.task, request.seen, watch):
            timer = self._loop.call_later(request.wait_s, watch.release, None)
            try:
                await watch.moved
            finally:
                timer.cancel()
                self._core.watch_no_longer(request.task, watch)
        return await self._shown(request.task)

    async def _ask_node(self, request: Request[Result]) -> Result:
        """Read counters on the loop; take a checkpoint, which is slow, in another thread."""
        if isinstance(request, Stats):
            return self.node.answer(request)  # type: ignore[return-value]
        return await asyncio.to_thread(self.node.answer, request)

    async def look(self, query: Query[Result]) -> Result:
        """The answer as the kernel has it: see `whole`."""
        if not query.durable:
            return self._core.read(lambda kernel: kernel.look(query))
        answer, needs = self._core.observe(lambda kernel: kernel.look(query))
        if not self._core.passed(needs):
            await self._passed(needs, needs[1])
        return answer

    async def _look_whole(self, query: Query[Result]) -> Result:
        return await self.whole(await self.look(query))

    def _commit(self, step: Step, durable: bool = False) -> asyncio.Future[None] | None:
        """What to await before the result may leave; None: it may leave now. Deliveries to other waiters
        leave separately.
        """
        core = self._core
        waits = core.waits_for_sync
        everything = all_needs(step, waits_for_sync=waits, durable=durable)
        if core.passed(everything) or self._written_at_once(everything[1]):
            return None
        needs = result_needs(step, waits_for_sync=waits, durable=durable)
        if core.passed(needs):
            self._commits.want(everything[1])
            return None
        return self._passed(needs, everything[1])

    def _written_at_once(self, synced: int) -> bool:
        """For steps that need no sync: write on the loop if the commit thread is idle."""
        core = self._core
        if synced > core.synced or not core.write_light():
            return False
        if core.written > core.synced:
            core.ask_idle_sync()
        return True

    def _passed(self, needs: Marks, sync_to: int) -> asyncio.Future[None]:
        """A future that is done when the marks have passed; the commit thread syncs through `sync_to`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._core.wait_for(_Pending(needs, future))
        self._commits.want(sync_to)
        return future

    # -- sending

    async def _send(self, command: Sending, timeout: float | None) -> list[Receipt]:
        held: Sequence[str] = ()
        try:
            if command.size > self._payloads.inline_max:
                held = await self._filed(command)
            return await (self._wait_for_room(command, timeout) if timeout else self._admit(command))
        except Refused as error:
            self.node.refusals.note(error)
            raise
        finally:
            if held:
                self._payloads.release(held)

    async def _wait_for_room(self, command: Sending, timeout: float) -> list[Receipt]:
        deadline = self._loop.time() + timeout
        room: asyncio.Event | None = None
        while True:
            try:
                receipts = await self._admit(command)
            except MailboxFull:
                left = deadline - self._loop.time()
                if left <= 0:
                    raise
                if room is not None:
                    try:
                        await asyncio.wait_for(room.wait(), min(left, ROOM_POLL_S))
                    except TimeoutError:
                        pass
                room = asyncio.Event()  # ask before the next try, so that no free slot is missed
                self._core.when_room(partial(self._set_on_loop, room))
            else:
                return receipts

    async def _admit(self, command: Sending) -> list[Receipt]:
        """Execute. If bytes differ from an earlier send of the same id, execute again with those that mean
        the same.
        """
        self.node.prepare(command)
        step = self._core.submit(command)
        if step.differing is not None:
            if (left := self._commit(step)) is not None:
                await left
            equal = await asyncio.to_thread(self.node.originals.equal, command, step.differing)
            if equal:
                command.equal = equal
                step = self._core.submit(command)
        if (left := self._commit(step)) is not None:
            await left
        if step.error is not None:
            raise step.error
        receipts: list[Receipt] = step.result
        return receipts

    def _set_on_loop(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return  # the loop is closed: no call waits any more

    # -- receiving

    async def receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        holder: str | None = None,
        remote: bool = False,
    ) -> Deliveries:
        """Return up to `max` deliveries; none if none came in time. A cancelled receive gives them back.

        `holder`: the name that holds the leases, if not this process; `remote`: the leases survive a restart.
        """
        future: asyncio.Future[Deliveries] = self._loop.create_future()
        waiter = Waiter(holder or self.holder, max, correlation_id, remote)
        receiver = AsyncReceiver(waiter, future=future, session=self)
        waits = timeout is None or timeout > 0
        step = self._core.receive(mailbox, receiver, wait=waits)
        timer = None
        try:
            if (left := self._commit(step)) is not None:
                await left
            if step.error is not None:
                raise step.error
            if not step.result:
                if not waits:
                    return nothing_from(mailbox)
                if timeout is not None:
                    timer = self._loop.call_later(timeout, self._give_up, mailbox, receiver)
            given = await future
            if self._payloads.used and has_files(given):
                return await self._filled(given)
            return given
        except asyncio.CancelledError:
            self._abandon(mailbox, receiver)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _filled(self, given: Deliveries) -> Deliveries:
        """The deliveries with their content; raises `JournalDamaged` if none can be read."""
        return self._left(given, await asyncio.to_thread(fill_deliveries, given, self._payloads))

    async def pull(self, mailbox: str, max: int) -> Deliveries:
        """A receive without a time limit."""
        return await self.receive(mailbox, max, None)

    def _give_up(self, mailbox: str, receiver: AsyncReceiver) -> None:
        """The time limit passed: return nothing, unless deliveries are already on their way."""
        try:
            waited = self._core.forgo(mailbox, receiver).result
        except MeshError:
            return
        if waited and not receiver.future.done():
            receiver.future.set_result(nothing_from(mailbox))

    def _abandon(self, mailbox: str, receiver: AsyncReceiver) -> None:
        delivered = receiver.future.done() and not receiver.future.cancelled() and receiver.deliveries
        receiver.future.cancel()
        try:
            self._core.forgo(mailbox, receiver)
        except MeshError:
            return
        if delivered:
            self.give_back(delivered.tokens)

    def give_back(self, tokens: Sequence[int]) -> None:
        """Give back deliveries that no receive took: no attempt is counted. Does not wait."""
        try:
            step = self._core.submit(Release(tokens))
        except MeshError:
            return
        self._commits.want(all_needs(step, waits_for_sync=self._core.waits_for_sync)[1])

    async def close(self, *, force: bool = False) -> None:
        try:
            await asyncio.to_thread(self.node.close, force=force)
        finally:
            self._commits.close()


def _release_all(released: list[tuple[Ticket, MeshError | None]]) -> None:
    for ticket, error in released:
        ticket.release(error)
