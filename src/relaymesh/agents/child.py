"""One contained process, and all processes that it starts: start, input, output, end.

The process leads its own session and has the mark of its run in its environment. If the number of its
processes is limited, it first waits at a gate: a shell that reads one line and then becomes the program. So
the limit is in force before the program runs.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from relaymesh.agents.command import Command, Limits, checked_mark
from relaymesh.agents.environment import Environment
from relaymesh.agents.pids_cgroup import PidsCgroup
from relaymesh.agents.pipes import Feed, Reader
from relaymesh.agents.sweep import Scope, Swept, sweep
from relaymesh.errors import InvalidSettings

__all__ = ["LEADERS", "Child", "to_the_end"]

GATE = ("/bin/sh", "-c", 'read -r go && exec "$@"', "relaymesh-gate")
"""The text is constant; the program and its arguments are the shell's arguments, which it does not read."""
BOUNDING = '{ ulimit -u "$1" 2>/dev/null || ulimit -p "$1"; } && shift && read -r go && exec "$@"'
"""The same with a bound on the processes of its user, which each shell spells in its own way."""
REAP_S = 5.0
POLL_S = 0.02

LEADERS: set[int] = set()
"""Processes that were started here and are not reaped yet. Children belong to the whole process, not to
one object."""

Got = TypeVar("Got")


