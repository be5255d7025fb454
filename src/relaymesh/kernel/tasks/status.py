"""The states of a step and of a task, and every change between them.

`TRANSITIONS` is the only table; docs/explanation/tasks.md is made from it, and a test makes every transition.
"""

from __future__ import annotations

from typing import Literal

Status = Literal[
    "PENDING",
    "RUNNING",
    "RETRYING",
    "ABANDONED",
    "SUCCESS",
    "FAILED",
    "TIMEOUT",
    "DEAD_LETTER",
    "SKIPPED",
    "CANCELLED",
]

ENDED: frozenset[Status] = frozenset({"SUCCESS", "FAILED", "TIMEOUT", "SKIPPED", "CANCELLED"})
"""A step in one of these never changes again. A dead letter may still be redriven."""
GOOD: frozenset[Status] = frozenset({"SUCCESS", "SKIPPED"})
TASK_ENDS: tuple[Status, ...] = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELLED")
TASK_STATES: tuple[Status, ...] = ("PENDING", "RUNNING", "DEAD_LETTER", *TASK_ENDS)

Event = Literal[
    "granted",
    "given_back",
    "failed",
    "abandoned",
    "succeeded",
    "refused",
    "timed_out",
    "died",
    "redriven",
    "purged",
    "skipped",
    "cancelled",
    "expanded",
    "waits",
    "withdrawn",
]

_WAITS: tuple[Status, ...] = ("PENDING", "RETRYING", "ABANDONED")
_LIVE: tuple[Status, ...] = (*_WAITS, "RUNNING")

TRANSITIONS: dict[tuple[Status, Event], Status] = {
    ("PENDING", "skipped"): "SKIPPED",
    ("PENDING", "waits"): "RUNNING",
    ("RUNNING", "given_back"): "PENDING",
    ("RUNNING", "failed"): "RETRYING",
    ("RUNNING", "abandoned"): "ABANDONED",
    ("DEAD_LETTER", "redriven"): "PENDING",
    ("DEAD_LETTER", "purged"): "FAILED",
    ("DEAD_LETTER", "cancelled"): "CANCELLED",
    ("DEAD_LETTER", "timed_out"): "TIMEOUT",
    **{(status, "granted"): "RUNNING" for status in _WAITS},
    **{(status, "withdrawn"): "PENDING" for status in _WAITS},
    **{(status, "expanded"): "RUNNING" for status in _LIVE},
    **{(status, "succeeded"): "SUCCESS" for status in _LIVE},
    **{(status, "refused"): "FAILED" for status in _LIVE},
    **{(status, "timed_out"): "TIMEOUT" for status in _LIVE},
    **{(status, "died"): "DEAD_LETTER" for status in _LIVE},
    **{(status, "cancelled"): "CANCELLED" for status in _LIVE},
}
"""The next state for each state and event. A pair that is not listed cannot happen."""

EVENT_OF: dict[Status, Event] = {
    "SUCCESS": "succeeded",
    "FAILED": "refused",
    "TIMEOUT": "timed_out",
    "SKIPPED": "skipped",
    "CANCELLED": "cancelled",
}
"""The event by which a step ends in a state."""
