"""End every process of a run, also those that try to stay.

A process may ignore SIGTERM, call `setsid`, fork twice, or fork while it is looked for. So all that belong to
the run are stopped first (SIGSTOP cannot be ignored), looked for again until nothing new is found, and then
killed. It is over when several looks in a row find none. A process belongs to a run if it carries its mark,
is in its session or its pids cgroup, or is a child of a process that does.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator

import msgspec

from relaymesh.agents.pids_cgroup import PidsCgroup
from relaymesh.agents.processes import MARKS_FOUND, Process, alive, look, marks_alive, processes

__all__ = ["Scope", "Swept", "end_left", "end_marked", "sweep"]

WITHIN_S = 10.0
"""The time limit of a sweep. Processes that the kernel has not ended by then wait for a device, and are
reported."""
FREEZE_ROUNDS_MAX = 50
LOOKS_CLEAN = 2
LOOKS_CLEAN_OF_FORKS = 30
"""How many searches in a row must find none: more if processes were found that may fork between two
searches."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which processes belong to a run."""

    mark: str | None = None
    leader: int | None = None
    """The process that was started. It must not be reaped before the sweep: its number names its session."""
    cgroup: PidsCgroup | None = None


class Swept(msgspec.Struct, frozen=True):
    """What a sweep did."""

    ended: int = 0
    left: tuple[int, ...] = ()
    """Processes that could not be ended within the time: normally none."""


def end_marked(mark: str, *, within_s: float = WITHIN_S) -> Swept:
    """End every process that carries this mark: for a supervisor that finds what its predecessor left."""
    return sweep(Scope(mark=mark, cgroup=PidsCgroup.named(mark)), within_s=within_s)


def end_left(prefix: str, keep: Collection[str] = ()) -> dict[str, Swept]:
    """End all that carries a mark with this prefix, or is in the cgroup of one, except the marks to keep.

    For the start of a supervisor. Also removes the empty cgroups that a killed one left.
    """
    marks = {*marks_alive(prefix), *PidsCgroup.names(prefix)} - set(keep)
    return {mark: end_marked(mark) for mark in sorted(marks)}


def sweep(scope: Scope, *, within_s: float = WITHIN_S) -> Swept:
    """Kill all processes of the scope, except a leader that has ended and waits to be reaped."""
    if scope.cgroup is not None and scope.cgroup.removed():
        if scope.leader is not None:
            return Swept()  # empty, and what was in it could not leave it
        scope = Scope(mark=scope.mark)
    if not MARKS_FOUND:
        return _sweep_group(scope)
    until = time.monotonic() + within_s
    ended: set[tuple[int, int]] = set()
    looks_clean, needed = 0, LOOKS_CLEAN
    living: list[Process] = []
    while looks_clean < needed and time.monotonic() < until:
        if scope.cgroup is not None:
            scope.cgroup.forbid()
        living, forked = _frozen(scope, until)
        if not living:
            looks_clean += 1
            continue
        looks_clean = 0
        if forked:
            needed = LOOKS_CLEAN_OF_FORKS
        for process in living:
            if _send(process, signal.SIGKILL):
                ended.add((process.pid, process.started))
        _await_end(living, scope.leader, until)
    left = tuple(process.pid for process in living if alive(process))
    if scope.cgroup is not None and not left:
        scope.cgroup.removed()
    return Swept(len(ended), left)


def _frozen(scope: Scope, until: float) -> tuple[list[Process], bool]:
    """Stop all members; search again until a search finds only stopped ones.

    Also returns whether some may have forked meanwhile: more than the leader was found.
    """
    stopped: dict[tuple[int, int], Process] = {}
    for _ in range(FREEZE_ROUNDS_MAX):
        before = len(stopped)
        for process in _members(scope):
            key = (process.pid, process.started)
            if key not in stopped and _send(process, signal.SIGSTOP):
                stopped[key] = process
        if len(stopped) == before or time.monotonic() > until:
            break
    found = list(stopped.values())
    return found, any(process.pid != scope.leader for process in found)


def _members(scope: Scope) -> Iterator[Process]:
    """Yields the living members: first those that carry a mark or are in the scope, so that they are stopped
    at once, then their children.

    Zombies among them that became children of this process are reaped on the way.
    """
    in_cgroup = scope.cgroup.members() if scope.cgroup is not None else frozenset[int]()
    me = os.getpid()
    ours: set[int] = set()
    others: dict[int, list[Process]] = {}
    for process in processes():
        if process.pid == me:
            continue
        if not _named(process, scope, in_cgroup):
            others.setdefault(process.parent, []).append(process)
            continue
        ours.add(process.pid)
        if not process.ended:
            yield process
        elif process.pid != scope.leader:
            _reap(process)
    waiting = list(ours)
    while waiting:
        for child in others.pop(waiting.pop(), ()):
            waiting.append(child.pid)
            if child.ended:
                _reap(child)
            else:
                yield child


def _named(process: Process, scope: Scope, in_cgroup: Collection[int]) -> bool:
    return (
        (scope.mark is not None and process.mark == scope.mark)
        or (scope.leader is not None and scope.leader in {process.pid, process.session, process.group})
        or process.pid in in_cgroup
    )


def _reap(ended: Process) -> None:
    if ended.parent == os.getpid():
        try:
            os.waitpid(ended.pid, os.WNOHANG)
        except ChildProcessError:
            pass


def _send(process: Process, number: signal.Signals) -> bool:
    """Signal this process, unless its number belongs to another one by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = look(process.pid)
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _await_end(killed: Iterable[Process], leader: int | None, until: float) -> None:
    for process in killed:
        while alive(process) and time.monotonic() < until:
            time.sleep(0.001)
        now = look(process.pid)
        if now is not None and now.started == process.started and now.ended and now.pid != leader:
            _reap(now)


def _sweep_group(scope: Scope) -> Swept:
    """Without /proc: only the process group."""
    if scope.leader is None:
        return Swept()
    try:
        os.killpg(scope.leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return Swept()
    return Swept(1)
