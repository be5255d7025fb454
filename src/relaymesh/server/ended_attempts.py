"""Who ended a message: for a client whose settle was answered into a broken connection.

It repeats the settle and finds its token gone. Whether by its own first try, or because the lease had run
out, only the journal knows: an attempt that ended its message is the last one the store counts for it, and
it did so before its deadline. (Both are asked: a delivery that goes back unburned has its number twice.)
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.server.served import CATCH_UP_S, Served
from relaymesh.wire.frames import Attempt

SEQUENCE_MAX = (1 << 63) - 1
"""The largest sequence that the store can hold, and so the largest that a message can have."""
DONE = {"acked": 0, "dropped": 1}
"""How many attempts the store does not count when a message ends so: a drop is no attempt."""


def ended_by(served: Served, attempts: Sequence[Attempt]) -> list[bool]:
    """Of each (mailbox, sequence, attempt, deadline), whether that attempt acked or dropped the message.

    Waits for the disk. A mesh in memory has no store: nothing of it outlives a broken connection.
    """
    views = served.views
    if views is None:
        return [False] * len(attempts)
    served.node.catch_up(CATCH_UP_S)
    found = [
        views.entry(mailbox, sequence) if 0 <= sequence <= SEQUENCE_MAX else None
        for mailbox, sequence, _, _ in attempts
    ]
    return [
        row is not None
        and row.state in DONE
        and row.attempts + DONE[row.state] == attempt
        and row.updated_at_ms <= deadline
        for row, (_, _, attempt, deadline) in zip(found, attempts, strict=True)
    ]
