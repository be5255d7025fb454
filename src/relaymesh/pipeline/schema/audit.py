"""Audit: where the journal contradicts what the mesh promises (docs/explanation/promises.md)."""

from __future__ import annotations

from relaymesh.pipeline.schema.column import FLAG, INT, LONG, TEXT, TIME, table_of

__all__ = ["AUDIT_SUMMARY", "AUDIT_VIOLATIONS"]

AUDIT_VIOLATIONS = table_of(
    ("rule", TEXT, "which rule is broken"),
    ("partition", INT, "journal stream"),
    ("mailbox", TEXT, "mailbox it happened in; null when it is about the stream itself"),
    ("message_sequence", LONG, "the message; null when it is about none"),
    ("message_id", TEXT, "its id, where it is known"),
    ("sequence", LONG, "the event that broke the rule"),
    ("timestamp", TIME, "mesh time of that event"),
    ("detail", TEXT, "what was expected, and what is there"),
)

AUDIT_SUMMARY = table_of(
    ("rule", TEXT, "the rule"),
    ("promise", TEXT, "what it checks, in words"),
    ("checked", LONG, "events it looked at"),
    ("violations", LONG, "how often it is broken"),
    ("passed", FLAG, "never"),
    ("first_sequence", LONG, "first event that broke it"),
)
