"""Silver: what became of every message, delivery, dead letter, agent and trace.

A message is named by `partition`, `mailbox` and `message_sequence`: one that was published has a row in each
mailbox it went to, and one that was redriven is a new row.
"""

from __future__ import annotations

from relaymesh.pipeline.schema.column import DAY, FLAG, INT, LONG, NUMBER, TEXT, TIME, Column, table_of

__all__ = ["AGENTS", "ATTEMPTS", "DEAD_LETTERS", "MESSAGES", "TRACES"]

NAME: tuple[Column, ...] = (
    ("partition", INT, "journal stream the message belongs to"),
    ("namespace", TEXT, "namespace of the mailbox"),
    ("mailbox", TEXT, "full address of the mailbox it is in"),
    ("message_sequence", LONG, "sequence that accepted it: with the mailbox, its name"),
)

MESSAGES = table_of(
    *NAME,
    ("message_id", TEXT, "id given by the sender or the mesh"),
    ("topic", TEXT, "topic it was published on; null when sent to the mailbox"),
    ("sender", TEXT, "address of the sender"),
    ("type", TEXT, "type of the message"),
    ("priority", INT, "1 CRITICAL … 5 BACKGROUND, as last set"),
    ("sent_priority", INT, "priority it was accepted with"),
    ("accepted_date", DAY, "UTC day of accepted_at"),
    ("accepted_at", TIME, "mesh time of acceptance"),
    ("due_at", TIME, "when it first may be delivered; a forced one: when it was forced"),
    ("ttl_ms", LONG, "how long it may wait once due; 0 is for ever"),
    ("first_delivered_at", TIME, "first grant of a lease; null when never delivered"),
    ("settled_at", TIME, "when it was acked, dropped or dead-lettered; null while pending"),
    ("settled_sequence", LONG, "the event that settled it; of a dead letter, its name"),
    ("final_state", TEXT, "acked, dropped, dead or pending"),
    ("attempts", INT, "deliveries that count: those put off or given back do not"),
    ("deliveries", INT, "grants of a lease, all of them"),
    ("retries", INT, "attempts that ended in a failure and were tried again"),
    ("deferrals", INT, "deliveries put off without burning the attempt"),
    ("in_flight", FLAG, "pending, and a holder has it"),
    ("completed", FLAG, "a handler finished it after losing its lease"),
    ("forced_sequence", LONG, "the event that made a delayed message due at once"),
    ("redriven_from", LONG, "dead letter it was redriven from (its dead sequence)"),
    ("source_mailbox", TEXT, "mailbox in which that letter died"),
    ("reason", TEXT, "of a dead one: why"),
    ("code", TEXT, "error code it was dropped or dead-lettered with"),
    ("error", TEXT, "text of the last error of a dead one"),
    ("alert", FLAG, "its contract asked for an alert"),
    ("max_retries", INT, "retries asked for by the sender"),
    ("content_bytes", INT, "size of the content"),
    ("task_id", TEXT, "task it belongs to"),
    ("ordering_key", TEXT, "key of its lane"),
    ("correlation_id", TEXT, "what it answers or continues"),
    ("reply_to", TEXT, "address for answers"),
    ("origin_id", TEXT, "id of the message it was edited from"),
    ("traceparent", TEXT, "W3C trace context"),
    ("input_tokens", LONG, "usage.inputTokens of the envelope"),
    ("output_tokens", LONG, "usage.outputTokens of the envelope"),
    ("cost_usd", NUMBER, "usage.costUsd of the envelope"),
)

