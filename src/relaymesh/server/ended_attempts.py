"""Who ended a message: for a client that did not get the answer to its settle because the connection broke.
It repeats the settle and finds that its token is gone: either its own first try ended the message, or the
lease had run out. Only the journal shows which: if the attempt ended the message, it is the last one that the
store counts for it, and it ended before its deadline. (Both are checked, because a delivery that goes back
without a counted attempt uses its number twice.)
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.server.served import CATCH_UP_S, Served
from relaymesh.wire.frames import Attempt

SEQUENCE_MAX = (1 << 63) - 1
"""The largest sequence that the store can hold, and so the largest that a message can have."""
DONE = {"acked": 0, "dropped": 1}
"""How many attempts the store does not count for this end of a message: a drop is not an attempt."""


def ended_by(served: Served, attempts: Sequence[Attempt]) -> list[bool]:
    """For each (mailbox, sequence, attempt, deadline): whether that attempt acked or dropped the message.
    Waits for the disk. A mesh in memory has no store, and cannot tell.
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
