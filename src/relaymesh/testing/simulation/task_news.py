"""The ledger of tasks: mail about them, to their owners and to those that asked for results."""

from __future__ import annotations

import json
from typing import Any

from relaymesh.testing.simulation.task_ends import TaskEnds
from relaymesh.testing.simulation.told import TaskTold
from relaymesh.testing.simulation.verdict import Violation

TYPES = {"update": "task_update", "complete": "task_complete", "failed": "task_failed", "budget": "question"}


class News(TaskEnds):
    """What is owed is sent once, and nothing else is."""

    def _owe_outcome(self, task: TaskTold) -> None:
        """The task has ended: what it said of its life is not sent any more."""
        self.owed.pop((task.id, "update"), None)
        self.owed.pop((task.id, "budget"), None)
        kind = "complete" if task.end == "SUCCESS" else "failed"
        if kind in task.notify:
            self.owed[task.id, kind] = task.owner
        if task.reply_to:
            self.owed[task.id, "result"] = task.reply_to

    def notice_sent(self, record: list[Any], envelope: list[Any] | None) -> None:
        """`envelope`: of the message that was accepted just before in its mailbox; None: there is none."""
        id, kind, mailbox = record[3:6]
        task = self.tasks.get(id)
        owed = self.owed.pop((id, kind), None)
        if task is None or owed is None:
            raise Violation("mail_once", f"mail about task {id} ({kind}) was sent, and none is owed")
        if not mailbox and envelope is None:
            return  # there is no such mailbox
        if mailbox != owed or envelope is None:
            raise Violation("mail_once", f"mail about task {id} ({kind}) went to {mailbox}, not {owed}")
        self._check_news(task, kind, envelope)

    def _check_news(self, task: TaskTold, kind: str, envelope: list[Any]) -> None:
        type = TYPES.get(kind) or ("task_complete" if task.end == "SUCCESS" else "task_failed")
        told = json.loads(envelope[2])
        wanted = {"task": task.id, "workflow": task.plan[0], "key": task.key}
        if kind in ("complete", "failed", "result"):
            wanted["status"] = task.end
            if task.end == "SUCCESS":
                wanted["result"] = task.result
        if envelope[4] != type or any(told.get(name) != value for name, value in wanted.items()):
            raise Violation("mail_once", f"mail about task {task.id} ({kind}, {envelope[4]}) says {told}")
