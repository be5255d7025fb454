"""The operations' names: how the journal's records are called by people, tables and reports.

APPEND, ACK, NACK and DEAD_LETTER are the four every journal of messages has; the others say what else
happened.
"""

from __future__ import annotations

from relaymesh.kernel import records
from relaymesh.kernel.records import AnyRecord
from relaymesh.wire.records import Skipped, Unreadable

__all__ = ["OPERATIONS", "RETURNS", "code_of", "operation_of"]

OPERATIONS: dict[type, str] = {
    records.EpochStarted: "START",
    records.MailboxOpened: "OPEN_MAILBOX",
    records.Subscribed: "SUBSCRIBE",
    records.Unsubscribed: "UNSUBSCRIBE",
    records.Accepted: "APPEND",
    records.Published: "PUBLISH",
    records.Granted: "GRANT",
    records.Acked: "ACK",
    records.Dropped: "DROP",
    records.DeadLettered: "DEAD_LETTER",
    records.Redriven: "REDRIVE",
    records.DeadLettersPurged: "PURGE",
    records.Reprioritised: "REPRIORITISE",
    records.DelayedForced: "FORCE_DELIVER",
    records.Completed: "COMPLETE",
    records.Suspended: "SUSPEND",
    records.Resumed: "RESUME",
    records.TaskSubmitted: "SUBMIT",
    records.StepsSent: "STEP_SENT",
    records.StepsEnded: "STEP_ENDED",
    records.StepsAdded: "STEPS_ADDED",
    records.TaskClosing: "TASK_CLOSING",
    records.TaskEnded: "TASK_ENDED",
    records.WorkflowPut: "PUT_WORKFLOW",
    records.WorkflowRemoved: "REMOVE_WORKFLOW",
    records.StepsTaken: "STEP_TAKEN",
    records.ScheduleSet: "SET_SCHEDULE",
    records.ScheduleRemoved: "REMOVE_SCHEDULE",
    records.ScheduleFired: "FIRE_SCHEDULE",
    records.SchedulePaused: "PAUSE_SCHEDULE",
    records.StepWaits: "STEP_WAITS",
    records.SignalReceived: "SIGNAL",
    records.StepsWithdrawn: "STEP_WITHDRAWN",
    records.TaskUndoing: "TASK_UNDOING",
    records.UsageNoted: "USAGE",
    records.BudgetPaused: "BUDGET_PAUSED",
    records.BudgetSet: "BUDGET_SET",
    records.NoticeSent: "NOTICE",
    records.AgentRegistered: "REGISTER",
}
RETURNS: dict[str, str] = {
    "nack": "NACK",
    "expired": "LEASE_EXPIRED",
    "restart": "RECLAIM",
    "deferred": "DEFER",
    "released": "RELEASE",
    "abandoned": "ABANDON",
}
"""`Returned` by its cause. All but `deferred` and `released` burn the attempt."""


def operation_of(record: AnyRecord | Skipped | Unreadable) -> str:
    """The name; OPERATION_n for a record of a newer version, UNREADABLE_n for one that cannot be read."""
    if isinstance(record, Unreadable):
        return f"UNREADABLE_{record.operation}"
    if isinstance(record, Skipped):
        return f"OPERATION_{record.operation}"
    if isinstance(record, records.Returned):
        return RETURNS[record.cause]
    return OPERATIONS[type(record)]


def code_of(record: AnyRecord | Skipped | Unreadable) -> int:
    """The number under which the journal's format knows it."""
    if isinstance(record, Skipped | Unreadable):
        return record.operation
    tag = type(record).__struct_config__.tag
    assert isinstance(tag, int), "records are tagged with numbers"
    return tag