class Child:
    """A started process. Call `end`: it ends everything that belongs to the process."""

    def __init__(
        self, process: subprocess.Popen[bytes], scope: Scope, took: Callable[[str, bytes], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.scope = scope
        self.note = ""
        """What is not prevented although the limits ask for it; "" if nothing."""
        self.heard = loop.time()
        """When it last wrote something."""
        self.exited: asyncio.Future[None] = loop.create_future()
        self._took = took
        LEADERS.add(process.pid)
        self._gated = False
        self._watch = _watch_exit(process, self.exited)
        self.feed = Feed(process.stdin)
        self._readers = [
            Reader(process.stdout, self._taker("stdout")),
            Reader(process.stderr, self._taker("stderr")),
        ]

    @classmethod
    def started(
        cls,
        command: Command,
        limits: Limits,
        environment: Environment,
        *,
        mark: str,
        directory: Path,
        took: Callable[[str, bytes], None],
    ) -> Child:
        """Start the process. `took(stream, data)` gets its output. Raises `InvalidSettings`."""
        argv = _argv(command, environment, directory)
        cgroup = PidsCgroup.made(checked_mark(mark), limits.processes_max)
        try:
            user_bound, note = _user_bound(command, limits, cgroup)
            gated = cgroup is not None or user_bound is not None
            process = _popen([*_gate(user_bound), *argv] if gated else argv, command, environment, directory)
            try:
                child = cls(process, Scope(mark=mark, leader=process.pid, cgroup=cgroup), took)
            except BaseException:
                _undo(process)
                raise
        except BaseException as error:
            if cgroup is not None:
                cgroup.removed()
            if isinstance(error, OSError):
                raise InvalidSettings(f"{argv[0]} cannot be started: {error}") from None
            raise
        child.note = note
        child._gated = gated
        return child

    async def admit(self) -> None:
        """Limit its processes, and let it pass the gate. Raises `InvalidSettings`; then call `end` too.

        In a thread: the kernel takes milliseconds to move a process into a cgroup.
        """
        if not self._gated:
            return
        if self.scope.cgroup is not None:
            try:
                await asyncio.to_thread(self.scope.cgroup.add, self.process.pid)
            except OSError as error:
                raise InvalidSettings(f"it cannot be put into its cgroup: {error}") from None
        self.feed.write(b"\n")

    def _taker(self, stream: str) -> Callable[[bytes], None]:
        loop = asyncio.get_running_loop()

        def take(data: bytes) -> None:
            self.heard = loop.time()
            self._took(stream, data)

        return take

    def catch_up(self) -> None:
        """Read what it has written to stderr so far: the log of a work must be complete before the work
        ends."""
        self._readers[1].catch_up()

    async def end(self, grace_s: float) -> tuple[int, Swept]:
        """End all of its processes that still run: SIGTERM, wait, SIGKILL. Returns the exit code
        (negative: a signal) and the remaining output."""
        self.feed.close()
        if not self.exited.done():
            _signal_group(self.process.pid, signal.SIGTERM)
            await asyncio.wait({self.exited}, timeout=grace_s)
        swept = await asyncio.to_thread(sweep, self.scope)
        await asyncio.wait({self.exited}, timeout=REAP_S)
        for reader in self._readers:  # all that it wrote before its end is in the pipes by now
            reader.catch_up()
            reader.close()
        self._watch()
        code = self.process.poll()
        if code is None:  # the kernel cannot end it now: it waits for a device
            return -signal.SIGKILL, Swept(swept.ended, (*swept.left, self.process.pid))
        LEADERS.discard(self.process.pid)
        if self.scope.cgroup is not None:
            self.scope.cgroup.removed()
        return code, swept


async def to_the_end(ending: Coroutine[Any, Any, Got]) -> Got:
    """Await something that must not be interrupted. A cancellation that comes meanwhile is raised
    afterwards."""
    task = asyncio.ensure_future(ending)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


def _argv(command: Command, environment: Environment, directory: Path) -> list[str]:
    """The arguments, with the program as a path. Raises `InvalidSettings` if there is none."""
    program = command.argv[0]
    path = environment.variables.get("PATH", os.defpath)
    found = str(directory / program) if "/" in program else program
    found = shutil.which(found, path=path) or ""
    if not found:
        raise InvalidSettings(
            f"there is no program {program!r} that can be run",
            hint="check its path, its permission to be run, and PATH",
        )
    return [str(Path(found).absolute()), *command.argv[1:]]


def _user_bound(command: Command, limits: Limits, cgroup: PidsCgroup | None) -> tuple[int | None, str]:
    """The limit on the processes of its user, if no cgroup limits them; and what is not prevented."""
    if limits.processes_max is None or cgroup is not None:
        return None, ""
    if command.user is not None and os.geteuid() == 0 and hasattr(os, "pidfd_open"):
        return limits.processes_max, ""
    reason = "processes_max needs a pids cgroup that this process may make, or root and a user of its own"
    if limits.processes_unbounded == "refuse":
        raise InvalidSettings(
            reason,
            hint="delegate a cgroup, set user, or set processes_unbounded = 'run' to run without a limit",
        )
    return None, f"not prevented: a fork bomb; {reason}"


def _gate(user_bound: int | None) -> tuple[str, ...]:
    if user_bound is None:
        return GATE
    return (*GATE[:2], BOUNDING, GATE[3], str(user_bound))


def _popen(
    argv: list[str], command: Command, environment: Environment, directory: Path
) -> subprocess.Popen[bytes]:
    user: dict[str, Any] = {}
    if command.user is not None:
        try:
            entry = pwd.getpwnam(command.user)
        except KeyError:
            raise InvalidSettings(f"this system has no user {command.user!r}") from None
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment.variables,
        cwd=directory,
        start_new_session=True,
        **user,
    )


def _undo(process: subprocess.Popen[bytes]) -> None:
    """The process waits at the gate, or has only just passed it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _signal_group(leader: int, number: signal.Signals) -> None:
    """The leader was not reaped, so the number still belongs to this group."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def _watch_exit(process: subprocess.Popen[bytes], exited: asyncio.Future[None]) -> Callable[[], object]:
    """Set the future when the process has ended, without reaping it. Returns how to stop watching."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        if not exited.done():
            exited.set_result(None)

    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return _poll_exit(process, tell)

    def stop() -> None:
        nonlocal handle
        if handle >= 0:
            loop.remove_reader(handle)
            os.close(handle)
            handle = -1

    def seen() -> None:
        loop.remove_reader(handle)
        tell()

    loop.add_reader(handle, seen)
    return stop


def _poll_exit(process: subprocess.Popen[bytes], tell: Callable[[], None]) -> Callable[[], object]:
    """Without a descriptor for the process: poll. This reaps the process."""

    async def look() -> None:
        while process.poll() is None:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(POLL_S)
        tell()

    return asyncio.get_running_loop().create_task(look()).cancel
