"""Bronze: every event of the journal once, as it was written. The key is `partition` and `sequence`.

A record of the journal is a batch; here each of its events is a row of its own. Decoding keeps no state:
a row holds what its own record says, and nothing that an earlier one said.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["EVENTS", "QUARANTINE", "VERSION"]

VERSION = 1


def _column(name: str, kind: DataType, comment: str, *, required: bool = False) -> StructField:
    return StructField(name, kind, not required, {"comment": comment})


_INT, _LONG, _TEXT, _FLAG = IntegerType(), LongType(), StringType(), BooleanType()
_TIME, _BYTES, _TEXTS = TimestampType(), BinaryType(), ArrayType(StringType(), False)

EVENTS = StructType(
    [
        _column("partition", _INT, "journal stream the event belongs to; 0 on one machine", required=True),
        _column("sequence", _LONG, "number of the event in its partition, without gaps", required=True),
        _column("timestamp", _TIME, "mesh time of the record", required=True),
        _column("event_date", DateType(), "UTC day of timestamp", required=True),
        _column("operation", _TEXT, "what happened: APPEND, …, OPERATION_n, UNREADABLE_n", required=True),
        _column("operation_code", _INT, "the record's number in the journal's format", required=True),
        _column("epoch", _LONG, "which start of the node wrote the frame", required=True),
        _column("mailbox", _TEXT, "full address namespace/name; null for PUBLISH and START"),
        _column("topic", _TEXT, "PUBLISH: the topic"),
        _column("pattern", _TEXT, "SUBSCRIBE, UNSUBSCRIBE: the pattern of topics"),
        _column("message_sequence", _LONG, "sequence that accepted the message: with the mailbox, its name"),
        _column("message_id", _TEXT, "APPEND, PUBLISH, REDRIVE: the message's id"),
        _column("sender", _TEXT, "address of the sender; SUBMIT: who owns the task"),
        _column("type", _TEXT, "type of the message"),
        _column("priority", _INT, "1 CRITICAL … 5 BACKGROUND; REPRIORITISE: the new one"),
        _column("ttl_ms", _LONG, "how long it may wait once due; 0 is for ever"),
        _column("delay_ms", _LONG, "how long after acceptance it becomes due"),
        _column("task_id", _TEXT, "task the message, or the event itself, belongs to"),
        _column("ordering_key", _TEXT, "key of its lane"),
        _column("correlation_id", _TEXT, "what it answers or continues"),
        _column("reply_to", _TEXT, "address for answers"),
        _column("requires_ack", _FLAG, "the sender asked for an ack message"),
        _column("tags", _TEXTS, "tags given by the sender"),
        _column("traceparent", _TEXT, "W3C trace context"),
        _column("max_retries", _INT, "retries asked for by the sender"),
        _column("sent_at", _TIME, "time given by the sender"),
        _column("origin_id", _TEXT, "REDRIVE after an edit: id of the message it was made from"),
        _column("encoding", _INT, "how content is to be read: 0 JSON, 1 bytes"),
        _column("content_bytes", _INT, "size of the content"),
        _column("content", _BYTES, "the content; null without content"),
        _column("extra", _TEXT, "JSON: fields the sender added; without content, their usage"),
        _column("holder", _TEXT, "GRANT: who holds the lease"),
        _column("lease_token", _LONG, "GRANT: the lease's token; STEP_ENDED, USAGE: the grant it is about"),
        _column("lease_ms", _LONG, "GRANT: length of the lease; 0 is the mailbox's own, by priority"),
        _column("remote", _FLAG, "GRANT: the holder is in another process"),
        _column("due_at", _TIME, "returns: when it may be tried again, at most the year 9999"),
        _column("attempt", _INT, "failures: which attempt failed"),
        _column("code", _TEXT, "failures and DROP: the error's code"),
        _column("reason", _TEXT, "DEAD_LETTER, SUSPEND, ends of steps and tasks: why"),
        _column("error", _TEXT, "failures: the error's text"),
        _column("stack", _TEXT, "failures: the stack trace; null without content"),
        _column("alert", _FLAG, "DEAD_LETTER: the failure contract asked for an alert"),
        _column("targets", _INT, "PUBLISH: how many subscriptions matched"),
        _column("dead_sequence", _LONG, "REDRIVE, PURGE: sequence of the DEAD_LETTER it is about"),
        _column("source_mailbox", _TEXT, "REDRIVE: where the message had died"),
        _column("settings", _TEXT, "JSON: a mailbox's settings; what an agent declares; a workflow; a plan"),
        _column("source", _TEXT, "mesh id of the journal: see sources.json for its path", required=True),
        _column("raw", _BYTES, "OPERATION_n, UNREADABLE_n: the record's bytes; null without content"),
        _column("segment", _TEXT, "file of the journal", required=True),
        _column("frame_offset", _LONG, "where its frame begins there; -1: see keep_days", required=True),
        _column("run_id", _TEXT, "run that wrote this row; null from the source"),
        _column("step", _INT, "events of a step: its number in the task; STEPS_ADDED: the step it adds to"),
        _column("status", _TEXT, "STEP_ENDED, TASK_CLOSING, TASK_ENDED: the state it ends in"),
        _column("items", _INT, "STEPS_ADDED: how many steps are added, behind all others of the task"),
        _column("result_hash", _TEXT, "STEP_ENDED, TASK_ENDED: sha256 of the result, in hex"),
        _column("parts_hash", _TEXT, "TASK_ENDED: sha256 of the result_hash of each part of the result"),
        _column(
            "cost_micros", _LONG, "USAGE: what the attempt cost so far; BUDGET_SET: the limit; in 1e-6 USD"
        ),
        _column("tokens", _LONG, "USAGE: tokens of models the attempt used so far; BUDGET_SET: the limit"),
    ]
)
"""The order of columns is part of the contract."""

QUARANTINE = StructType(
    [
        _column("source", _TEXT, "mesh id of the journal: see sources.json for its path", required=True),
        _column("segment", _TEXT, "file of the journal", required=True),
        _column("frame_offset", _LONG, "where the bytes that do not read back begin", required=True),
        _column("reason", _TEXT, "what is wrong there, and which events are missing", required=True),
        _column("found_at", _TIME, "when it was found", required=True),
        _column("run_id", _TEXT, "run that found it; null from the source"),
    ]
)
"""What could not be read: never skipped in silence."""
