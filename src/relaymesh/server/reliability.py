"""The six reliability settings of the Mailbox protocol, under their names, and which settings they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import LEASE_MS_MAX, RETRIES_MAX, whole
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.wire.parameters import Parameters

ACK_TIMEOUT_MS = 30_000
MAX_RETRIES = 3
RETRY_DELAY_MS_MAX = 60_000
"""No retry waits longer, before the random part."""
FIELDS = ("lease_ms", "max_retries", "backoff_ms_base")
"""Settings of a mailbox that follow this configuration."""


class ReliabilityConfig(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """`RELIABILITY_CONFIG` of the protocol. Its defaults are the mesh's own."""

    ack_timeout: int = ACK_TIMEOUT_MS
    """Milliseconds a receiver has to settle or extend a delivery. At its default a lease is as long as the
    priority says (5, 10, 30, 60, 60 s: 30 s for NORMAL); any other value is the lease of every delivery.
    Raising it delays the retry of what a dead receiver held."""
    max_retries: int = MAX_RETRIES
    """Retries after the first attempt, where the failure contract has any. Raising it delays dead letters."""
    retry_delay_base: int = 1_000
    """Milliseconds, at most 60,000; the delay before retry n is min(base * 2^(n-1), 60 s), plus up to 25% at
    random."""
    default_ttl: int = msgspec.field(default=3_600, name="defaultTTL")
    """Seconds a message may wait when it names no `ttl`; 0 is for ever. Raising it keeps stale work alive."""
    heartbeat_interval: int = 30_000
    """Milliseconds between the heartbeats of an agent, as the mesh asks for them."""
    heartbeat_timeout: int = 90_000
    """Milliseconds without one after which an agent is offline: three intervals. Its mail waits."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            whole(getattr(self, name), name, least, most, InvalidSettings)
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise InvalidSettings("heartbeat_timeout must be longer than heartbeat_interval")

    @property
    def ttl_ms(self) -> int:
        return self.default_ttl * 1000

    def mailbox_settings(
        self, base: MailboxSettings | None = None, following: Mapping[str, Sequence[int | None]] | None = None
    ) -> MailboxSettings:
        """The settings of a mailbox under this configuration. What was chosen for the mailbox stays.

        Not chosen is a built-in default, or a value in `following`: those came from a configuration.
        """
        given = base or MailboxSettings()
        wanted = {
            "lease_ms": 0 if self.ack_timeout == ACK_TIMEOUT_MS else self.ack_timeout,
            "max_retries": None if self.max_retries == MAX_RETRIES else self.max_retries,
            "backoff_ms_base": min(self.retry_delay_base, given.backoff_ms_cap),
        }
        changed = {
            name: value
            for name, value in wanted.items()
            if getattr(given, name) in (getattr(PLAIN, name), *(following or {}).get(name, ()))
        }
        return msgspec.structs.replace(given, **changed)


def config_of(values: Parameters) -> ReliabilityConfig:
    """The six values of the current settings."""
    return ReliabilityConfig(
        **{field: getattr(values, field) for field in ReliabilityConfig.__struct_fields__}
    )


PLAIN = MailboxSettings()
BOUNDS = {
    "ack_timeout": (1, LEASE_MS_MAX),
    "max_retries": (0, RETRIES_MAX),
    "retry_delay_base": (0, RETRY_DELAY_MS_MAX),
    "default_ttl": (0, LEASE_MS_MAX // 1000),
    "heartbeat_interval": (1, LEASE_MS_MAX),
    "heartbeat_timeout": (1, LEASE_MS_MAX),
}
"""The least and the most of each."""
