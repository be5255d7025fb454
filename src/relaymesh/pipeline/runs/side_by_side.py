"""Builds tables that do not depend on each other at the same time.

Between two stages of a table Spark plans and compiles on one core, while the other cores are idle; another
table can use them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

__all__ = ["side_by_side"]


class Task(Protocol):
    """Something with a name that must come after others."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...


_Task = TypeVar("_Task", bound=Task)
_Answer = TypeVar("_Answer")


def side_by_side(
    tasks: Sequence[_Task], at_once: int, work: Callable[[_Task], _Answer]
) -> Generator[tuple[_Task, _Answer]]:
    """Do the work of every task in threads, each when its inputs are done; yields them as they end.

    Inputs that are no task here count as done. If one task raises, no new task is started, and the running
    ones are waited for.
    """
    waiting = list(tasks)
    under_way: dict[Future[_Answer], _Task] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="table") as pool:
        try:
            while waiting or under_way:
                unfinished = {task.name for task in (*waiting, *under_way.values())}
                ready = [task for task in waiting if unfinished.isdisjoint(task.inputs)]
                waiting = [task for task in waiting if task not in ready]
                under_way |= {pool.submit(work, task): task for task in ready}
                if not under_way:
                    raise ValueError(f"{', '.join(task.name for task in waiting)} wait for each other")
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield under_way.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)
