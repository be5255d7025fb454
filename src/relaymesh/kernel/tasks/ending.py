"""Ends of steps and tasks: results, failures, timeouts, cancels.

Nothing here sends a message, so nothing here can be refused because a mailbox is full.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import Conflict, InvalidPlan, LeaseLost, PayloadTooLarge
from relaymesh.kernel.completion import finish as finish_messages
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.failures import drop
from relaymesh.kernel.gate import note_success
from relaymesh.kernel.leases import prolong
from relaymesh.kernel.payload import REFERENCE_MARK, full_size
from relaymesh.kernel.records import Failure, StepsAdded, StepsEnded, TaskClosing, TaskEnded, TaskUndoing
from relaymesh.kernel.tasks.commands import Answer, Cancel, Fail, Finish, Grow, Report
from relaymesh.kernel.tasks.ends import WITHDRAWN
from relaymesh.kernel.tasks.growing import check_growth
from relaymesh.kernel.tasks.link import Link
from relaymesh.kernel.tasks.spending import keep_budget, note_usage
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.task import FILED_BYTES_MAX, OUTPUT_BYTES_MAX, Task
from relaymesh.kernel.tasks.waiting import hand_signals, live_task, take_answer, time_is_over
from relaymesh.kernel.token import format_token


def finish(decision: Decision, command: Finish) -> Status:
    """The result of a step. It counts, even late, if its token is that of the last grant of the step."""
    task, number = granted(decision, command.token)
    _require_room(task, number, task.kept, len(command.output), OUTPUT_BYTES_MAX)
    if command.output.startswith(REFERENCE_MARK):
        kept = sum([full_size(step.output) for step in task.steps if step.output is not None])
        _require_room(task, number, kept, full_size(command.output), FILED_BYTES_MAX)
    note_usage(decision, task, number, command.usage)
    found = entry_of(decision, task, number)
    if found is not None and found[1].lease is not None:
        note_success(decision, decision.state.mailboxes[found[0]], [found[1]])
    decision.emit(StepsEnded(1, decision.now, task.id, [number], "SUCCESS", [command.output], command.token))
    if found is not None:
        finish_messages(decision, found[0], [found[1]])
    return state_after(decision, task)


def _require_room(task: Task, number: int, kept: int, added: int, most: int) -> None:
    if kept + added > most:
        raise PayloadTooLarge(
            f"task {task.id} keeps {kept} bytes of results, and step {task.name_of(number)} adds"
            f" {added}; {most} are allowed",
            hint="return a reference (a path or a URL) in place of the data",
        )


def fail(decision: Decision, command: Fail) -> Status:
    """The agent says that the step cannot be done. For the breaker this is a success: the agent responded."""
    task, number = granted(decision, command.token)
    note_usage(decision, task, number, command.usage)
    found = entry_of(decision, task, number)
    if found is not None and found[1].lease is not None:
        note_success(decision, decision.state.mailboxes[found[0]], [found[1]])
    _end(decision, task, [number], "FAILED", command.code, command.reason, command.token)
    return state_after(decision, task)


def grow(decision: Decision, command: Grow) -> Status:
    """The holder of a step ends it with more steps. If this comes late, it counts like a late result."""
    task, number = granted(decision, command.token)
    if not task.plan_of(number).grows:
        raise InvalidPlan(
            f"step {task.name_of(number)} of task {task.id} may not add steps",
            hint="write grows: true at this step of the workflow",
        )
    if task.steps[number].undoes >= 0 or task.closing is not None:
        raise Conflict(f"task {task.id} closes: it begins no new steps")
    check_growth(decision, task, number, command.steps)
    note_usage(decision, task, number, command.usage)
    found = entry_of(decision, task, number)
    if found is not None and found[1].lease is not None:
        note_success(decision, decision.state.mailboxes[found[0]], [found[1]])
    steps = list(command.steps)
    decision.emit(StepsAdded(1, decision.now, task.id, number, [], steps, None, command.token))
    if found is not None:
        finish_messages(decision, found[0], [found[1]])
    return state_after(decision, task)


def report(decision: Decision, command: Report) -> None:
    """Keep the report of the holder. The holder lives, so its lease is renewed if it still has it."""
    task, number = granted(decision, command.token)
    step = task.steps[number]
    step.progress = command.progress or step.progress
    _tell(decision, task)
    note_usage(decision, task, number, command.usage)
    lease = decision.state.lease(command.token)
    if lease is not None:
        prolong(decision, lease, step.taken_ms or lease.grant.length)
    decision.after_write()


def granted(decision: Decision, token: int) -> Link:
    """The step whose last grant has this token. Its message may have been taken back since."""
    link = decision.state.board.by_token.get(token)
    if link is None or (link.step.sequence < 0 and link.step.parked is None):
        shown = format_token(token, decision.state.partition)
        raise LeaseLost(f"lease {shown} is not the last one of a step that is still open")
    return link


def entry_of(decision: Decision, task: Task, number: int) -> tuple[str, Entry] | None:
    """The mailbox and the message of a step; None: it was taken back."""
    step = task.steps[number]
    if step.sequence < 0:
        return None
    mailbox = decision.state.mailboxes[step.mailbox]
    return step.mailbox, mailbox.entries.take_out(step.sequence)


def state_after(decision: Decision, task: Task) -> Status:
    """The state of the task after this command, which may have ended it."""
    follow(decision)
    decision.after_sync()
    return task.end or task.status


def answer(decision: Decision, command: Answer) -> Status:
    """The answer that a step waits for."""
    return state_after(decision, take_answer(decision, command))


def cancel(decision: Decision, command: Cancel) -> Status:
    """Close the task. A second cancel changes nothing, except a hard one after a soft one."""
    task = live_task(decision, command.task)
    if task.closing is None or (command.hard and not task.hard and not task.undos):
        status, reason, by = task.closing or "CANCELLED", command.reason, command.by
        if task.closing is not None:
            reason, by = task.reason, task.by or by
        decision.emit(TaskClosing(1, decision.now, task.id, status, reason, by, command.hard))
    return state_after(decision, task)


def run_out(decision: Decision) -> None:
    """Tasks and steps whose time is over."""
    board = decision.state.board
    for task, number in board.deadlines.pop_due(decision.now):
        if number >= 0 and task.steps[number].wait is not None:
            time_is_over(decision, task, number)
        elif number >= 0:
            reason = f"it took longer than {task.plan_of(number).timeout_ms} ms"
            _end(decision, task, [number], "TIMEOUT", "timeout", reason)
        elif not task.hard and not task.undos:
            status: Status = task.closing or "TIMEOUT"
            reason = task.reason if task.closing else f"its deadline of {task.plan.deadline_ms} ms passed"
            decision.emit(TaskClosing(1, decision.now, task.id, status, reason, task.by, True))


def follow(decision: Decision) -> None:
    """Check the tasks that this decision changed: some end, some have steps to send."""
    board = decision.state.board
    while board.changed:
        task, _ = board.changed.popitem()
        _tell(decision, task)
        if task.id not in board.tasks:
            continue
        if task.closing is not None:
            _close(decision, task)
        elif not task.open:
            _end_task(decision, task, "SUCCESS")
        else:
            if task.signals is not None:
                hand_signals(decision, task)
            if task.cost_max or task.tokens_max:
                keep_budget(decision, task)
        if task.ready and task.id in board.tasks and task.sends and task.can_send:
            if decision.step.ready is None:
                decision.step.ready = []
            decision.step.ready.append(task.id)
    if board.unasked:
        _take_questions_back(decision)
    if board.not_undone:
        decision.step.not_undone = [*(decision.step.not_undone or ()), *board.not_undone]
        board.not_undone = []
    decision.step.owes = bool(board.owed)


def _close(decision: Decision, task: Task) -> None:
    """A task that closes: its messages are taken back, its finished steps are undone, then it ends."""
    _withdraw(decision, task)
    if task.out or task.closing is None:
        return
    if not task.undos and (undo := task.to_undo()):
        steps, uncertain = [number for number, _ in undo], [doubt for _, doubt in undo]
        decision.emit(TaskUndoing(1, decision.now, task.id, steps, uncertain))
    if task.next_undo < 0:
        _end_task(decision, task, task.closing)


def _take_questions_back(decision: Decision) -> None:
    """Drop the questions that no step waits for any more."""
    board = decision.state.board
    unasked, board.unasked = board.unasked, {}
    for sequence, address in unasked.items():
        mailbox = decision.state.mailboxes.get(address)
        if mailbox is not None and mailbox.entries.look(sequence) is not None:
            entry = mailbox.entries.take_out(sequence)
            drop(decision, address, [entry], Failure(0, decision.now, WITHDRAWN, "its step no longer waits"))


def _tell(decision: Decision, task: Task) -> None:
    """Tell the callers that watch the task that it changed."""
    task.revision = max(task.revision + 1, decision.state.sequence)
    if decision.step.changed is None:
        decision.step.changed = []
    decision.step.changed.append(task.id)


def _withdraw(decision: Decision, task: Task) -> None:
    """Take back the messages of its steps; those under a lease only if the close is hard. No step waits
    any longer."""
    numbers = [
        number
        for number in task.steps_out
        if (task.hard or task.steps[number].status != "RUNNING") and task.steps[number].undoes < 0
    ]
    numbers += task.waiting
    numbers += [number for number in task.ready if task.steps[number].parked is not None]
    if numbers:
        status: Status = "TIMEOUT" if task.closing == "TIMEOUT" else "CANCELLED"
        _end(decision, task, numbers, status, WITHDRAWN, task.reason)


def _end(
    decision: Decision,
    task: Task,
    numbers: Sequence[int],
    status: Status,
    code: str,
    reason: str,
    token: int = 0,
) -> None:
    """End steps without a result, and drop their messages."""
    by_mailbox: dict[str, list[Entry]] = {}
    for number in numbers:
        if (found := entry_of(decision, task, number)) is not None:
            by_mailbox.setdefault(found[0], []).append(found[1])
    decision.emit(
        StepsEnded(len(numbers), decision.now, task.id, list(numbers), status, [], token, code, reason)
    )
    for mailbox, entries in by_mailbox.items():
        drop(decision, mailbox, entries, Failure(0, decision.now, code, reason))


def _end_task(decision: Decision, task: Task, status: Status) -> None:
    result = task.result() if status == "SUCCESS" else b"null"
    decision.emit(TaskEnded(1, decision.now, task.id, status, result, "", task.reason))
