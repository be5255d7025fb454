"""A script agent: one short-lived process for each attempt, in any language.

It reads one JSON object on stdin (`Request`) and writes its result on stdout: JSON, or text. Exit code 0 is
done. Lines on stderr go into the log; those that are forms (`replies`) are progress, usage and tools.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from relaymesh.agents.adapter import Event, Failure, Outcome, Work
from relaymesh.agents.child import Child, to_the_end
from relaymesh.agents.clocks import Clocks, least
from relaymesh.agents.command import Command, Limits, checked_mark, resolved
from relaymesh.agents.environment import Environment
from relaymesh.agents.output import Output
from relaymesh.agents.replies import outcome_of_exit
from relaymesh.agents.request import request_of
from relaymesh.agents.run_folder import RunFolder
from relaymesh.errors import InvalidSettings, MeshError
from relaymesh.kernel.contract import FATAL, INVALID, TIMEOUT

__all__ = ["Script"]


class Script:
    """The adapter of one script. `runs`: where each run gets its folder with logs."""

    def __init__(self, command: Command, limits: Limits | None = None, *, runs: Path) -> None:
        self.command = command
        self.limits = limits or Limits()
        self.runs = resolved(runs, "runs")

    async def run(self, work: Work, emit: Callable[[Event], None]) -> Outcome:
        """One process from start to end."""
        checked_mark(work.run)
        clocks = Clocks(
            least(self.limits.time_s, work.time_limit_s), least(self.limits.silence_s, work.silence_limit_s)
        )
        try:
            request = request_of(work, clocks.time_s)
        except MeshError as error:
            return Failure(INVALID, error.message, final=True)
        try:
            environment = Environment.of(self.command, work.run)
            with (
                _workspace(work, self.command.user) as directory,
                RunFolder(self.runs, work.run, self.limits.log_bytes_max, environment) as folder,
            ):
                output = Output(folder, environment, self.limits.result_bytes_max, emit)
                child = Child.started(
                    self.command,
                    self.limits,
                    environment,
                    mark=work.run,
                    directory=directory,
                    took=output.take,
                )
                return await self._attempt(child, output, request, clocks)
        except MeshError as error:
            return Failure(FATAL, error.message, final=True)
        except OSError as error:
            return Failure(FATAL, f"the run could not be prepared: {error}")

    async def close(self) -> None:
        """Nothing to end: no process runs longer than its attempt."""

    async def _attempt(self, child: Child, output: Output, request: bytes, clocks: Clocks) -> Outcome:
        if child.note:
            output.say(child.note)
        try:
            await child.admit()
            child.feed.write(request + b"\n")
            child.feed.finish()
            why = await clocks.until(child, child.exited, output.too_large)
        finally:
            grace_s = 0.0 if output.too_large.done() else self.limits.grace_s
            code, swept = await to_the_end(child.end(grace_s))
            output.close()
        if swept.left:
            output.say(f"processes that could not be ended: {', '.join(map(str, swept.left))}")
        if output.too_large.done():
            limit = self.limits.result_bytes_max
            return Failure(INVALID, f"the output has more than {limit} bytes", final=True, used=output.used)
        if why != "ended":
            return Failure(TIMEOUT, clocks.said(why), used=output.used)
        return self._outcome(output, code)

    def _outcome(self, output: Output, code: int) -> Outcome:
        environment = output.environment
        named = environment.secret_in(output.result)
        if named is not None:
            reason = f"the output holds the value of the secret {named}"
            return Failure(INVALID, reason, final=True, used=output.used)
        return outcome_of_exit(code, output.result, environment.blotted(output.said), output.used)


@contextlib.contextmanager
def _workspace(work: Work, user: str | None) -> Iterator[Path]:
    """The directory that it works in: the given one, or a fresh one that is removed afterwards."""
    if work.workspace is not None:
        yield resolved(work.workspace, "workspace")
        return
    fresh = Path(tempfile.mkdtemp(prefix="relaymesh-"))
    try:
        if user is not None:
            _give(fresh, user)
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _give(fresh: Path, user: str) -> None:
    try:
        shutil.chown(fresh, user)
    except LookupError:
        raise InvalidSettings(f"this system has no user {user!r}") from None
