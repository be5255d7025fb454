"""Envelopes at the edge: names on the wire, times that saturate, delays that are forgiven."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.bounds import shown
from relaymesh.wire.envelope import build_envelope, envelope_json, iso, parse_delay, parse_priority


def test_on_the_wire_a_message_has_the_protocol_s_names() -> None:
    envelope = build_envelope(
        "default/planner",
        {"do": 1},
        id="m",
        task="t",
        key="k",
        correlation_id="c",
        reply_to="boss",
        requires_ack=True,
        tags=["a"],
        max_retries=2,
        delay_ms=1.2,
        extra={"hop": 3},
    )
    assert envelope_json(envelope, "default/coder", 1_767_225_600_000, 1) == {
        "id": "m",
        "from": "default/planner",
        "to": "default/coder",
        "type": "message",
        "content": {"do": 1},
        "timestamp": "2026-01-01T00:00:00.000Z",
        "priority": 3,
        "hop": 3,
        "metadata": {
            "correlationId": "c",
            "ttl": 3600.0,
            "requiresAck": True,
            "retryCount": 1,
            "maxRetries": 2,
            "tags": ["a"],
            "replyTo": "default/boss",
            "taskId": "t",
            "orderingKey": "k",
            "delayMs": 2,
        },
    }


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_123, "2026-01-01T00:00:00.123Z"),
        (1 << 53, "9999-12-31T23:59:59.999Z"),
        (1 << 62, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_beyond_the_calendar_is_shown_as_its_end(ms: int, text: str) -> None:
    assert iso(ms) == text


@pytest.mark.parametrize(
    ("name", "priority"),
    [
        ("critical", 1),
        ("URGENT", 1),
        ("High", 2),
        ("normal", 3),
        ("medium", 3),
        ("low", 4),
        ("background", 5),
    ],
)
def test_a_priority_may_be_a_name(name: str, priority: int) -> None:
    assert parse_priority(name) == priority


@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans(), st.binary()))
def test_any_delay_is_a_time_and_perhaps_a_note(delay: Any) -> None:
    ms, note = parse_delay(delay)
    assert 0 <= ms <= 1 << 53
    plain = isinstance(delay, (int, float)) and not isinstance(delay, bool) and 0 <= delay < 1 << 53
    assert (note is None) == (plain or delay is None)
    if plain:
        assert ms == math.ceil(delay)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (Unshowable(), "a Unshowable"), ("x" * 500, "'" + "x" * 79)]
)
def test_a_refused_value_is_shown_short_whatever_it_is(value: object, text: str) -> None:
    assert shown(value) == text
    assert shown(10**5000) == "a int"


def test_an_envelope_is_checked_when_it_is_built() -> None:
    with pytest.raises(InvalidEnvelope, match="id must have 1 to 128 characters"):
        build_envelope("default/planner", 1, id="")
