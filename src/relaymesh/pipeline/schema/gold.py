"""Gold: figures to act on. docs/explanation/analytics.md says where each formula comes from."""

from __future__ import annotations

from relaymesh.pipeline.schema.column import DAY, FLAG, INT, LONG, NUMBER, TEXT, TIME, Column, table_of

__all__ = [
    "AGENT_SCORECARDS",
    "ALERT_HISTORY",
    "BACKLOG",
    "CONTRACT_VIOLATIONS",
    "COST",
    "CRITICAL_PATHS",
    "CRITICAL_STEPS",
    "DEAD_LETTERS_DAILY",
    "DUPLICATES_WASTE",
    "FAILURE_RATES",
    "LATENCY",
    "MESSAGE_TRACES",
    "SIZING",
    "SPLIT_ADVICE",
    "STEP_RETRIES",
    "TASK_COST",
    "TASK_OUTCOMES",
    "THROUGHPUT",
    "WORKFLOW_LATENCY",
]

_MAILBOX: tuple[Column, ...] = (
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the mailbox"),
    ("mailbox", TEXT, "full address of the mailbox"),
)

THROUGHPUT = table_of(
    *_MAILBOX,
    ("day", DAY, "UTC day of the minute"),
    ("minute", TIME, "begin of the minute"),
    ("accepted", LONG, "messages accepted"),
    ("accepted_bytes", LONG, "bytes of their content"),
    ("delivered", LONG, "leases granted"),
    ("acked", LONG, "messages done"),
    ("retried", LONG, "attempts that failed and are tried again"),
    ("dropped", LONG, "messages dropped"),
    ("dead", LONG, "messages dead-lettered"),
)

LATENCY = table_of(
    *_MAILBOX,
    ("priority", INT, "1 CRITICAL … 5 BACKGROUND"),
    ("day", DAY, "UTC day of acceptance"),
    ("acked", LONG, "messages done: those the latency is taken of"),
    ("delivered", LONG, "messages delivered at least once: those the wait is taken of"),
    ("wait_p50_ms", NUMBER, "from due to first delivered: median"),
    ("wait_p95_ms", NUMBER, "from due to first delivered: 95 of 100 are no longer"),
    ("wait_p99_ms", NUMBER, "from due to first delivered: 99 of 100 are no longer"),
    ("latency_p50_ms", NUMBER, "from due to acked: median"),
    ("latency_p95_ms", NUMBER, "from due to acked: 95 of 100 are no longer"),
    ("latency_p99_ms", NUMBER, "from due to acked: 99 of 100 are no longer"),
    ("latency_max_ms", LONG, "from due to acked: the longest"),
)

BACKLOG = table_of(
    *_MAILBOX,
    ("day", DAY, "UTC day of the minute"),
    ("minute", TIME, "begin of the minute; minutes in which nothing happened have no row"),
    ("arrivals", LONG, "I: messages accepted in it"),
    ("completions", LONG, "C: messages settled in it"),
    ("backlog", LONG, "B at its end: max(0, B before + I - C), counted second by second"),
    ("backlog_peak", LONG, "the largest B at the end of one of its seconds"),
    ("capacity", LONG, "messages the mailbox may hold; null when its settings are not known"),
    ("used_share", NUMBER, "backlog_peak / capacity"),
)

FAILURE_RATES = table_of(
    *_MAILBOX,
    ("code", TEXT, "error class; * is all of them together"),
    ("attempts", LONG, "attempts of the mailbox that have ended and count"),
    ("failures", LONG, "of these, ended with an error of this class"),
    ("share_of_failures", NUMBER, "failures / failures of all classes"),
    ("retried", LONG, "failures that were tried again"),
    ("messages", LONG, "messages of the mailbox that are settled after an attempt"),
    ("dead", LONG, "messages dead-lettered with this class"),
    ("dropped", LONG, "messages dropped with this class"),
    ("retry_rate", NUMBER, "retried / attempts"),
    ("p_fail", NUMBER, "failures / attempts"),
    (
        "retries_allowed",
        INT,
        "r: retries the contract allows this class; for *, the most of any class that failed",
    ),
    ("p_drop_predicted", NUMBER, "p_fail^(r+1), as if failures were independent"),
    ("p_drop_observed", NUMBER, "(dead + dropped) / messages"),
)

