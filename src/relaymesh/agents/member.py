"""One agent of the team at work: its session with the node, its slots, its attempts.

    starting ─► idle ◄─► running        an attempt crashed ─► backoff ─► idle
    any ─► draining ─► stopped          no new work; what runs has the agent's grace

In `backoff` it sends no heartbeats. So after a while it is shown as offline, and it is not chosen for its
capabilities.

A slot takes one delivery at a time: the node keeps the order of lanes. This module does not decide about the
message: the adapter returns an outcome, and `handed_work.settle` sends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from relaymesh.agents.adapter import Adapter, Event, Failure, Outcome, Progress, Text, Used, Work
from relaymesh.agents.declarations import AgentDeclaration
from relaymesh.agents.handed_work import settle, usage_in, work_of
from relaymesh.agents.log_file import LogFile
from relaymesh.agents.run_output import RunOutput
from relaymesh.agents.run_records import RunRecord, RunRecords
from relaymesh.client.websocket import WebSocketSession
from relaymesh.errors import LeaseLost, MeshError
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.commands import ExtendAll, RegisterAgent, Release
from relaymesh.kernel.contract import TIMEOUT
from relaymesh.kernel.deliveries import Deliveries, DeliveryRow
from relaymesh.kernel.tasks.commands import Report
from relaymesh.wire.usage import dollars_of

__all__ = ["Member", "MemberState", "Tell"]

MemberState = Literal["starting", "idle", "running", "backoff", "draining", "stopped"]
Tell = Callable[..., None]

RENEW_EVERY_S = 2.0
LEASE_MS_MIN = 10_000
REPORT_EVERY_S = 1.0
ERROR_LENGTH_MAX = 500
LOOK_EVERY_S = 0.1
RETRY_S = 1.0
BOUNDS_S_MAX = 5.0
"""How long an attempt waits to learn what it may still use: the node may be starting again."""
CANCEL_S_MAX = 30.0
"""How long an adapter may take to end its processes when it is cancelled."""


@dataclass(eq=False)
class _Attempt:
    """One attempt under way."""

    record: RunRecord
    row: DeliveryRow
    lease_ms: int
    began: float
    task: asyncio.Task[Outcome] | None = None
    lost: bool = False
    failed: bool = False
    progress: str = ""
    used: Used = field(default_factory=Used)
    to_report: bool = False


class Member:
    """Used only on the event loop. `open_session` connects to the node; `tell` gets events."""

    def __init__(
        self,
        declared: AgentDeclaration,
        adapter: Adapter,
        *,
        folder: Path,
        open_session: Callable[[], Awaitable[WebSocketSession]],
        records: RunRecords,
        output: RunOutput,
        log: LogFile,
        mark: str,
        new_run: Callable[[], str],
        tell: Tell,
    ) -> None:
        self.declared = declared
        self.restarts = 0
        self.done = 0
        self.failed = 0
        self.last_error = ""
        self._adapter = adapter
        self._folder = folder
        self._open_session = open_session
        self._records = records
        self._output = output
        self._log = log
        self._mark = mark
        self._new_run = new_run
        self._tell = tell
        self._address = agent_address(declared.name)
        self._session: WebSocketSession | None = None
        self._attempts: dict[str, _Attempt] = {}
        self._slots: dict[asyncio.Task[None], None] = {}
        self._pulls: set[asyncio.Task[Deliveries]] = set()
        self._taking: set[asyncio.Task[None]] = set()
        """Slots that wait for a delivery."""
        self._renewing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stop_by: float | None = None
        self._audits: set[asyncio.Task[None]] = set()
        self._crashes = 0
        self._rest_until = 0.0
        self._phase: Literal["starting", "working", "draining", "stopped"] = "starting"

    # -- what it shows

    @property
    def state(self) -> MemberState:
        if self._phase != "working":
            return self._phase
        if self._attempts:
            return "running"
        return "backoff" if self._rest_until > time.monotonic() else "idle"

    @property
    def is_cut_off(self) -> bool:
        """Whether its session has failed for good, so that the agent must be restarted."""
        return self._phase == "working" and self._session is not None and self._session.failure is not None

    def shown(self) -> dict[str, Any]:
        """For `relaymesh ps`."""
        return {
            "agent": self.declared.name,
            "kind": self.declared.kind,
            "state": self.state,
            "mark": self._mark,
            "running": [
                {
                    "run": each.record.run,
                    "task": each.record.task,
                    "step": each.record.step,
                    "message": each.record.message_id,
                    "attempt": each.record.attempt,
                    "started_ms": each.record.started_ms,
                    "progress": each.progress,
                }
                for each in self._attempts.values()
            ],
            "concurrency": self.declared.concurrency,
            "done": self.done,
            "failed": self.failed,
            "restarts": self.restarts,
            "last_error": self.last_error,
        }

    # -- the start and the end

    async def start(self) -> None:
        """Join the mesh, and begin to take work."""
        session = self._session = await self._open_session()
        declared = self.declared
        await session.execute(
            RegisterAgent(
                self._address,
                declared.role,
                declared.capabilities,
                metadata=b'{"supervised":true}',
                settles=True,
            )
        )
        self._phase = "working"
        self._renewing = asyncio.create_task(self._renew(session), name=f"renew {declared.name}")
        for number in range(declared.concurrency):
            slot = asyncio.create_task(self._serve(session), name=f"slot {number} of {declared.name}")
            self._slots[slot] = None
            slot.add_done_callback(self._slot_ended)

    async def stop(self, grace_s: float) -> None:
        """Take no more work; running attempts may finish within the grace. The others are ended and go back
        without a counted attempt.

        A second call, while one is under way, may shorten its grace.
        """
        until = time.monotonic() + grace_s
        self._stop_by = until if self._stop_by is None else min(until, self._stop_by)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name=f"stop {self.declared.name}")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._phase = "draining"
        for slot in list(self._taking):
            slot.cancel()
        while self._slots and (left := (self._stop_by or 0.0) - time.monotonic()) > 0:
            await asyncio.wait(list(self._slots), timeout=min(left, LOOK_EVERY_S))
        for attempt in self._attempts.values():
            if attempt.task is not None:
                attempt.task.cancel()
        if self._slots:
            await asyncio.wait(list(self._slots), timeout=CANCEL_S_MAX)
        for slot in list(self._slots):
            slot.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.gather(self._adapter.close(), return_exceptions=True)
        if self._audits:
            await asyncio.wait(list(self._audits), timeout=1.0)
        if self._session is not None:
            await self._session.close()
        self._log.close()
        self._phase = "stopped"

    def _slot_ended(self, slot: asyncio.Task[None]) -> None:
        self._slots.pop(slot, None)
        self._taking.discard(slot)
        if not slot.cancelled() and (error := slot.exception()) is not None:
            self._tell(
                "agent.failed", f"{self.declared.name} takes no more work: {error}", agent=self.declared.name
            )
            self.last_error = f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]

    # -- work

    async def _serve(self, session: WebSocketSession) -> None:
        """One slot."""
        slot = asyncio.current_task()
        assert slot is not None
        while self._phase == "working":
            self._taking.add(slot)
            rest = self._rest_until - time.monotonic()
            if rest > 0:
                await asyncio.sleep(rest)
                continue
            try:
                got = await self._pulled(session)
            except MeshError as error:
                if session.failure is not None:
                    return
                self._log.write(f"no work can be received: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            if got is None:
                continue
            self._taking.discard(slot)
            for row in got.rows():
                if not row.settled:
                    await self._attempt(session, row)
                    if session.failure is not None:
                        return

    async def _pulled(self, session: WebSocketSession) -> Deliveries | None:
        """The next delivery. None: the agent crashed meanwhile, and rests."""
        slot = asyncio.current_task()
        pull = asyncio.create_task(session.pull(self._address, 1))
        self._pulls.add(pull)
        try:
            return await pull
        except asyncio.CancelledError:
            if slot is None or slot.cancelling():
                raise
            return None
        finally:
            self._pulls.discard(pull)

    async def _attempt(self, session: WebSocketSession, row: DeliveryRow) -> None:
        run = self._new_run()
        work = work_of(row, self.declared, run, self._folder)
        record = RunRecord(
            run=run,
            agent=self.declared.name,
            token=row.token,
            message_id=row.envelope.id,
            attempt=row.attempt,
            started_ms=session.now(),
            task=work.task,
            step=work.step,
        )
        length = max(LEASE_MS_MIN, row.deadline - session.now())
        attempt = _Attempt(record, row, length, time.monotonic())
        self._attempts[run] = attempt
        try:
            await asyncio.to_thread(self._records.add, record)
            self._audit(session, "run", attempt)
            work = await _bounded(session, work, row.token)
            if self._phase == "working":
                attempt.task = asyncio.create_task(
                    self._adapter.run(work, lambda event: self._hear(attempt, event)), name=f"run {run}"
                )
                await asyncio.wait({attempt.task})
            await self._conclude(session, attempt, _outcome_of(attempt.task))
        except OSError as error:  # the disk is full, before anything was started
            self._say(
                "attempt.ended",
                f"{self.declared.name}: no record can be written for {run}: {error}",
                {"run": run},
            )
            await session.execute(Release([row.token]))
            await asyncio.sleep(RETRY_S)
        except MeshError as error:  # the record stays: a successor abandons it, or the lease runs out
            self._say(
                "attempt.unsettled", f"{self.declared.name}: {run} is not settled: {error}", {"run": run}
            )
        else:
            self._records.remove(run)
            await asyncio.to_thread(self._output.ended, run, keep=attempt.failed)
        finally:
            self._attempts.pop(run, None)

    async def _conclude(self, session: WebSocketSession, attempt: _Attempt, outcome: Outcome | None) -> None:
        """Settle the delivery and report the outcome. No outcome: this supervisor ended the attempt."""
        name, record = self.declared.name, attempt.record
        seconds = time.monotonic() - attempt.began
        what = f"step {record.step} of task {record.task}" if record.step else f"message {record.message_id}"
        about = {
            "agent": name,
            "task": record.task,
            "step": record.step,
            "message": record.message_id,
            "attempt": record.attempt,
            "seconds": round(seconds, 3),
        }
        if (why := _killed(attempt, outcome)) is not None:
            self._audit(session, "kill", attempt, why)
        rest_s = await self._rest() if isinstance(outcome, Failure) and outcome.abandoned else None
        try:
            if outcome is None:
                if not attempt.lost:
                    await session.execute(Release([record.token]))
                ended = "lost its lease" if attempt.lost else "went back"
                self._say("attempt.ended", f"{name}: {what} {ended} after {seconds:.1f} s", about)
                return
            became = await settle(session, attempt.row, outcome)
        except LeaseLost:
            self._say("attempt.late", f"{name}: {what} came too late: its lease was lost", about)
            self._say_rest(rest_s)
            return
        if not isinstance(outcome, Failure):
            self.done += 1
            self._crashes = 0
            self._say("step.done", f"{name}: {what} done in {seconds:.1f} s", about)
            return
        self.failed += 1
        attempt.failed = True
        self.last_error = f"{outcome.code}: {outcome.reason}"[:ERROR_LENGTH_MAX]
        self._say(
            "step.failed",
            f"{name}: {what} failed after {seconds:.1f} s ({became}): {self.last_error}",
            {**about, "code": outcome.code, "became": became},
        )
        self._say_rest(rest_s)

    async def _rest(self) -> float:
        """The agent was killed or died: it gets no new work until its backoff is over. Returns its length.

        Call it before the attempt is settled: what goes back must not come to another slot of this agent.
        """
        self.restarts += 1
        least, most = self.declared.backoff_min, self.declared.backoff_max
        rest_s: float = min(most, least * 2 ** min(self._crashes, 30))
        self._crashes += 1
        self._rest_until = time.monotonic() + rest_s
        pulls = list(self._pulls)
        for pull in pulls:
            pull.cancel()
        if pulls:
            await asyncio.wait(pulls)
        return rest_s

    def _say_rest(self, rest_s: float | None) -> None:
        if rest_s is not None:
            self._say(
                "agent.restarted",
                f"{self.declared.name} crashed and gets new work in {rest_s:g} s",
                {"agent": self.declared.name, "rest_s": rest_s},
            )

    def _audit(
        self, session: WebSocketSession, event: Literal["run", "kill"], attempt: _Attempt, why: str = ""
    ) -> None:
        """Write an audit line in the background: a node that does not answer for a moment must not delay
        the work."""
        record = attempt.record
        what = f"step {record.step} of task {record.task}" if record.step else f"message {record.message_id}"
        detail = f"run {record.run}: {what}, attempt {record.attempt}{': ' + why if why else ''}"
        task = asyncio.create_task(session.note_run(self._address, event, detail))
        self._audits.add(task)
        task.add_done_callback(self._audited)

    def _audited(self, task: asyncio.Task[None]) -> None:
        self._audits.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.write(f"an attempt could not be audited: {error}")

    def _say(self, event: str, text: str, fields: dict[str, Any]) -> None:
        self._tell(event, text, **fields)
        self._log.write(text)

    # -- while it runs

    def _hear(self, attempt: _Attempt, event: Event) -> None:
        """Take an event of the adapter. Call it only on the thread of the event loop."""
        if isinstance(event, Text):
            self._log.write(event.text, attempt.record.run)
        elif isinstance(event, Progress):
            attempt.progress, attempt.to_report = event.text, True
        elif isinstance(event, Used):
            attempt.used, attempt.to_report = event, True
        else:
            self._log.write(f"uses {event.name} {event.summary}".rstrip(), attempt.record.run)

    async def _renew(self, session: WebSocketSession) -> None:
        """Renew the leases of running attempts, and report their progress. End attempts that lost their
        lease."""
        since = 0.0
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            since += REPORT_EVERY_S
            self._show(session)
            running = [each for each in self._attempts.values() if each.task is not None and not each.lost]
            try:
                for attempt in running:
                    if attempt.to_report and attempt.record.step is not None:
                        attempt.to_report = False
                        await session.execute(
                            Report(attempt.record.token, attempt.progress, usage_in(attempt.used))
                        )
                if since >= RENEW_EVERY_S and running:
                    since = 0.0
                    extends = [(each.record.token, each.lease_ms) for each in running]
                    for attempt, deadline in zip(
                        running, await session.execute(ExtendAll(extends)), strict=True
                    ):
                        if deadline is None:
                            self._lose(attempt)
            except LeaseLost:
                continue  # the next renewal says whose
            except MeshError as error:
                if session.failure is not None:
                    return
                self._log.write(f"leases could not be renewed: {error.message}")

    def _show(self, session: WebSocketSession) -> None:
        """While it rests after a crash it shows no life: its heartbeats end, and others see it offline."""
        session.show(self.state, life=self.state != "backoff")

    def _lose(self, attempt: _Attempt) -> None:
        """Another holder may have the message: end the attempt, unless it is being settled."""
        if attempt.task is not None and not attempt.task.done():
            attempt.lost = True
            attempt.task.cancel()


async def _bounded(session: WebSocketSession, work: Work, token: int) -> Work:
    """The work, with what it may still use. If that cannot be found out, the attempt begins without it."""
    if work.step is None:
        return work
    try:
        async with asyncio.timeout(BOUNDS_S_MAX):
            bounds = await session.step_bounds(token)
    except (MeshError, TimeoutError):
        return work
    return msgspec.structs.replace(
        work,
        tokens_left=bounds.tokens,
        cost_left_usd=None if bounds.cost_micros is None else dollars_of(bounds.cost_micros),
        time_left_s=None if bounds.ends_at is None else max(0.0, (bounds.ends_at - session.now()) / 1000),
    )


def _outcome_of(task: asyncio.Task[Outcome] | None) -> Outcome | None:
    if task is None or task.cancelled():
        return None
    error = task.exception()
    if error is not None:
        return Failure("other", f"the adapter failed: {type(error).__name__}: {error}"[:ERROR_LENGTH_MAX])
    return task.result()


def _killed(attempt: _Attempt, outcome: Outcome | None) -> str | None:
    """Why its processes were ended from outside; None: they ended by themselves."""
    if outcome is None:
        return "its lease was lost" if attempt.lost else "the agent stops"
    if isinstance(outcome, Failure) and (outcome.abandoned or outcome.code == TIMEOUT):
        return outcome.reason
    return None
