"""The state of one step of a live task. Only records change it (`board.py`)."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.tasks.plan import WaitKind
from relaymesh.kernel.tasks.status import Status


class Waiting(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The wait of a step on which no agent works."""

    kind: WaitKind
    until: int = 0
    """When it stops waiting; 0: never."""
    asked: str = ""
    """The mailbox of the agent that is asked."""
    sequence: int = -1
    """The message of the question; -1: none."""


class StepState(msgspec.Struct, gc=False, eq=False):
    """The fields about a lease are those of the last grant."""

    status: Status = "PENDING"
    sequence: int = -1
    """The message of the step, while it has one; -1: not sent, or settled."""
    waits_for: int = 0
    """Needs that have not ended."""
    attempts: int = 0
    abandoned: int = 0
    failed: int = 0
    token: int = 0
    holder: str = ""
    granted_at: int = 0
    sent_at: int = 0
    retry_at: int = 0
    updated_at: int = 0
    ended_at: int = -1
    """When it ended; -1: it has not. A dead letter ends only if its failure is caught."""
    mailbox: str = ""
    """Where its message is."""
    code: str = ""
    reason: str = ""
    progress: str = ""
    """Volatile. What its holder last reported."""
    output: bytes | None = None
    parent: int = -1
    """The step that was replaced by this one and others; -1: this is a step of the plan, or undoes
    another."""
    item: bytes | None = None
    index: int = 0
    items: range = range(0)
    """The steps that replaced it, once it is expanded: its items, or a group."""
    open_items: int = 0
    items_out: int = 0
    """Items whose messages are not settled."""
    taken_ms: int = 0
    """The length of its lease if its holder took it to report later; else 0."""
    letter: tuple[str, int] | None = None
    """The dead letter of its message, by mailbox and dead sequence."""
    readers: int = 0
    """Steps that may still read its output; the result of the task, or of its group, is one more."""
    wait: Waiting | None = None
    """What it waits for, while it does."""
    parked: bytes | None = None
    """The content of its message, while that is taken back."""
    used: tuple[int, int] = (0, 0)
    """Micro-dollars and tokens of its present attempt."""
    order: int = 0
    """For steps that can be undone: the place in the order in which steps of the task finished, from 1 on."""
    undoes: int = -1
    """The step that this one undoes; -1: none."""
    uncertain: bool = False
    """Whether the outcome of the step that it undoes is unknown."""

    @property
    def ended(self) -> bool:
        return self.ended_at >= 0
