"""Waiting mail about tasks: a settle sends no message, so the mail is sent later (`noticing.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from relaymesh.kernel.records import NoticeKind
from relaymesh.kernel.tasks.status import Status

if TYPE_CHECKING:
    from relaymesh.kernel.tasks.task import Task

Name = tuple[str, NoticeKind]
"""A task and the kind of the mail: at most one of each kind waits at a time."""


class Owed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One piece of mail. The fields of the outcome are those of a task that has ended."""

    task: str
    kind: NoticeKind
    mailbox: str
    owner: str
    workflow: str
    key: str
    trace: str | None = None
    status: Status | None = None
    """None: the task lives, and the mail says how it is when it is sent."""
    reason: str = ""
    result: bytes | None = None


class OwedMail:
    """The waiting mail, in the order in which it was requested."""

    __slots__ = ("_owed",)

    def __init__(self) -> None:
        self._owed: dict[Name, Owed] = {}

    def __bool__(self) -> bool:
        return bool(self._owed)

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, task: Task, kind: NoticeKind, mailbox: str) -> None:
        """Mail that already waits is not added twice: its text is made when it is sent."""
        self._owed.setdefault((task.id, kind), _owed(task, kind, mailbox))

    def end(self, task: Task) -> None:
        """The task ended: its updates are not sent any more, but its outcome is."""
        self.drop(task.id, "update")
        self.drop(task.id, "budget")
        kind: NoticeKind = "complete" if task.end == "SUCCESS" else "failed"
        if kind in task.notify:
            self.add(task, kind, task.owner)
        if task.reply_to:
            self.add(task, "result", task.reply_to)

    def drop(self, task: str, kind: NoticeKind) -> None:
        self._owed.pop((task, kind), None)

    def find(self, task: str, kind: NoticeKind) -> Owed | None:
        return self._owed.get((task, kind))

    def first(self, most: int) -> list[Owed]:
        return [owed for owed, _ in zip(self._owed.values(), range(most), strict=False)]

    def all(self) -> list[Owed]:
        return list(self._owed.values())

    def restore(self, owed: Owed) -> None:
        self._owed[owed.task, owed.kind] = owed


def _owed(task: Task, kind: NoticeKind, mailbox: str) -> Owed:
    workflow, key = task.plan.name, task.key
    return Owed(
        task.id, kind, mailbox, task.owner, workflow, key, task.trace, task.end, task.reason, task.returned
    )