SIZING = table_of(
    *_MAILBOX,
    ("first_at", TIME, "first acceptance in the mailbox"),
    ("last_at", TIME, "last acceptance in the mailbox"),
    ("span_s", LONG, "seconds from the first to the last, both counted"),
    ("lambda_mean", NUMBER, "messages accepted a second, on average"),
    ("lambda_p95", NUMBER, "messages accepted in a busy second: 95 of 100 busy seconds have no more"),
    ("lambda_peak", NUMBER, "messages accepted in the busiest second"),
    ("holders", LONG, "workers that acked something"),
    ("mu_worker_p50", NUMBER, "messages one worker acks a second while it holds any: median of the workers"),
    ("mu_peak", NUMBER, "messages settled in the busiest second, by all workers"),
    (
        "workers_required",
        LONG,
        "W = ceil(lambda_p95 / mu_worker_p50), checked against queue_peak; 1 at least",
    ),
    ("burst_s", NUMBER, "T_burst the buffer is sized for"),
    ("buffer_messages", LONG, "ceil(max(0, lambda_peak - mu_peak) * T_burst)"),
    ("mean_bytes", NUMBER, "content of a message, on average"),
    ("buffer_bytes", LONG, "buffer_messages * mean_bytes, without envelopes"),
    ("capacity", LONG, "messages the mailbox may hold"),
    ("capacity_bytes", LONG, "bytes the mailbox may hold"),
    ("fits", FLAG, "whether both capacities hold that buffer"),
    ("busy_s", LONG, "seconds in which a message was accepted"),
    ("queue_peak", LONG, "most messages that were due and not settled at once"),
    ("drain_s", NUMBER, "seconds in which the required workers work off that queue, at most"),
)

SPLIT_ADVICE = table_of(
    *_MAILBOX,
    ("backlog_minutes", LONG, "longest stretch with the backlog above 60 % of capacity"),
    ("backlog_long", FLAG, "that stretch is at least 10 minutes"),
    ("latency_p99_ms", NUMBER, "from due to acked: 99 of 100 are no longer; exact"),
    ("sla_ms", NUMBER, "what is asked of the latency"),
    ("latency_over", FLAG, "p99 is above 2 × SLA"),
    ("traffic_share", NUMBER, "messages of this mailbox / messages of all"),
    ("traffic_over", FLAG, "that share is above 40 %"),
    ("conditions", INT, "how many of the three hold"),
    ("split", FLAG, "two or more hold: think of splitting the mailbox"),
    ("reasoning", TEXT, "the three in words"),
)

CONTRACT_VIOLATIONS = table_of(
    *_MAILBOX,
    ("code", TEXT, "error class"),
    ("violation", TEXT, "retried_final, retried_too_often, gave_up_early or left_without_alert"),
    ("messages", LONG, "messages it happened to"),
    ("attempts", LONG, "attempts too many, or too few"),
    ("first_seen", TIME, "first such failure"),
    ("last_seen", TIME, "last such failure"),
    ("example_sequence", LONG, "message_sequence of one of them"),
    ("reasoning", TEXT, "what the default contract says, and what happened"),
)

DEAD_LETTERS_DAILY = table_of(
    *_MAILBOX,
    ("day", DAY, "UTC day"),
    ("reason", TEXT, "why they died"),
    ("code", TEXT, "error class of the last failure"),
    ("letters", LONG, "dead letters of that day and cause"),
    ("pending", LONG, "of these, not dealt with yet"),
    ("redriven", LONG, "of these, redriven"),
    ("purged", LONG, "of these, purged"),
    ("alerts", LONG, "of these, worth an alert by contract"),
    ("first_seen", TIME, "when the first died"),
    ("last_seen", TIME, "when the last died"),
    ("example_id", TEXT, "id of the first"),
    ("example_sequence", LONG, "dead sequence of the first: `relaymesh dlq show` knows it by that"),
    ("example_error", TEXT, "error of the first"),
)

ALERT_HISTORY = table_of(
    ("rule", TEXT, "latency_high, queue_deep, dead_letters_growing, failures_high or journal_slow"),
    ("severity", TEXT, "warning or critical"),
    ("partition", INT, "journal stream; null for a rule that cannot be evaluated"),
    ("mailbox", TEXT, "where; null when the rule is about the whole mesh"),
    ("started_at", TIME, "begin of the first window in which it fired"),
    ("ended_at", TIME, "end of the last window in a row in which it fired"),
    ("windows", LONG, "windows in a row in which it fired"),
    ("peak", NUMBER, "the worst value"),
    ("threshold", NUMBER, "it fires above this"),
    ("unit", TEXT, "of peak and threshold"),
    ("evaluable", FLAG, "whether the journal holds what the rule needs"),
    ("note", TEXT, "how it was evaluated, or why it was not"),
)

