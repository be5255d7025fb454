"""Advance: a ready step gets its message, or ends without one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relaymesh.errors import InvalidPlan, InvalidValue
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.failure_text import cut_reason
from relaymesh.kernel.payload import REFERENCE_MARK, full_size
from relaymesh.kernel.records import Accepted, StepsAdded, StepsEnded, StepsSent, StepWaits
from relaymesh.kernel.tasks.choosing import Agents, refusal
from relaymesh.kernel.tasks.commands import (
    ADVANCE_BYTES_MAX,
    ADVANCE_MESSAGES_MAX,
    Advance,
    Advanced,
    Move,
)
from relaymesh.kernel.tasks.growing import check_growth
from relaymesh.kernel.tasks.plan import STEPS_MAX
from relaymesh.kernel.tasks.task import OUTPUT_BYTES_MAX, Task

SENDER_NAME = "relaymesh"
"""The name under which the mesh sends steps. It is reserved: no client may send as it."""
STEP_TYPE = "task_assign"
QUESTION_TYPE = "question"


def advance(decision: Decision, command: Advance) -> Advanced:
    """Move the steps that are still ready. If a mailbox has no room, its steps stay ready, and the result
    says why."""
    task = decision.state.board.tasks.get(command.task)
    if task is None or not task.sends:
        decision.after_write()
        return Advanced(0)
    moves = {move.step: (move, id) for move, id in zip(command.moves, command.ids, strict=False)}
    still = {number: moves[number] for number in moves if number in task.ready}
    for number, (move, _) in still.items():
        _check_move(task, number, move)
    sending: dict[tuple[str, int, int], list[tuple[Move, str]]] = {}
    agents: dict[str, Agents] = {}
    task.blocked = ""
    moved = 0
    for number, (move, id) in still.items():
        if move.action == "send":
            plan = task.plan_of(number)  # messages that arrive together share a lease: equal ones only
            address = plan.mailbox or _chosen(decision, task, plan.capability, agents, command.away)
            if address:
                group = address, plan.lease_ms, plan.attempt_timeout_ms
                sending.setdefault(group, []).append((move, id))
        elif move.action == "wait":
            moved += _wait(decision, task, move, id)
        else:
            _move(decision, task, move)
            moved += 1
    room = Room(ADVANCE_MESSAGES_MAX, ADVANCE_BYTES_MAX)
    for (address, _, _), together in sending.items():
        moved += _send(decision, task, address, together, room)
    decision.after_sync()
    return Advanced(moved, task.blocked)


def _check_move(task: Task, number: int, move: Move) -> None:
    """Refuse a move that does not fit the plan of the step: it would be a defect of the shell."""
    plan, name = task.plan_of(number), task.name_of(number)
    if move.action == "expand" and not (task.has_items(number) and plan.for_each):
        raise InvalidValue(f"step {name} has no for_each: it has no items")
    if (move.action == "wait" and plan.wait is None) or (move.action == "include" and not plan.include):
        raise InvalidValue(f"step {name} is the work of an agent")
    if move.action == "send" and (plan.wait is not None or plan.include):
        raise InvalidValue(f"step {name} is no work of an agent")


def _chosen(
    decision: Decision, task: Task, capability: str, agents: dict[str, Agents], away: Sequence[str]
) -> str | None:
    """The agent for one step; None: none has the capability now, and the step stays ready."""
    if capability not in agents:
        agents[capability] = Agents(decision.state, task.namespace, capability, frozenset(away))
    agent = agents[capability].choose()
    if agent is None:
        task.blocked = f"no agent with the capability {capability!r} can take a step now"
    return agent


class Room(msgspec.Struct, gc=False):
    """How much one `Advance` may still send. The first message always fits."""

    messages: int
    bytes: int

    def take(self, size: int) -> bool:
        if not self.messages or (size > self.bytes and self.messages < ADVANCE_MESSAGES_MAX):
            return False
        self.messages -= 1
        self.bytes -= size
        return True


def _move(decision: Decision, task: Task, move: Move) -> None:
    now, steps = decision.now, [move.step]
    items = len(task.steps) - len(task.plan.steps) + len(move.items)
    if move.action == "include":
        _include(decision, task, move)
    elif move.action == "skip":
        decision.emit(StepsEnded(1, now, task.id, steps, "SKIPPED", []))
    elif move.action == "fail":
        decision.emit(StepsEnded(1, now, task.id, steps, "FAILED", [], 0, move.code, move.reason))
    elif items > STEPS_MAX:
        reason = f"{len(move.items)} items are too many: a task has at most {STEPS_MAX} of them in all"
        decision.emit(StepsEnded(1, now, task.id, steps, "FAILED", [], 0, "too_many_items", reason))
    elif (size := sum(map(len, move.items))) > OUTPUT_BYTES_MAX:
        reason = f"its items have {size} bytes; {OUTPUT_BYTES_MAX} are allowed"
        decision.emit(StepsEnded(1, now, task.id, steps, "FAILED", [], 0, "items_too_large", reason))
    else:
        decision.emit(StepsAdded(1, now, task.id, move.step, list(move.items)))


def _include(decision: Decision, task: Task, move: Move) -> None:
    """Replace the step by the steps of a stored workflow, if all its agents exist."""
    now, number = decision.now, move.step
    try:
        check_growth(decision, task, number, move.plans)
    except InvalidPlan as error:
        decision.emit(
            StepsEnded(1, now, task.id, [number], "FAILED", [], 0, "invalid_plan", cut_reason(error.message))
        )
        return
    decision.emit(StepsAdded(1, now, task.id, number, [], list(move.plans), move.content))


def _wait(decision: Decision, task: Task, move: Move, id: str) -> int:
    """Let the step wait; a question is sent as mail to the agent that is asked. Returns how many steps
    moved."""
    state, plan, now = decision.state, task.plan_of(move.step), decision.now
    assert plan.wait is not None, "checked before"
    until = move.until if move.until >= 0 else now + move.wait_ms if move.wait_ms >= 0 else 0
    if until <= now and plan.wait.kind == "wait":
        until = now  # its time is already over: the next decision ends it
    if plan.wait.kind != "ask":
        decision.emit(StepWaits(1, now, task.id, move.step, plan.wait.kind, until))
        return 1
    address = plan.mailbox
    if why := refusal(state, address):
        task.blocked = why
        return 0
    if not state.mailboxes[address].room_for(1, full_size(move.content)):
        task.blocked = f"mailbox {address} is full"
        return 0
    envelope = Envelope(
        id=id,
        sender=f"{task.namespace}/{SENDER_NAME}",
        content=move.content,
        encoding=json_encoding(move.content),
        type=QUESTION_TYPE,
        priority=plan.priority,
        ttl_ms=0,
        correlation_id=id,
        trace=task.trace,
    )
    sequence = state.sequence
    decision.emit(Accepted(1, now, address, [envelope]))
    decision.emit(StepWaits(1, now, task.id, move.step, "ask", until, sequence, address))
    return 1


def _send(decision: Decision, task: Task, address: str, moves: list[tuple[Move, str]], room: Room) -> int:
    """Send as many steps as windows and mailbox have room for. Returns how many."""
    state = decision.state
    if why := refusal(state, address):
        task.blocked = why
        return 0
    mailbox = state.mailboxes[address]
    size = 0
    chosen: list[tuple[Move, Envelope]] = []
    items: dict[int, int] = {}
    for move, id in moves[: max(0, task.plan.out_max - task.out)]:
        parent = task.steps[move.step].parent
        if items.get(parent, 0) >= task.room_in(parent):
            continue
        size += full_size(move.content)
        if not mailbox.room_for(len(chosen) + 1, size):
            task.blocked = f"mailbox {address} is full"
            break
        if not room.take(len(move.content)):
            break
        items[parent] = items.get(parent, 0) + 1
        chosen.append((move, _message(task, move, id)))
    if not chosen:
        return 0
    first, count = state.sequence, len(chosen)
    decision.emit(Accepted(count, decision.now, address, [envelope for _, envelope in chosen]))
    sequences = list(range(first, first + count))
    steps = [move.step for move, _ in chosen]
    decision.emit(StepsSent(count, decision.now, task.id, address, sequences, steps))
    return count


def json_encoding(content: bytes) -> Encoding:
    """The encoding of JSON that the mesh sends: inline, or in a payload file."""
    return Encoding.JSON_IN_FILE if content.startswith(REFERENCE_MARK) else Encoding.JSON


def _message(task: Task, move: Move, id: str) -> Envelope:
    plan = task.plan_of(move.step)
    return Envelope(
        id=id,
        sender=f"{task.namespace}/{SENDER_NAME}",
        content=move.content,
        encoding=json_encoding(move.content),
        type=STEP_TYPE,
        priority=plan.priority,
        ttl_ms=0,
        key=plan.key,
        trace=task.trace,
        max_retries=plan.max_attempts - 1,
    )
