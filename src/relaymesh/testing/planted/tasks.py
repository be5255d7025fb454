"""Tasks: which step is sent, whose result counts, when a task ends."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.kernel import DECISIONS, Kernel
from relaymesh.kernel.records import Accepted, DeadLettered, Redriven, Returned, StepsEnded
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks import advance, ending, looks, pieces
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.commands import Cancel, Finish, Submit
from relaymesh.kernel.tasks.deadlines import Deadlines
from relaymesh.kernel.tasks.ends import Ends
from relaymesh.kernel.tasks.keys import Keys
from relaymesh.kernel.tasks.link import Link
from relaymesh.kernel.tasks.looks import ReadyStep
from relaymesh.kernel.tasks.plan import PARALLEL_MAX
from relaymesh.kernel.tasks.status import GOOD
from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task
from relaymesh.node.advancing import Advancing
from relaymesh.node.daily import Daily
from relaymesh.node.tasks import Tasks
from relaymesh.store import SqliteStore
from relaymesh.store.tasks import TaskChanges
from relaymesh.testing.planted.bug import Original, at, plant
from relaymesh.wire.payload import Get

# What is sent


@plant(
    at(Board, "go_live"),
    broken="a start sends no step whose need ended just before the crash",
    like="Airflow: tasks stuck as scheduled after the scheduler died",
)
def successor_lost_at_restart(original: Original, board: Board) -> None:
    original(board)
    board.changed.clear()


@plant(at(Advancing, "_block"), broken="a step that found a mailbox full is never tried again")
def successor_lost_when_full(original: Original, advancing: Advancing, task: str, why: str) -> None:
    pass


@plant(
    at(advance, "_send"),
    broken="the message of a step is sent twice",
    like="Celery: a chord's body runs twice",
)
def successor_sent_twice(
    original: Original, decision: Decision, task: Task, address: str, moves: Any, sent: int
) -> int:
    first = decision.state.sequence
    count: int = original(decision, task, address, moves, sent)
    entry = decision.state.mailboxes[address].entries.look(first) if count else None
    if entry is not None:
        again = msgspec.structs.replace(entry.envelope, id=entry.envelope.id + "-2")
        decision.emit(Accepted(1, decision.now, address, [again]))
    return count


@plant(at(Task, "runs_if_it_may"), broken="a handler runs although nothing failed")
def handler_runs_anyway(original: Original, task: Task, number: int) -> bool:
    return True


@plant(at(looks, "_ready"), broken="a condition is not looked at: a step that is to be skipped runs")
def skipped_step_runs(original: Original, task: Task, number: int) -> ReadyStep:
    ready: ReadyStep = original(task, number)
    return msgspec.structs.replace(ready, when="")


@plant(at(looks, "_ready"), broken="a step reads the output of another step than it names")
def output_of_another_step(original: Original, task: Task, number: int) -> ReadyStep:
    ready: ReadyStep = original(task, number)
    values = [output for _, output in ready.outputs]
    names = [name for name, _ in ready.outputs]
    moved = tuple(zip(names, [*values[1:], *values[:1]], strict=True))
    return msgspec.structs.replace(ready, outputs=moved)


@plant(at(Task, "room_in"), broken="more items of a step are out at once than it allows")
def window_ignored(original: Original, task: Task, parent: int) -> int:
    return PARALLEL_MAX


@plant(
    at(Ends, "_settled"),
    broken="a step is sent when the first of its needs has ended",
    like="Prefect: a task starts before its upstreams are done",
)
def first_need_is_enough(
    original: Original, board: Board, task: Task, number: int, output: bytes | None, at: int
) -> None:
    original(board, task, number, output, at)
    for waiting in task.followers_of(number):
        if task.steps[waiting].status == "PENDING" and not task.steps[waiting].sent_at:
            task.make_ready(waiting)


@plant(
    at(Advancing, "_advance"),
    broken="what became ready in the advance of another task is not sent",
    first_seed=840,
)
def other_task_forgotten(original: Original, advancing: Advancing, task: str, step: Step) -> list[str]:
    original(advancing, task, step)
    return []


@plant(at(advance, "_send"), broken="steps are sent to an agent that drains")
def drain_ignored(
    original: Original, decision: Decision, task: Task, address: str, moves: Any, room: Any
) -> int:
    agent = decision.state.agents.pop(address, None)
    count: int = original(decision, task, address, moves, room)
    if agent is not None:
        decision.state.agents[address] = agent
    return count


# Fan-in


@plant(at(Ends, "_part_settled"), broken="a step with items ends one item too early")
def fan_in_off_by_one(original: Original, board: Board, task: Task, number: int, at: int) -> None:
    step = task.steps[task.steps[number].parent]
    if step.open_items == 2:
        step.open_items = 1
    original(board, task, number, at)


@plant(at(Task, "result"), broken="the result of a task is that of its first step")
def result_of_another_step(original: Original, task: Task, group: Any = None) -> bytes:
    original(task, group)
    return task.steps[0].output or b"null"


# Whose result counts


@plant(
    at(Board, "granted"),
    broken="the token of an earlier grant still settles a step",
    like="leases without enforced fencing",
    first_seed=42,
)
def late_result_after_another_grant(original: Original, board: Board, record: Any) -> None:
    held = dict(board.by_token)
    original(board, record)
    for token, link in held.items():
        board.by_token.setdefault(token, link)


@plant(
    at(DECISIONS, Finish),
    at(Board, "ended"),
    broken="a late result revives a step that has ended",
    like="a zombie worker overwrites the state of a task that was given up",
)
def late_result_revives_step(original: Original, first: Any, second: Any) -> Any:
    if isinstance(first, Board):
        task = first.tasks[second.task]
        for number in second.steps:
            _revive(task, number)
    elif second.token not in first.state.board.by_token:
        for task in first.state.board.tasks.values():
            for number, step in enumerate(task.steps):
                if step.token == second.token and step.ended and task.closing is None:
                    first.emit(
                        StepsEnded(1, first.now, task.id, [number], "SUCCESS", [second.output], second.token)
                    )
                    first.after_sync()
                    return task.status
    return original(first, second)


def _revive(task: Task, number: int) -> None:
    step = task.steps[number]
    if step.ended:
        step.status, step.ended_at = "RUNNING", -1
        task.open += 1
        task.kept -= len(step.output or b"")
        if step.parent >= 0:
            task.steps[step.parent].open_items += 1
        for waiting in task.followers_of(number):
            task.steps[waiting].waits_for += 1


@plant(at(Kernel, "step"), broken="the answer to a result does not wait for the sync")
def result_not_synced(original: Original, kernel: Kernel, command: Any, now: int) -> Any:
    step = original(kernel, command, now)
    if isinstance(command, Finish):
        step.synced = 0
    return step


@plant(at(Board, "has_step"), broken="a step goes to its worker before its grant is synced")
def grant_not_synced(original: Original, board: Board, sequences: Any) -> bool:
    return False


@plant(at(DECISIONS, Finish), broken="the result of a step is taken, and null is kept")
def result_dropped(original: Original, decision: Decision, command: Finish) -> Any:
    return original(decision, Finish(command.token, b"null"))


# Attempts


@plant(
    at(Link, "spent"),
    broken="abandonments count as failures: kills of a node use up the attempts of honest work",
    like="Celery: a lost worker uses up the retries",
)
def abandonment_counted_as_failure(original: Original, link: Link, cause: str, retries: int) -> bool:
    return link.step.failed + link.step.abandoned >= retries


@plant(at(Link, "spent"), broken="a step is granted again however often its holders died")
def abandonments_unlimited(original: Original, link: Link, cause: str, retries: int) -> bool:
    return cause == "nack" and link.step.failed >= retries


@plant(at(Board, "returned"), broken="failures of a step are not counted")
def failures_not_counted(original: Original, board: Board, record: Returned) -> None:
    before = [(link, link.step.failed) for s in record.sequences if (link := board.links.get(s)) is not None]
    original(board, record)
    for link, failed in before:
        link.step.failed = failed


# Keys


@plant(
    at(Keys, "end"),
    broken="the key of a task is forgotten when it ends: the same request runs again",
    like="an idempotency key that lives as long as its request",
)
def key_forgotten(original: Original, keys: Keys, task: Task, record: Any, through: int) -> None:
    original(keys, task, record, through)
    keys._ended.pop((task.namespace, task.key))


@plant(at(pieces, "_restore_task"), broken="a task comes back from a checkpoint without its key")
def key_lost_in_checkpoint(original: Original, board: Board, piece: Any, plans: Any) -> None:
    original(board, msgspec.structs.replace(piece, key=piece.key + "?"), plans)


@plant(at(DECISIONS, Submit), broken="a key that is known answers for any request")
def conflict_of_keys_ignored(original: Original, decision: Decision, command: Submit) -> Any:
    held = decision.state.board.keys.find(namespace_of(command.owner), command.key)
    if held is not None:
        command.request = held.request
    return original(decision, command)


# Ends


@plant(at(ending, "_withdraw"), broken="a cancel leaves the messages of waiting steps where they are")
def cancel_ignored_by_waiting_step(original: Original, decision: Decision, task: Task) -> None:
    if task.hard:
        original(decision, task)


@plant(at(ending, "_withdraw"), broken="a soft cancel takes steps from their holders")
def soft_cancel_is_hard(original: Original, decision: Decision, task: Task) -> None:
    hard, task.hard = task.hard, True
    original(decision, task)
    task.hard = hard


@plant(at(DECISIONS, Cancel), broken="a cancel is answered and does nothing")
def cancel_lost(original: Original, decision: Decision, command: Cancel) -> str:
    task = decision.state.board.tasks.get(command.task)
    if task is None or task.closing is not None:
        return str(original(decision, command))
    decision.after_sync()
    return "CANCELLED"


@plant(at(DECISIONS, Cancel), broken="a cancel that comes after the end changes a success", first_seed=93)
def cancel_changes_success(original: Original, decision: Decision, command: Cancel) -> str:
    over = decision.state.board.over
    shown = over.get(command.task)
    if shown is None or shown.task.status != "SUCCESS":
        return str(original(decision, command))
    ended = msgspec.structs.replace(shown.task, status="CANCELLED", result=None)
    over[command.task] = msgspec.structs.replace(shown, task=ended)
    decision.after_sync()
    return "CANCELLED"


@plant(
    at(ending, "_end_task"),
    broken="a task that was cancelled ends as a success if its steps succeeded",
    first_seed=53,
)
def cancel_loses_the_race(original: Original, decision: Decision, task: Task, status: Any) -> None:
    done = all(step.status in GOOD for step in task.steps)
    original(decision, task, "SUCCESS" if done else status)


@plant(at(Board, "go_live"), broken="the deadline of a task is forgotten at a start")
def deadline_lost_at_restart(original: Original, board: Board) -> None:
    original(board)
    board.deadlines = Deadlines(board.tasks)


@plant(at(Deadlines, "add_task"), broken="a task has twice the time that its deadline allows")
def deadline_doubled(original: Original, deadlines: Deadlines, task: Task) -> None:
    if task.deadline_at:
        task.deadline_at += task.plan.deadline_ms + 60_000
    original(deadlines, task)


@plant(at(Task, "times_out_at"), broken="the timeout of a step is counted from the submit of its task")
def timeout_from_submit(original: Original, task: Task, number: int) -> int:
    at = original(task, number)
    return task.at + task.plan_of(number).timeout_ms if at else 0


@plant(at(Deadlines, "add_step"), broken="a step has all the time in the world")
def step_timeout_lost(original: Original, deadlines: Deadlines, task: Task, number: int) -> None:
    pass


@plant(at(Task, "caught"), broken="a failed step that nothing catches does not end its task")
def failure_goes_unnoticed(original: Original, task: Task, number: int) -> bool:
    return True


# Dead letters


@plant(at(Board, "redriven"), broken="a dead letter that is redriven is no step any more", first_seed=89)
def redriven_letter_forgets_its_step(
    original: Original, board: Board, record: Redriven, sequence: int
) -> None:
    board.letters.pop((record.source, record.dead_sequence), None)


@plant(at(Board, "purged"), broken="a step whose dead letter was purged waits for ever")
def purge_leaves_step_waiting(
    original: Original, board: Board, mailbox: str, dead_sequence: int, at: int
) -> None:
    board.letters.pop((mailbox, dead_sequence), None)


@plant(at(Board, "died"), broken="a step whose failure is caught waits for a redrive all the same")
def caught_death_waits(original: Original, board: Board, record: DeadLettered, base: int) -> None:
    links = [(number, board.links.get(sequence)) for number, sequence in enumerate(record.sequences)]
    caught = [(i, link) for i, link in links if link is not None and link.task.caught(link.number)]
    if not caught:
        original(board, record, base)
        return
    for i, link in caught:
        board._task(link.task.id)
        board._unlink(link.task, link.number)
        step: StepState = link.task.move(link.number, "died", record.at)
        link.task.dead += 1
        step.letter = (record.mailbox, base + i)
        board.letters[step.letter] = link


@plant(
    at(Daily, "_drop_letters"),
    broken="a step whose dead letter was purged for its age waits for ever",
    first_seed=170,
)
def aged_letter_leaves_step_waiting(original: Original, daily: Daily) -> None:
    board = daily._core.kernel.state.board
    kept, board.letters = board.letters, {}
    original(daily)
    letters = {(each.mailbox, each.dead_sequence) for each in daily._core.kernel.state.letters}
    board.letters = {name: link for name, link in kept.items() if name in letters}


# The store, and what memory forgets for it


@plant(at(TaskChanges, "add"), broken="the store shows a task that ended as it was before")
def ended_task_not_stored(original: Original, changes: TaskChanges, tasks: Any, steps: Any) -> None:
    original(changes, [task for task in tasks if task.ended_at < 0], steps)


@plant(at(TaskChanges, "add"), broken="of the steps that a record moved the last is not stored")
def step_not_stored(original: Original, changes: TaskChanges, tasks: Any, steps: Any) -> None:
    original(changes, tasks, steps[:-1])


@plant(at(TaskChanges, "key_rows"), broken="the key of a task that ended is not stored")
def key_not_stored(original: Original, changes: TaskChanges, get: Get) -> list[object]:
    return []


@plant(at(Keys, "forget"), broken="a key is forgotten before the store has it", first_seed=122)
def key_forgotten_too_early(original: Original, keys: Keys, applied: int | None, now: int) -> None:
    original(keys, None if applied is None else 1 << 62, now)
    keys.forgotten = 0


@plant(at(SqliteStore, "find_key"), broken="a key is forgotten within its 7 days")
def key_expires_too_early(original: Original, store: SqliteStore, *name: Any) -> Any:
    namespace, key, now = name
    return original(store, namespace, key, now + 7 * 86_400_000 - 10_000)


@plant(
    at(DECISIONS, Submit),
    broken="a key that ended between the look into the store and the decision is taken for a new one",
    like="check-then-act: an idempotency key is looked up before the lock is taken",
    first_seed=122,
)
def look_not_repeated(original: Original, decision: Decision, command: Submit) -> Any:
    command.looked = 1 << 62
    return original(decision, command)


@plant(at(Board, "forget"), broken="a task that ended is not shown until the store has it", first_seed=259)
def ended_task_forgotten(original: Original, board: Board, applied: int | None, now: int) -> None:
    original(board, applied, now)
    board.over.clear()


@plant(at(Tasks, "shown_in_store"), broken="a task that ended long ago is shown as running")
def old_task_shown_wrongly(original: Original, tasks: Tasks, task: str) -> Any:
    found = original(tasks, task)
    if found is None:
        return None
    return msgspec.structs.replace(found, task=msgspec.structs.replace(found.task, status="RUNNING"))
