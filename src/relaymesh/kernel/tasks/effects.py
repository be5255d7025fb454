"""What each record about tasks does to the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relaymesh.kernel.records import (
    BudgetPaused,
    BudgetSet,
    NoticeSent,
    SignalReceived,
    StepsAdded,
    StepsEnded,
    StepsSent,
    StepsTaken,
    StepsWithdrawn,
    StepWaits,
    TaskClosing,
    TaskEnded,
    TaskSubmitted,
    TaskUndoing,
    UsageNoted,
)
from relaymesh.kernel.tasks.taken import apply_taken

if TYPE_CHECKING:
    from relaymesh.kernel.state import State


def task_effects(state: State) -> dict[type, Callable[[Any], Any]]:
    """The board does most of it, but it has no access to mailboxes."""
    board = state.board
    return {
        TaskSubmitted: lambda record: board.submitted(record, state.sequence),
        StepsSent: board.sent,
        StepsEnded: board.ended,
        StepsAdded: board.added,
        TaskClosing: board.closing,
        TaskEnded: lambda record: board.task_ended(record, state.sequence + record.count),
        StepsTaken: lambda record: apply_taken(state, record),
        StepWaits: board.waits,
        SignalReceived: board.signalled,
        StepsWithdrawn: lambda record: _withdraw(state, record),
        TaskUndoing: board.undoing,
        UsageNoted: board.used,
        BudgetPaused: board.paused,
        BudgetSet: board.budget_set,
        NoticeSent: board.notice_sent,
    }


def _withdraw(state: State, record: StepsWithdrawn) -> None:
    """Their messages are dropped next: the contents are kept until they are sent again."""
    contents: list[bytes] = []
    for number in record.steps:
        step = state.board.tasks[record.task].steps[number]
        entry = state.mailboxes[step.mailbox].entries.take_out(step.sequence)
        contents.append(entry.envelope.content)
    state.board.withdrawn(record, contents)
