"""Every rule of the audit, with the promise that it checks and the events that it reads."""

from __future__ import annotations

from dataclasses import dataclass

from relaymesh.pipeline.silver.operations import ACCEPTS, BURNING, CHANGES, NAMING, RETURNS, SETTLES

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True)
class Rule:
    """`operations` are the events the rule looks at; none means all."""

    name: str
    promise: str
    operations: tuple[str, ...] = ()


RULES = (
    Rule("sequence_gap", "events are numbered without gaps"),
    Rule("sequence_duplicate", "every event is there once"),
    Rule("time_order", "mesh time never goes back"),
    Rule("token_order", "a lease token is never issued twice, and tokens grow", ("GRANT",)),
    Rule("token_epoch", "a token carries the epoch of a node that had started by then", ("GRANT",)),
    Rule("unknown_message", "every settle and delivery names a message that was accepted", NAMING),
    Rule("route", "a published message enters every mailbox that it says", ("PUBLISH",)),
    Rule("lost", "an accepted message is settled or still pending, in a mailbox that exists", ACCEPTS),
    Rule("conservation", "accepted = acked + dropped + dead + pending, everywhere", (*ACCEPTS, *SETTLES)),
    Rule("double_settle", "a message is settled once", SETTLES),
    Rule("after_settle", "nothing happens to a settled message", ("GRANT", *RETURNS, *CHANGES)),
    Rule("granted_twice", "a message is with one holder at a time", ("GRANT",)),
    Rule("return_without_lease", "only a delivery can fail, be put off or be given back", RETURNS),
    Rule("no_attempt", "a message is done only after an attempt, or after its holder said so", ("ACK",)),
    Rule("exit_without_attempt", "dropped or dead only after an attempt, if not expired or without a place",
         ("DROP", "DEAD_LETTER")),
    Rule("no_exit", "a failure ends in exactly one place, with a reason", ("DEAD_LETTER",)),
    Rule("gave_up_early", "retries are exhausted when they are exhausted", ("DEAD_LETTER",)),
    Rule("attempts_unbounded", "no attempt is retried beyond what the contract allows", BURNING),
    Rule("attempt_count", "attempts are counted one by one", (*BURNING, "DEFER", "DEAD_LETTER")),
    Rule("early", "a delayed or returned message is not delivered before its time", ("GRANT",)),
    Rule("expired_early", "a message does not expire before its time to live is over", ("DEAD_LETTER",)),
    Rule("lane_order", "in a lane deliveries follow acceptance, one holder at a time", ("GRANT",)),
    Rule("redrive", "a dead letter is redriven once, and only while it is there", ("REDRIVE", "PURGE")),
    Rule("step_ended_twice", "a step of a task is completed once", ("STEP_ENDED",)),
    Rule("need_not_ended", "a step is sent only after every step that it needs has ended",
         ("STEP_SENT", "STEPS_ADDED", "STEP_WAITS")),
    Rule("outcome_token", "the outcome of a step names its last grant", ("STEP_ENDED",)),
    Rule("task_over", "a task that has ended does nothing more, and one that closes sends only undo steps",
         ("STEP_SENT", "STEPS_ADDED", "STEP_WAITS", "STEP_ENDED", "TASK_CLOSING", "TASK_UNDOING",
          "TASK_ENDED")),
    Rule("budget_ignored", "while the budget of a task is used up, only steps that undo others are granted",
         ("BUDGET_PAUSED",)),
    Rule("result_differs", "the hash of a task's result is that of the results of its last steps",
         ("TASK_ENDED",)),
)  # fmt: skip
