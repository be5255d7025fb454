"""A worker agent: a long-lived process that does one work after the other, or several at once.

The process is started with the first work, and again, after a growing pause, when it has died. The protocol
is in `worker_process`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from relaymesh.agents.adapter import Event, Failure, Outcome, Work
from relaymesh.agents.clocks import Clocks, least
from relaymesh.agents.command import Command, Limits, checked_mark, resolved
from relaymesh.agents.request import request_of
from relaymesh.agents.worker_process import Doing, WorkerProcess
from relaymesh.errors import InvalidSettings, MeshError
from relaymesh.kernel.bounds import real, whole
from relaymesh.kernel.contract import FATAL, INVALID, TIMEOUT

__all__ = ["Worker"]

PARALLEL_MAX = 10_000


class Worker:
    """The adapter of one worker agent.

    `mark` names its processes: they are marked `<mark>.1`, `<mark>.2` and so on. `parallel`: how many works
    one process may have at once. `directory`: where it runs. `pause_s_min` to `pause_s_max`: the pause before
    a process that died is started again; it doubles with each that died without having ended a work.
    """

    keeps_process = True
    """Processes that a piece of work leaves behind are ended with the worker, not with the work."""

    def __init__(
        self,
        command: Command,
        limits: Limits | None = None,
        *,
        runs: Path,
        mark: str,
        directory: Path,
        parallel: int = 1,
        pause_s_min: float = 0.5,
        pause_s_max: float = 30.0,
    ) -> None:
        self.command = command
        self.limits = limits or Limits()
        self.runs = resolved(runs, "runs")
        self.mark = checked_mark(mark)
        self.directory = resolved(directory, "directory")
        self._slots = asyncio.Semaphore(whole(parallel, "parallel", 1, PARALLEL_MAX, InvalidSettings))
        self._pause_s_min = real(pause_s_min, "pause_s_min", 0.0, 3600.0, InvalidSettings)
        self._pause_s_max = real(pause_s_max, "pause_s_max", 0.0, 86_400.0, InvalidSettings)
        self._starting = asyncio.Lock()
        self._process: WorkerProcess | None = None
        self._started = 0
        self._died = 0
        """Processes in a row that died before they had ended a work."""
        self._not_before = 0.0

    async def run(self, work: Work, emit: Callable[[Event], None]) -> Outcome:
        """Do one work, on the running process or on a new one."""
        checked_mark(work.run)
        clocks = Clocks(
            least(self.limits.time_s, work.time_limit_s), least(self.limits.silence_s, work.silence_limit_s)
        )
        try:
            request = request_of(work, clocks.time_s)
        except MeshError as error:
            return Failure(INVALID, error.message, final=True)
        async with self._slots:
            try:
                process = await self._serving()
            except MeshError as error:
                return Failure(FATAL, error.message, final=True)
            except OSError as error:
                return Failure(FATAL, f"the worker could not be prepared: {error}")
            doing = process.give(work.run, request, emit)
            try:
                return await self._ended(process, doing, clocks)
            finally:
                process.forget(work.run)

    async def close(self) -> None:
        """End the process: first by the end of its input, then by signals."""
        process = self._process
        if process is None:
            return
        process.finish()
        await asyncio.wait({process.gone}, timeout=self.limits.grace_s)
        await process.end()

    async def _ended(self, process: WorkerProcess, doing: Doing, clocks: Clocks) -> Outcome:
        try:
            why = await clocks.until(process.child, doing.outcome)
        except asyncio.CancelledError:
            stopped = Failure("abandoned", "it was cancelled", abandoned=True)
            await self._stopped(process, doing, stopped)
            raise
        if why == "ended":
            return doing.outcome.result()
        failure = Failure(TIMEOUT, clocks.said(why), used=doing.used)
        await self._stopped(process, doing, failure)
        return failure

    async def _stopped(self, process: WorkerProcess, doing: Doing, failure: Failure) -> None:
        """Ask it to stop this work; end the process if it does not."""
        process.cancel(doing.id)
        try:
            await asyncio.wait({doing.outcome}, timeout=self.limits.grace_s)
        finally:
            if not doing.outcome.done():
                await process.end({doing.id: failure})

    async def _serving(self) -> WorkerProcess:
        """The running process, or a new one after its pause."""
        async with self._starting:
            process = self._process
            if process is not None and not process.child.exited.done() and not process.ending:
                return process
            if process is not None:
                await asyncio.wait({process.gone})
                self._note_end(process)
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            return await self._new()

    async def _new(self) -> WorkerProcess:
        self._started += 1
        process = WorkerProcess(
            self.command,
            self.limits,
            runs=self.runs,
            mark=f"{self.mark}.{self._started}",
            directory=self.directory,
        )
        try:
            await process.admit()
        except BaseException:
            await process.end()
            raise
        self._process = process
        return process

    def _note_end(self, process: WorkerProcess) -> None:
        self._process = None
        if process.answered or process.ending:
            self._died = 0
            self._not_before = 0.0
            return
        pause_s = min(self._pause_s_max, self._pause_s_min * 2 ** min(self._died, 30))
        self._died += 1
        self._not_before = asyncio.get_running_loop().time() + pause_s