AGENT_SCORECARDS = table_of(
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the address"),
    ("address", TEXT, "agent or subscription"),
    ("kind", TEXT, "agent, subscription or sender"),
    ("sent", LONG, "messages it sent or published"),
    ("received", LONG, "messages its mailbox accepted"),
    ("acked", LONG, "of these, done"),
    ("dead", LONG, "of these, dead"),
    ("dropped", LONG, "of these, dropped"),
    ("pending", LONG, "of these, waiting or with a holder"),
    ("attempts", LONG, "attempts that count"),
    ("failures", LONG, "attempts that ended in an error"),
    ("silences", LONG, "leases that ran out or were lost with their holder"),
    ("success_share", NUMBER, "acked / settled; null when nothing is"),
    ("failure_share", NUMBER, "failures / attempts; null without attempts"),
    ("first_time_share", NUMBER, "acked at the first attempt / acked"),
    ("handling_p50_ms", NUMBER, "time under lease of acked attempts: median"),
    ("handling_p95_ms", NUMBER, "time under lease of acked attempts: 95 of 100 are no longer"),
    ("last_seen_at", TIME, "last time it sent or was delivered to"),
    ("cost_usd", NUMBER, "what the messages it sent say they cost"),
)

MESSAGE_TRACES = table_of(
    ("partition", INT, "journal stream"),
    ("trace_id", TEXT, "trace, or thread when there is no trace context"),
    ("day", DAY, "UTC day of its first message"),
    ("started_at", TIME, "first acceptance"),
    ("ended_at", TIME, "last settle; null while something is pending"),
    ("duration_ms", LONG, "from the first acceptance to the last settle"),
    ("messages", LONG, "messages in it"),
    ("mailboxes", LONG, "mailboxes it went through"),
    ("attempts", LONG, "attempts of all its messages"),
    ("dead", LONG, "messages of it that died"),
    ("pending", LONG, "messages of it that wait"),
    ("cost_usd", NUMBER, "what its messages say they cost"),
)

DUPLICATES_WASTE = table_of(
    *_MAILBOX,
    ("day", DAY, "UTC day of the delivery"),
    ("deliveries", LONG, "leases granted"),
    ("redeliveries", LONG, "of these, not the first of their message"),
    (
        "after_silence",
        LONG,
        "of these, because a lease ran out or its holder was lost: duplicates are likely",
    ),
    ("given_back", LONG, "deliveries that were put off or given back"),
    ("wasted_attempts", LONG, "attempts after a failure that no retry can cure"),
    ("wasted_share", NUMBER, "wasted_attempts / deliveries"),
    ("lease_ms", LONG, "time under lease of all deliveries that ended"),
    ("wasted_lease_ms", LONG, "of these, time under lease that did not end in an ack"),
    ("wasted_lease_share", NUMBER, "wasted_lease_ms / lease_ms"),
)

COST = table_of(
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the sender"),
    ("agent", TEXT, "who sent the messages, and so spent it"),
    ("day", DAY, "UTC day of acceptance"),
    ("type", TEXT, "type of message"),
    ("outcome", TEXT, "what became of them: acked, dropped, dead, pending"),
    ("messages", LONG, "messages that say what they used; a published one counts once"),
    ("input_tokens", LONG, "sum of usage.inputTokens"),
    ("output_tokens", LONG, "sum of usage.outputTokens"),
    ("cost_usd", NUMBER, "sum of usage.costUsd"),
    ("cost_per_message_usd", NUMBER, "cost_usd / messages"),
)

_WORKFLOW: tuple[Column, ...] = (
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the tasks' owners"),
    ("workflow", TEXT, "name of the workflow"),
)

TASK_OUTCOMES = table_of(
    *_WORKFLOW,
    ("day", DAY, "UTC day"),
    ("submitted", LONG, "tasks submitted on it"),
    ("succeeded", LONG, "tasks that ended on it in SUCCESS"),
    ("failed", LONG, "tasks that ended on it in FAILED"),
    ("timed_out", LONG, "tasks that ended on it in TIMEOUT"),
    ("cancelled", LONG, "tasks that ended on it in CANCELLED"),
    ("steps_ended", LONG, "steps that ended on it"),
    ("live", LONG, "of the tasks submitted on it, those that have not ended"),
    ("waiting_dead", LONG, "of these, those that wait for a dead letter to be redriven"),
    ("paused", LONG, "of these, those whose budget is used up"),
)

