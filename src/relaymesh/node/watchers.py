"""Callers that watch tasks, until a task has a change that they have not seen."""

from __future__ import annotations

from relaymesh.node.release import Ticket
from relaymesh.wire.tasks import ITS_END

__all__ = ["Watchers", "is_news"]


class Watchers:
    """By task: the revision that a caller saw, and its ticket, released once the task has another one.

    Not thread-safe: the core calls it under its lock.
    """

    __slots__ = ("_watching",)

    def __init__(self) -> None:
        self._watching: dict[str, list[tuple[int, Ticket]]] = {}

    def __contains__(self, task: str) -> bool:
        return task in self._watching

    def add(self, task: str, seen: int, ticket: Ticket) -> None:
        self._watching.setdefault(task, []).append((seen, ticket))

    def remove(self, task: str, ticket: Ticket) -> None:
        self._keep(task, [each for each in self._watching.pop(task, ()) if each[1] is not ticket])

    def take(self, task: str, revision: int | None) -> list[Ticket]:
        """Those that have not seen this revision; None: the task has ended."""
        watching = self._watching[task]
        if len(watching) == 1 and not is_news(revision, watching[0][0]):
            return []
        del self._watching[task]
        self._keep(task, [each for each in watching if not is_news(revision, each[0])])
        return [ticket for seen, ticket in watching if is_news(revision, seen)]

    def take_all(self) -> list[Ticket]:
        tickets = [ticket for watching in self._watching.values() for _, ticket in watching]
        self._watching.clear()
        return tickets

    def _keep(self, task: str, left: list[tuple[int, Ticket]]) -> None:
        if left:
            self._watching[task] = left


def is_news(revision: int | None, seen: int) -> bool:
    """Whether a caller that watches a task is told: it changed, or it is not live any more (None)."""
    return revision is None or seen not in (ITS_END, revision)
