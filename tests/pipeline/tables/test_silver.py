"""Silver tables of journals small enough to check by hand."""

from __future__ import annotations

from datetime import date
from typing import Any

from tests.pipeline.tables.conftest import Rows
from tests.pipeline.tables.golden import CODER, FLOW, LIFE, OTHERS, TALK
from tests.pipeline.tables.journal import moment

BILLING, AUDIT = "default/order.*:billing", "default/**:audit"


def one(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(found) == 1, found
    return found[0]


def naive(ms: float) -> Any:
    """So many milliseconds after noon, as Spark hands times back: in local time, without a zone."""
    return moment(ms).astimezone().replace(tzinfo=None)


def test_a_message_is_followed_from_acceptance_to_its_end(rows: Rows) -> None:
    m1 = one(rows("messages", LIFE, message_id="m1"))
    assert m1 == {
        "partition": LIFE, "namespace": "default", "mailbox": CODER, "message_sequence": 5,
        "message_id": "m1", "sender": "default/planner", "type": "message", "priority": 3, "sent_priority": 3,
        "accepted_date": date(2026, 3, 2), "accepted_at": naive(0), "due_at": naive(0), "ttl_ms": 3_600_000,
        "first_delivered_at": naive(100), "settled_at": naive(1_500), "settled_sequence": 11,
        "final_state": "acked", "attempts": 2, "deliveries": 2, "retries": 1, "deferrals": 0,
        "in_flight": False, "completed": False, "content_bytes": 10, "ordering_key": "k",
    }  # fmt: skip


def test_a_published_message_is_a_row_in_each_mailbox_it_went_to(rows: Rows) -> None:
    published = {row["mailbox"]: row for row in rows("messages", LIFE, message_sequence=6)}
    assert {mailbox: row["final_state"] for mailbox, row in published.items()} == {
        BILLING: "dead",
        AUDIT: "dropped",
    }
    assert published[BILLING]["reason"] == "not_retryable"
    assert published[BILLING]["code"] == "invalid"
    assert published[BILLING]["error"] == "no total"
    assert published[AUDIT]["code"] == "unsubscribed"
    assert published[AUDIT]["attempts"] == 0
    assert {row["topic"] for row in published.values()} == {"default/order.made"}
    assert [row["mailbox"] for row in rows("messages", LIFE, message_id="p2")] == [BILLING]


def test_what_was_forced_put_off_or_given_back_is_told_and_not_counted(rows: Rows) -> None:
    m2 = one(rows("messages", LIFE, message_id="m2"))
    assert (m2["sent_priority"], m2["priority"]) == (4, 1)
    assert m2["due_at"] == naive(2_000)
    assert m2["forced_sequence"] == 15
    assert (m2["deliveries"], m2["attempts"], m2["deferrals"]) == (3, 1, 1)
    assert (m2["final_state"], m2["in_flight"]) == ("pending", True)


def test_a_redriven_message_is_a_new_row(rows: Rows) -> None:
    again = one(rows("messages", LIFE, message_sequence=21))
    assert (again["mailbox"], again["message_id"], again["final_state"]) == (CODER, "p1", "pending")
    assert (again["redriven_from"], again["source_mailbox"]) == (13, BILLING)


def test_usage_is_read_from_either_place(rows: Rows) -> None:
    used = {row["message_id"]: row for row in rows("messages", TALK)}
    assert [used["q"][name] for name in ("input_tokens", "output_tokens", "cost_usd")] == [1000, 50, 0.5]
    assert [used["a"][name] for name in ("input_tokens", "output_tokens", "cost_usd")] == [10, 200, 0.25]


def test_an_attempt_is_a_lease_and_how_it_ended(rows: Rows) -> None:
    first, second = sorted(rows("attempts", LIFE, message_sequence=5), key=lambda row: row["sequence"])
    assert first == {
        "partition": LIFE, "namespace": "default", "mailbox": CODER, "message_sequence": 5, "sequence": 8,
        "lease_token": (1 << 40) + 1, "holder": "w1", "remote": False, "attempt": 1, "delivery": 1,
        "granted_date": date(2026, 3, 2), "granted_at": naive(100), "ended_at": naive(300),
        "ended_sequence": 9,
        "outcome": "nack", "failed": True, "burned": True, "code": "timeout", "error": "timeout!",
        "next_due_at": naive(1_300), "lease_ms": 0, "held_ms": 200,
    }  # fmt: skip
    assert (second["holder"], second["attempt"], second["outcome"], second["held_ms"]) == (
        "w2",
        2,
        "acked",
        200,
    )
    assert second["failed"] is False


def test_attempts_are_numbered_as_the_mesh_counts(rows: Rows) -> None:
    told = sorted(rows("attempts", LIFE, message_sequence=7), key=lambda row: row["sequence"])
    assert [(row["delivery"], row["attempt"], row["outcome"]) for row in told] == [
        (1, 1, "released"), (2, 1, "deferred"), (3, 1, "leased"),
    ]  # fmt: skip
    lost = sorted(rows("attempts", OTHERS), key=lambda row: row["sequence"])
    assert [(row["attempt"], row["outcome"]) for row in lost] == [
        (1, "lease_expired"), (2, "reclaimed"), (3, "acked"),
    ]  # fmt: skip


def test_a_dead_letter_says_what_became_of_it(rows: Rows) -> None:
    redriven = one(rows("dead_letters", LIFE))
    assert (redriven["mailbox"], redriven["message_id"], redriven["dead_sequence"]) == (BILLING, "p1", 13)
    assert (redriven["reason"], redriven["code"], redriven["attempts"]) == ("not_retryable", "invalid", 1)
    assert (redriven["status"], redriven["redriven_to"], redriven["redriven_sequence"]) == (
        "redriven",
        CODER,
        21,
    )
    assert redriven["resolved_at"] == naive(4_000)
    purged = one(rows("dead_letters", TALK))
    assert (purged["status"], purged["resolved_at"]) == ("purged", naive(1_200))


def test_agents_are_everybody_the_journal_names(rows: Rows) -> None:
    known = {row["address"]: row for row in rows("agents", LIFE)}
    assert {address: row["kind"] for address, row in known.items()} == {
        CODER: "agent", BILLING: "subscription", AUDIT: "subscription", "default/planner": "sender",
    }  # fmt: skip
    assert known[CODER]["capacity"] == 50
    assert known[CODER]["deliveries"] == 5
    assert (known[CODER]["first_received_at"], known[CODER]["last_received_at"]) == (naive(100), naive(3_500))
    assert known["default/planner"]["sent"] == 4
    assert known[BILLING]["pattern"] == "default/order.*"
    assert known[AUDIT]["closed_at"] == naive(5_000)
    others = {row["address"]: row["kind"] for row in rows("agents", OTHERS)}
    assert others == {CODER: "agent", "default/new": "agent", "default/person": "sender"}


def test_a_trace_is_a_tree_of_messages(rows: Rows) -> None:
    told = {row["message_id"]: row for row in rows("traces", TALK) if row["message_id"] != "n"}
    assert {row["trace_id"] for row in told.values()} == {"0af7651916cd43dd8448eb211c80319c"}
    assert (told["q"]["link"], told["q"]["step"], told["q"]["span_id"]) == ("root", 1, "b7ad6b7169203331")
    assert (told["a"]["link"], told["a"]["step"], told["a"]["parent_id"]) == ("answer", 2, "q")
    again = one(rows("traces", LIFE, message_sequence=21))
    assert (again["link"], again["parent_id"], again["trace_id"]) == ("redrive", "p1", "p1")


def test_every_message_of_a_flow_is_there_once(rows: Rows) -> None:
    flow = rows("messages", FLOW)
    assert len(flow) == 1_200
    assert sum(row["final_state"] == "acked" for row in flow) == 700
    assert len(rows("attempts", FLOW)) == 700