WORKFLOW_LATENCY = table_of(
    *_WORKFLOW,
    (
        "kind",
        TEXT,
        "task, step, fan_out (with all its items), group (with all its steps), item or undo",
    ),
    ("step", TEXT, "name in the plan; * of a whole task"),
    ("day", DAY, "UTC day on which the task was submitted"),
    ("ended", LONG, "tasks or steps that ended"),
    ("succeeded", LONG, "of these, in SUCCESS: those the times are taken of"),
    ("latency_p50_ms", NUMBER, "from submitted, or ready, to ended: median"),
    ("latency_p95_ms", NUMBER, "from submitted, or ready, to ended: 95 of 100 are no longer"),
    ("latency_max_ms", LONG, "from submitted, or ready, to ended: the longest"),
    ("waited_p50_ms", NUMBER, "of steps, from sent to the first grant: median"),
    ("waited_p95_ms", NUMBER, "of steps, from sent to the first grant: 95 of 100 are no longer"),
    ("ran_p50_ms", NUMBER, "of steps, time under lease: median"),
    ("ran_p95_ms", NUMBER, "of steps, time under lease: 95 of 100 are no longer"),
)

STEP_RETRIES = table_of(
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the agent"),
    ("agent", TEXT, "full address of the agent's mailbox"),
    ("day", DAY, "UTC day of the grants"),
    ("steps", LONG, "steps it was given"),
    ("attempts", LONG, "attempts that have ended and count"),
    ("failed", LONG, "of these, failed and tried again"),
    ("abandoned", LONG, "of these, ended because the lease ran out or the holder was lost"),
    ("dead", LONG, "of these, ended in a dead letter"),
    ("given_back", LONG, "deliveries that were put off or given back: no attempts"),
    ("failed_share", NUMBER, "failed / attempts"),
    ("abandoned_share", NUMBER, "abandoned / attempts"),
    ("held_ms", LONG, "time under lease of all deliveries that ended"),
    ("lost_ms", LONG, "of this, time of attempts that failed, were abandoned or ended in a dead letter"),
)

CRITICAL_PATHS = table_of(
    *_WORKFLOW,
    ("task_id", TEXT, "a task that has ended"),
    ("day", DAY, "UTC day on which the task was submitted"),
    ("place", INT, "place on the path, from 1; the steps between no others decided how long it took"),
    ("step", INT, "number of the step"),
    ("name", TEXT, "name of the step"),
    ("last_item", TEXT, "of a step with items or a group: the part that ended last"),
    ("kind", TEXT, "step, fan_out, group or undo"),
    ("agent", TEXT, "agent of the step, or of its last item"),
    ("begun_at", TIME, "when the step before it on the path ended; of the first: when it was submitted"),
    ("ended_at", TIME, "when it ended"),
    ("path_ms", LONG, "from begun to ended: its part of the task's latency"),
    ("waited_ms", LONG, "of this, from sent to the first grant"),
    ("ran_ms", LONG, "of this, time under lease"),
    ("latency_ms", LONG, "of the whole task"),
    ("path_share", NUMBER, "path_ms / latency_ms; null of a task that took no time"),
)

CRITICAL_STEPS = table_of(
    *_WORKFLOW,
    ("step", TEXT, "name in the plan"),
    ("tasks", LONG, "ended tasks of the workflow with a path"),
    ("on_path", LONG, "of these, those that have the step on their path"),
    ("path_ms", LONG, "sum of its parts of their latencies"),
    ("path_share", NUMBER, "path_ms / latency of all these tasks: what the workflow's time goes into"),
    ("path_p50_ms", NUMBER, "its part of a task's latency, where it is on the path: median"),
    ("path_p95_ms", NUMBER, "its part of a task's latency: 95 of 100 are no longer"),
    ("waited_ms", LONG, "of path_ms, from sent to the first grant"),
    ("ran_ms", LONG, "of path_ms, time under lease"),
)

TASK_COST = table_of(
    *_WORKFLOW,
    ("task_id", TEXT, "id of the task"),
    ("agent", TEXT, "full address of the agent that spent it"),
    ("day", DAY, "UTC day of the last report of an attempt: its whole cost counts there"),
    ("attempts", LONG, "attempts that reported usage"),
    ("cost_micros", LONG, "their cost, in 1e-6 USD: exact"),
    ("cost_usd", NUMBER, "the same in USD"),
    ("tokens", LONG, "tokens of models they used"),
)
