"""The gate: what may leave, and when. Pure functions of a step, the marks and the durability.

A mark is a pair (written, synced): every event below the first is written, every event below the second is
durable. A result, a refusal or a delivery leaves when the node's marks have passed the pair that it needs.
The shell for threads, the shell for an event loop and the simulator all ask these functions, so the
simulator tests the code that ships.
"""

from __future__ import annotations

from typing import Protocol

from relaymesh.errors import MeshError
from relaymesh.kernel.step import Delivered, Step
from relaymesh.kernel.tasks.views import TaskShown

__all__ = [
    "Marks",
    "Ticket",
    "all_needs",
    "delivery_needs",
    "look_needs",
    "may_leave",
    "result_needs",
    "shown_needs",
]

Marks = tuple[int, int]
"""(written, synced)."""


class Ticket(Protocol):
    """A caller that waits for the marks to pass what it needs."""

    needs: Marks

    def release(self, error: MeshError | None) -> None:
        """Called when the marks have passed, or when they never will."""


def result_needs(step: Step, *, waits_for_sync: bool, durable: bool = False) -> Marks:
    """The marks for which the result or the refusal of a step waits. `waits_for_sync`: durability is
    `synced`. `durable`: the caller asked for a sync with any durability.
    """
    if durable:
        return step.written, step.written
    return step.written, step.synced if waits_for_sync else 0


def delivery_needs(delivered: Delivered, *, waits_for_sync: bool) -> Marks:
    """The marks for which the deliveries of one waiter wait."""
    return delivered.written, delivered.synced if waits_for_sync else 0


def all_needs(step: Step, *, waits_for_sync: bool, durable: bool = False) -> Marks:
    """The marks for which a step's result and all its deliveries wait."""
    written = step.written
    synced = step.synced if waits_for_sync else 0
    for delivered in step.delivered or ():
        written = max(written, delivered.written)
        if waits_for_sync:
            synced = max(synced, delivered.synced)
    return written, written if durable else synced


def look_needs(through: int, *, waits_for_sync: bool) -> Marks:
    """The marks for which the answer to a query waits: everything that it read, up to the sequence
    `through`."""
    return through, through if waits_for_sync else 0


def shown_needs(shown: TaskShown | None, needs: Marks) -> Marks:
    """The marks for which the answer about a task waits, instead of everything that was read: an ended task
    does not change any more, so its end is enough.
    """
    if shown is None or not shown.task.through:
        return needs
    through = shown.task.through
    return min(needs[0], through), min(needs[1], through)


def may_leave(needs: Marks, written: int, synced: int) -> bool:
    """Whether the marks of a node have passed what something needs."""
    return needs[0] <= written and needs[1] <= synced
