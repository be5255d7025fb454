"""The gate: what may leave, and when. Pure functions of a step, the marks and the durability.

A mark is a pair (written, synced): every event below the first is written, every event below the second is
durable. A result, a refusal or a delivery leaves when the node's marks have passed the pair that it needs.
The shell for threads, the shell for an event loop and the simulator all ask these functions, so the
simulator tests the code that ships.
"""

from __future__ import annotations

from relaymesh.kernel.step import Delivered, Step

__all__ = ["Marks", "all_needs", "delivery_needs", "look_needs", "may_leave", "result_needs"]

Marks = tuple[int, int]
"""(written, synced)."""


def result_needs(step: Step, *, waits_for_sync: bool, durable: bool = False) -> Marks:
    """What the result or the refusal of a step waits for.

    `waits_for_sync`: durability is `synced`. `durable`: the caller asked for a sync whatever the durability.
    """
    if durable:
        return step.written, step.written
    return step.written, step.synced if waits_for_sync else 0


def delivery_needs(delivered: Delivered, *, waits_for_sync: bool) -> Marks:
    """What the deliveries for one waiter wait for."""
    return delivered.written, delivered.synced if waits_for_sync else 0


def all_needs(step: Step, *, waits_for_sync: bool, durable: bool = False) -> Marks:
    """What a step's result and all its deliveries wait for."""
    written, synced = result_needs(step, waits_for_sync=waits_for_sync, durable=durable)
    if step.delivered is not None:
        for delivered in step.delivered:
            needs = delivery_needs(delivered, waits_for_sync=waits_for_sync)
            written, synced = max(written, needs[0]), max(synced, needs[1])
        if durable:
            synced = written
    return written, synced


def look_needs(through: int, *, waits_for_sync: bool) -> Marks:
    """What the answer to a query waits for: everything that it saw, up to the sequence `through`."""
    return through, through if waits_for_sync else 0


def may_leave(needs: Marks, written: int, synced: int) -> bool:
    """Whether the marks of a node have passed what something needs."""
    return needs[0] <= written and needs[1] <= synced
