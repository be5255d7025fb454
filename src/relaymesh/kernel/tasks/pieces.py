"""Live tasks in a snapshot: plans once each, tasks, and their steps in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from relaymesh.kernel.piece import PIECE_BYTES, PIECE_SIZE, Piece
from relaymesh.kernel.records import NoticeKind
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.keys import KeyHeld
from relaymesh.kernel.tasks.numbering import NumberRow
from relaymesh.kernel.tasks.owed import Owed
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.kernel.tasks.shape import Group, Shape
from relaymesh.kernel.tasks.signals import Signal, Signals
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.step_state import StepState, Waiting
from relaymesh.kernel.tasks.stored import StoredVersion
from relaymesh.kernel.tasks.task import Task


class PlanPiece(Piece, tag=8, frozen=True):
    """A plan. Later tasks refer to it by its number: plans are counted from 0."""

    plan: Plan


class TaskPiece(Piece, tag=9, frozen=True):
    """A live task. Its steps follow, in as many pieces as they need."""

    task: str
    sequence: int
    plan: int
    input: bytes
    key: str
    request: bytes
    owner: str
    trace: str | None
    at: int
    updated_at: int
    closing: Status | None
    hard: bool
    reason: str
    by: str
    started: bool
    reply_to: str = ""
    notify: tuple[NoticeKind, ...] = ()
    again_of: str = ""
    cost: int = 0
    tokens: int = 0
    cost_max: int = 0
    tokens_max: int = 0
    paused: str = ""
    orders: int = 0


class StepPiece(msgspec.Struct, array_like=True, frozen=True, gc=False):
    status: Status
    sequence: int
    mailbox: str
    attempts: int
    abandoned: int
    failed: int
    token: int
    holder: str
    granted_at: int
    sent_at: int
    retry_at: int
    updated_at: int
    ended_at: int
    code: str
    reason: str
    output: bytes | None
    parent: int
    item: bytes | None
    index: int
    letter: tuple[str, int] | None
    taken_ms: int = 0
    wait: Waiting | None = None
    parked: bytes | None = None
    used: tuple[int, int] = (0, 0)
    order: int = 0
    undoes: int = -1
    uncertain: bool = False


class StepsPiece(Piece, tag=10, frozen=True):
    """The next steps of a task."""

    task: str
    steps: list[StepPiece]


class KeysPiece(Piece, tag=11, frozen=True):
    """Keys of tasks that have ended: namespace, key and what it led to."""

    keys: list[tuple[str, str, KeyHeld]]
    forgotten: int = 0


class WorkflowsPiece(Piece, tag=12, frozen=True):
    """The next versions of workflows, and behind them the largest numbers that were used for versions."""

    workflows: list[StoredVersion]
    numbers: list[NumberRow] = msgspec.field(default_factory=list)


class GroupPiece(Piece, tag=13, frozen=True):
    """The steps that replaced one step of a task."""

    task: str
    parent: int
    first: int
    steps: tuple[StepPlan, ...]
    input: bytes | None
    token: int


class SignalsPiece(Piece, tag=15, frozen=True):
    """Signals that a task keeps, and the ids of all that came."""

    task: str
    kept: list[Signal]
    ids: list[str]


class OwedPiece(Piece, tag=16, frozen=True):
    """Mail about tasks that is not sent yet."""

    owed: list[Owed]


BoardPiece = PlanPiece | TaskPiece | StepsPiece | KeysPiece | GroupPiece | SignalsPiece | OwedPiece


def workflow_pieces(stored: list[StoredVersion], numbers: list[NumberRow]) -> Iterator[WorkflowsPiece]:
    """Versions of workflows and numbers, in pieces of bounded size."""
    some: list[StoredVersion] = []
    size = 0
    for each in stored:
        some.append(each)
        size += each.size
        if len(some) >= PIECE_SIZE or size >= PIECE_BYTES:
            yield WorkflowsPiece(some)
            some, size = [], 0
    if some:
        yield WorkflowsPiece(some)
    for start in range(0, len(numbers), PIECE_SIZE):
        yield WorkflowsPiece([], numbers[start : start + PIECE_SIZE])


def owed_pieces(owed: list[Owed]) -> Iterator[OwedPiece]:
    """Mail that is owed, in pieces of bounded size."""
    some: list[Owed] = []
    size = 0
    for each in owed:
        some.append(each)
        size += len(each.result or b"")
        if len(some) >= PIECE_SIZE or size >= PIECE_BYTES:
            yield OwedPiece(some)
            some, size = [], 0
    if some:
        yield OwedPiece(some)


def task_pieces(task: Task, plan: int) -> Iterator[TaskPiece | StepsPiece | GroupPiece | SignalsPiece]:
    """A task and its steps as they are now; `plan` is the number of its plan."""
    yield TaskPiece(
        task.id,
        task.sequence,
        plan,
        task.input,
        task.key,
        task.request,
        task.owner,
        task.trace,
        task.at,
        task.updated_at,
        task.closing,
        task.hard,
        task.reason,
        task.by,
        task.started,
        task.reply_to,
        task.notify,
        task.again_of,
        task.cost,
        task.tokens,
        task.cost_max,
        task.tokens_max,
        task.paused,
        task.orders,
    )
    for parent, group in task.groups.items():
        yield GroupPiece(task.id, parent, group.first, group.shape.steps, group.input, group.token)
    if task.signals is not None:
        yield SignalsPiece(task.id, list(task.signals.kept), list(task.signals.ids))
    steps: list[StepPiece] = []
    size = 0
    for step in task.steps:
        steps.append(_step_piece(step))
        size += len(step.output or b"") + len(step.item or b"") + len(step.parked or b"")
        if len(steps) >= PIECE_SIZE or size >= PIECE_BYTES:
            yield StepsPiece(task.id, steps)
            steps, size = [], 0
    if steps:
        yield StepsPiece(task.id, steps)


def _step_piece(step: StepState) -> StepPiece:
    return StepPiece(*[getattr(step, name) for name in StepPiece.__struct_fields__])


def _restore_task(board: Board, piece: TaskPiece, plans: list[Plan]) -> None:
    shape = board.shape_of(plans[piece.plan])
    task = Task(
        piece.task,
        piece.sequence,
        shape,
        piece.input,
        piece.key,
        piece.request,
        piece.owner,
        piece.trace,
        piece.at,
    )
    task.updated_at = piece.updated_at
    task.closing, task.hard = piece.closing, piece.hard
    task.reason, task.by, task.started = piece.reason, piece.by, piece.started
    task.reply_to, task.notify, task.again_of = piece.reply_to, piece.notify, piece.again_of
    task.cost, task.tokens = piece.cost, piece.tokens
    task.cost_max, task.tokens_max = piece.cost_max, piece.tokens_max
    task.paused, task.orders = piece.paused, piece.orders
    task.steps = []
    board.tasks[task.id] = task


def _restore_steps(task: Task, pieces: list[StepPiece]) -> None:
    for piece in pieces:
        step = StepState()
        for name in StepPiece.__struct_fields__:
            setattr(step, name, getattr(piece, name))
        task.steps.append(step)


def restore_board_piece(board: Board, piece: BoardPiece, plans: list[Plan]) -> None:
    """`plans`: those of the pieces so far."""
    match piece:
        case PlanPiece():
            plans.append(piece.plan)
        case TaskPiece():
            _restore_task(board, piece, plans)
        case StepsPiece():
            _restore_steps(board.tasks[piece.task], piece.steps)
        case GroupPiece():
            group = Group(piece.first, Shape(piece.steps), piece.input, piece.token)
            board.tasks[piece.task].groups[piece.parent] = group
        case SignalsPiece():
            board.tasks[piece.task].signals = Signals(piece.kept, piece.ids)
        case OwedPiece():
            for owed in piece.owed:
                board.owed.restore(owed)
        case KeysPiece():
            board.keys.forgotten = piece.forgotten
            for namespace, key, held in piece.keys:
                board.keys.restore(namespace, key, held)
