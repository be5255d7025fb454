"""Retries come after about 1, 2 and 4 s, at most 60 s, plus at most a quarter at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.server.reliability import ReliabilityConfig
from tests.kernel.driver import Driver


def delays(chance: float, retries: int, config: ReliabilityConfig) -> list[int]:
    """Milliseconds from each nack to the next delivery, as the protocol's settings make them."""
    mesh = Driver(chance=chance)
    settings = config.mailbox_settings()
    box = mesh.agent(**{name: getattr(settings, name) for name in MailboxSettings.__struct_fields__})
    mesh.send(box, "m", max_retries=retries, ttl_ms=0)
    found = []
    for _ in range(retries):
        (lease,) = mesh.receive(box)
        mesh.nack(lease)
        due = mesh.entry(box, "m").ready_at
        found.append(due - mesh.now)
        mesh.advance(due - mesh.now - 1)
        assert mesh.receive(box) == []
        mesh.advance(1)
    return found


def test_without_jitter_they_double_up_to_a_minute() -> None:
    assert delays(0.0, 9, ReliabilityConfig()) == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_adds_at_most_a_quarter(chance: float) -> None:
    for exact, found in zip([1000, 2000, 4000], delays(chance, 3, ReliabilityConfig()), strict=True):
        assert exact <= found <= exact * 1.25


def test_the_base_is_the_configuration_s() -> None:
    assert delays(0.0, 3, ReliabilityConfig(retry_delay_base=200)) == [200, 400, 800]


def test_the_six_settings_have_the_protocol_s_names_and_defaults() -> None:
    import msgspec

    assert msgspec.to_builtins(ReliabilityConfig()) == {
        "ackTimeout": 30_000,
        "maxRetries": 3,
        "retryDelayBase": 1_000,
        "defaultTTL": 3_600,
        "heartbeatInterval": 30_000,
        "heartbeatTimeout": 90_000,
    }


def test_its_defaults_are_the_mesh_s_own() -> None:
    assert ReliabilityConfig().mailbox_settings() == MailboxSettings()
    assert MailboxSettings().lease_for(3) == ReliabilityConfig().ack_timeout


def test_another_ack_timeout_is_the_lease_of_every_delivery() -> None:
    settings = ReliabilityConfig(ack_timeout=7_000, max_retries=1).mailbox_settings()
    assert [settings.lease_for(priority) for priority in range(1, 6)] == [7_000] * 5
    assert settings.max_retries == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"ack_timeout": 0},
        {"max_retries": -1},
        {"default_ttl": -1},
        {"heartbeat_timeout": 30_000},
        {"retry_delay_base": 120_000},
        {"max_retries": 10**9},
        {"ack_timeout": 10**15},
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSettings):
        ReliabilityConfig(**wrong)
