"""Which known name a mistyped one is taken for."""

from __future__ import annotations

import pytest

from relaymesh.wire.near import Names

KNOWN = ("delayMs", "taskId", "ttl", "tags", "to", "correlationId")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("delayms", "delayMs"),
        ("delay_ms", "delayMs"),
        ("DELAY-MS", "delayMs"),
        ("delyMs", "delayMs"),
        ("delayMss", "delayMs"),
        ("dealyMs", "delayMs"),
        ("delauMs", "delayMs"),
        ("TTL", "ttl"),
        ("tag", "tags"),
        ("correlation_ID", "correlationId"),
    ],
)
def test_a_slip_of_the_finger_names_what_was_meant(name: str, meant: str) -> None:
    assert Names(KNOWN).nearest(name) == meant


@pytest.mark.parametrize("name", ["", "tl", "ot", "t", "delay", "customer", "task", "x" * 1_000_000])
def test_another_name_is_another_name(name: str) -> None:
    assert Names(KNOWN).nearest(name) is None
