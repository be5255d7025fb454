"""The table of settings: what it holds, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.server.reliability import BOUNDS, ReliabilityConfig
from relaymesh.wire.parameters import (
    DEFAULTS,
    PARAMETERS,
    ROWS,
    Parameters,
    checked,
    environment_name,
    parameters_of,
)

ASKED = {
    "max_attempts": 3,
    "base_backoff_ms": 1_000,
    "max_backoff_ms": 60_000,
    "reclaim_scan_interval_ms": 5_000,
    "lease_heartbeat_ms": 2_000,
    "lease_timeout_ms": 15_000,
    "suspect_recover_min_ms": 5_000,
    "dead_recover_min_ms": 30_000,
    "pause_worker_when_local_not_alive": True,
    "mesh_prune_older_than_ms": 604_800_000,
    "mesh_prune_limit": 256,
    "mesh_prune_interval_ms": 3_600_000,
    "payload_max_bytes": 10_485_760,
    "done_retention_days": 7,
    "idempotency_ttl_days": 7,
    "queue_capacity": 100,
    "thread_pool_core": 4,
    "thread_pool_max": 8,
    "llm_parallel_limit": 4,
    "gossip_sync_sample_size": 32,
    "graceful_timeout": 15,
    "ackTimeout": 30_000,
    "maxRetries": 3,
    "retryDelayBase": 1_000,
    "defaultTTL": 3_600,
    "heartbeatInterval": 30_000,
    "heartbeatTimeout": 90_000,
}
"""Every parameter that was asked for, by its name, with the default that was asked for."""
WHOLE = [row.name for row in PARAMETERS if row.kind == "whole"]


def test_it_holds_what_was_asked_for_with_the_defaults_that_were_asked_for() -> None:
    assert {row.name: row.default for row in PARAMETERS} == ASKED
    assert [row.field for row in PARAMETERS] == list(Parameters.__struct_fields__)


def test_only_the_settings_of_several_nodes_are_inactive() -> None:
    assert {row.name for row in PARAMETERS if not row.active} == {
        "suspect_recover_min_ms",
        "dead_recover_min_ms",
        "pause_worker_when_local_not_alive",
        "mesh_prune_older_than_ms",
        "mesh_prune_limit",
        "mesh_prune_interval_ms",
        "gossip_sync_sample_size",
    }


def test_the_six_have_the_bounds_and_defaults_of_the_reliability_configuration() -> None:
    for field, bounds in BOUNDS.items():
        [row] = [row for row in PARAMETERS if row.field == field]
        assert (row.least, row.most, row.default) == (*bounds, getattr(ReliabilityConfig(), field))


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row.name)
def test_the_bounds_are_taken_and_what_lies_beyond_is_refused(row: Any) -> None:
    good: list[Any]
    bad: list[Any]
    if row.kind == "flag":
        good, bad = [True, False], [0, 1, "true", None, [], {}]
    else:
        kind = int if row.kind == "whole" else float
        good = [kind(row.least), kind(row.most), row.default]
        bad = [row.least - 1, row.most * 2, -1, True, "3", None, [], {}, math.nan, math.inf, -math.inf]
        bad += [3.5] if row.kind == "whole" else []
    for value in good:
        assert checked({row.name: value}, "here") == {row.name: value}
    for value in bad:
        with pytest.raises(InvalidSettings, match=row.name) as refused:
            checked({row.name: value}, "here")
        assert (refused.value.keys, bool(refused.value.hint)) == ((row.name,), True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_atempts", "did you mean max_attempts"),
        ("maxAttempts", "did you mean max_attempts"),
        ("ack_timeout", "did you mean ackTimeout"),
        ("thread_pool_core/max", "thread_pool_core and thread_pool_max"),
        ("nothing like it", "settings show"),
        ("", "settings show"),
        ("x" * 100_000, "settings show"),
        ("\ud800", "settings show"),
        ("a\0b", "settings show"),
    ],
)
def test_an_unknown_name_is_refused_with_the_close_one(name: str, hint: str) -> None:
    with pytest.raises(InvalidSettings, match="there is no setting") as refused:
        checked({"max_attempts": 3, name: 1}, "here")
    assert hint in refused.value.hint
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        ("base_backoff_ms", "max_backoff_ms", (2, 1)),
        ("base_backoff_ms", "max_backoff_ms", (70_000, None)),
        ("thread_pool_core", "thread_pool_max", (9, None)),
        ("lease_heartbeat_ms", "lease_timeout_ms", (15_000, None)),
        ("heartbeatInterval", "heartbeatTimeout", (90_000, None)),
        ("heartbeatInterval", "heartbeatTimeout", (None, 30_000)),
    ],
)
def test_two_that_contradict_are_refused_together(first: str, second: str, values: Any) -> None:
    given = {name: value for name, value in zip((first, second), values, strict=True) if value is not None}
    with pytest.raises(InvalidSettings, match=f"{first} is .* and {second} is ") as refused:
        parameters_of(given)
    assert refused.value.keys == (first, second)


def test_a_name_of_a_variable_is_made_of_the_name_of_the_setting() -> None:
    names = [environment_name(name) for name in ROWS]
    assert len(set(names)) == len(names)
    assert environment_name("maxRetries") == "RELAYMESH_MAX_RETRIES"
    assert not {"RELAYMESH_HOME", "RELAYMESH_URL", "RELAYMESH_TOKEN"} & set(names)


def test_nothing_given_is_the_defaults() -> None:
    assert parameters_of({}) == DEFAULTS == Parameters()
    assert msgspec.to_builtins(DEFAULTS) == ASKED
