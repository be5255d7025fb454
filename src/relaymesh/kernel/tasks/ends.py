"""What follows when a step ends: other steps become ready, outputs are freed, its group may end too.

All of it follows from records alone, so a replay does the same.
"""

from __future__ import annotations

import msgspec

from relaymesh.kernel.step import NotUndone
from relaymesh.kernel.tasks.owed import OwedMail
from relaymesh.kernel.tasks.shape import Group
from relaymesh.kernel.tasks.status import EVENT_OF, GOOD, Status
from relaymesh.kernel.tasks.task import NULL, OUTPUT_BYTES_MAX, Task

WITHDRAWN = "withdrawn"
"""The code of a step whose message was taken back, because its task or its group ends."""


class Ends:
    """The half of the board that ends steps."""

    def __init__(self) -> None:
        self.owed = OwedMail()
        """Mail about tasks that is not sent yet."""
        self.live = False
        self.not_undone: list[NotUndone] = []
        """Volatile. Undos that failed in this step: `follow` has them told."""

    def _touch(self, task: Task, number: int) -> None:
        raise NotImplementedError

    def _grow(self, task: Task, size: int) -> None:
        raise NotImplementedError

    def _unlink(self, task: Task, number: int) -> None:
        raise NotImplementedError

    def _end(
        self,
        task: Task,
        number: int,
        status: Status,
        output: bytes | None,
        at: int,
        code: str = "",
        reason: str = "",
    ) -> None:
        step = task.steps[number]
        task.not_ready(number)
        self._read(task, number)
        self._forget_content(task, number)
        task.move(number, EVENT_OF[status], at)
        if status in GOOD:
            code = reason = ""
        step.code, step.reason = code, reason
        self._count_order(task, number)
        if step.undoes >= 0 and status not in GOOD and self.live:
            name, mailbox = task.name_of(number), step.mailbox or task.plan_of(number).mailbox
            self.not_undone.append(NotUndone(task.id, name, mailbox, status, code, reason))
        self._settled(task, number, output, at)

    def _settled(self, task: Task, number: int, output: bytes | None, at: int) -> None:
        """Count a step as ended, for the steps that need it and for its parent."""
        step = task.steps[number]
        self._touch(task, number)
        self._unsee(task, number)
        step.ended_at = at
        task.open -= 1
        good = step.status in GOOD
        if output is None and not good:
            output = _failed(step.code, step.reason)
            if task.kept + len(output) > OUTPUT_BYTES_MAX // 2:
                output = _failed(step.code, "")
        is_item = task.is_item(number)
        if step.readers or is_item:
            step.output = output
            task.kept += len(output or b"")
        if not good and not task.caught(number) and task.closing is None:
            task.closing = "TIMEOUT" if step.status == "TIMEOUT" else "FAILED"
            task.reason = f"step {task.name_of(number)}: {step.reason or step.code or step.status}"
        for waiting in task.followers_of(number):
            follower = task.steps[waiting]
            follower.waits_for -= 1
            if not follower.waits_for and follower.status == "PENDING" and not task.undos:
                task.make_ready(waiting)
        if step.undoes >= 0 and (following := task.next_undo) >= 0:
            task.make_ready(following)
        if step.parent >= 0:
            self._part_settled(task, number, at)
        if "update" in task.notify:
            self.owed.add(task, "update", task.owner)

    def _part_settled(self, task: Task, number: int, at: int) -> None:
        """Count the end of this step for the step that was replaced by it and others."""
        step = task.steps[number]
        parent = task.steps[step.parent]
        parent.open_items -= 1
        fails = step.status not in GOOD and step.code != WITHDRAWN and not task.catches(number)
        if fails and not task.is_item(number) and task.caught(number) and task.closing is None:
            self._stop_group(task, step.parent, at)  # a close takes back what waits by itself
        if not parent.open_items and not parent.ended:
            self._join(task, step.parent, at)

    def _stop_group(self, task: Task, parent: int, at: int) -> None:
        """A step of a group failed: steps of the group that are not granted are cancelled."""
        for number in task.steps[parent].items:
            step = task.steps[number]
            if step.items and not step.ended:
                self._stop_group(task, number, at)
            elif not step.ended and step.sequence < 0:
                self._unlink(task, number)
                self._end(task, number, "CANCELLED", None, at, WITHDRAWN, "another step of its group failed")

    def _join(self, task: Task, parent: int, at: int) -> None:
        """All steps that replaced a step have ended: it ends too."""
        numbers, group = task.steps[parent].items, task.groups.get(parent)
        bad = [task.steps[each] for each in numbers if task.steps[each].status not in GOOD]
        if group is None:
            output = b"[" + b",".join([task.steps[each].output or NULL for each in numbers]) + b"]"
            failed = [each for each in bad if each.code != WITHDRAWN]
            if task.plan_of(parent).on_failure == "continue":
                bad, failed = [each for each in bad if each.code == WITHDRAWN], []
        else:
            output = task.result(group)
            uncaught = [task.steps[each] for each in numbers if not task.catches(each)]
            bad = [each for each in uncaught if each.status not in GOOD]
            failed = [each for each in bad if each.code != WITHDRAWN]
        self._free_joined(task, numbers, group)
        if failed:
            self._end(task, parent, "FAILED", None, at, failed[0].code, failed[0].reason)
        elif bad:
            self._end(task, parent, bad[0].status, None, at, bad[0].code, bad[0].reason)
        else:
            self._end(task, parent, "SUCCESS", output, at)

    def _free_joined(self, task: Task, numbers: range, group: Group | None) -> None:
        """The outputs of these are part of one output now."""
        if group is not None:
            for leaf in group.shape.leaves:
                self._unread(task, group.first + leaf)
            return
        for number in numbers:
            step = task.steps[number]
            self._touch(task, number)
            if not step.readers:
                task.kept -= len(step.output or b"")
                step.output = None

    def _read(self, task: Task, number: int) -> None:
        """The inputs of a step were read: free the outputs that no other step reads."""
        step, home = task.steps[number], task.home_of(number)
        if (
            home is not None
            and step.undoes < 0
            and not step.sent_at
            and step.parked is None
            and not step.ended
        ):
            for source in task.reads(home, task.plan_of(number)):
                self._unread(task, source)

    def _unsee(self, task: Task, number: int) -> None:
        """A step that could have grown ends: free the outputs that its new steps could have read."""
        home = task.home_of(number)
        if home is not None and task.steps[number].undoes < 0:
            for source in task.plan_of(number).sees:
                self._unread(task, home.first + source)

    def _unread(self, task: Task, number: int) -> None:
        step = task.steps[number]
        step.readers -= 1
        if not step.readers and step.output is not None:
            task.kept -= len(step.output)
            step.output = None
            self._touch(task, number)

    def _forget_content(self, task: Task, number: int) -> None:
        """It was sent, or ended: its item is no longer needed, except to undo it."""
        step = task.steps[number]
        if step.parked is not None:
            self._grow(task, -len(step.parked))
            step.parked = None
        if step.item is not None and task.plan_of(number).undo is None:
            self._grow(task, -len(step.item))
            step.item = None

    def _count_order(self, task: Task, number: int) -> None:
        """Steps are undone in the reverse of the order in which they finished."""
        step = task.steps[number]
        if task.plan_of(number).undo is not None and not step.order:
            task.orders += 1
            step.order = task.orders


def _failed(code: str, reason: str) -> bytes:
    """The output of a step whose failure is caught."""
    return msgspec.json.encode({"error": {"code": code, "reason": reason}})