ATTEMPTS = table_of(
    *NAME,
    ("sequence", LONG, "the grant's own sequence"),
    ("lease_token", LONG, "token of the lease"),
    ("holder", TEXT, "who held the lease"),
    ("remote", FLAG, "the holder was in another process"),
    ("attempt", INT, "which attempt this was, as the mesh counts"),
    ("delivery", INT, "which delivery this was, those given back included"),
    ("granted_date", DAY, "UTC day of granted_at"),
    ("granted_at", TIME, "when the lease was granted"),
    ("ended_at", TIME, "when it ended; null while it is out"),
    ("ended_sequence", LONG, "the event that ended it"),
    ("outcome", TEXT, "acked, dropped, dead, nack, lease_expired, reclaimed, deferred, released or leased"),
    ("failed", FLAG, "ended in a failure: nack, lease_expired, reclaimed, or dead or dropped with a code"),
    ("burned", FLAG, "counts against the retries: all but deferred and released"),
    ("code", TEXT, "error code of the failure"),
    ("error", TEXT, "text of the failure"),
    ("next_due_at", TIME, "when it may be tried again"),
    ("lease_ms", LONG, "lease asked for; 0 is the mailbox's own, by priority"),
    ("held_ms", LONG, "how long the lease was out"),
)

DEAD_LETTERS = table_of(
    *NAME,
    ("dead_sequence", LONG, "the event that buried it: with the mailbox, the letter's name"),
    ("dead_date", DAY, "UTC day of dead_at"),
    ("dead_at", TIME, "when it died"),
    ("accepted_at", TIME, "when the message was accepted; null when that is not known any more"),
    ("message_id", TEXT, "id of the message"),
    ("sender", TEXT, "address of the sender"),
    ("type", TEXT, "type of the message"),
    ("topic", TEXT, "topic it was published on"),
    ("reason", TEXT, "retries_exhausted, not_retryable, ttl_expired, mailbox_full, deferred_too_often"),
    ("code", TEXT, "error code of the last failure; the reason when nothing was tried"),
    ("error", TEXT, "text of the last failure"),
    ("attempts", INT, "attempts it had"),
    ("alert", FLAG, "its contract asked for an alert"),
    ("status", TEXT, "pending, redriven or purged"),
    ("resolved_at", TIME, "when it was redriven or purged"),
    ("redriven_to", TEXT, "mailbox it went back into"),
    ("redriven_sequence", LONG, "message_sequence of the new entry"),
)

AGENTS = table_of(
    ("partition", INT, "journal stream"),
    ("namespace", TEXT, "namespace of the address"),
    ("address", TEXT, "full address of an agent, a subscription or a sender"),
    ("kind", TEXT, "agent, subscription, or sender when it has no mailbox here"),
    ("pattern", TEXT, "of a subscription: the pattern of topics"),
    ("opened_at", TIME, "when its mailbox was first opened"),
    ("closed_at", TIME, "when its subscription ended; null while it lives"),
    ("registered_at", TIME, "when it was registered as an agent, if the journal says so"),
    ("first_sent_at", TIME, "first message it sent or published"),
    ("last_sent_at", TIME, "last message it sent or published"),
    ("sent", LONG, "messages sent or published; a publish counts once"),
    ("first_received_at", TIME, "first delivery from its mailbox"),
    ("last_received_at", TIME, "last delivery from its mailbox"),
    ("deliveries", LONG, "deliveries from its mailbox"),
    ("capacity", LONG, "messages its mailbox may hold"),
    ("capacity_bytes", LONG, "bytes its mailbox may hold"),
    ("settings", TEXT, "settings of its mailbox as last set, as JSON"),
)

TRACES = table_of(
    *NAME,
    ("trace_id", TEXT, "trace of the traceparent; else the thread"),
    ("span_id", TEXT, "span of the traceparent that sent it"),
    ("thread", TEXT, "id of the message that began the conversation, as far as its parts say"),
    ("step", INT, "its place in the trace, by acceptance"),
    ("message_id", TEXT, "id of the message"),
    ("parent_id", TEXT, "id of the message it follows from; null for the first"),
    ("link", TEXT, "how: root, answer (correlation), edit (origin) or redrive"),
    ("sender", TEXT, "address of the sender"),
    ("type", TEXT, "type of the message"),
    ("accepted_at", TIME, "when it was accepted"),
    ("first_delivered_at", TIME, "when it was first delivered"),
    ("settled_at", TIME, "when it was settled"),
    ("final_state", TEXT, "acked, dropped, dead or pending"),
    ("attempts", INT, "attempts it had"),
    ("cost_usd", NUMBER, "usage.costUsd of the envelope"),
)
