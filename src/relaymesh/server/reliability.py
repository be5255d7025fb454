"""The six reliability settings of the Mailbox protocol, under their names there, and what each sets here."""

from __future__ import annotations

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.settings import MailboxSettings

ACK_TIMEOUT_MS = 30_000
MAX_RETRIES = 3


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
    """Milliseconds; the delay before retry n is min(base * 2^(n-1), 60 s), plus up to 25% at random."""
    default_ttl: int = msgspec.field(default=3_600, name="defaultTTL")
    """Seconds a message may wait when it names no `ttl`; 0 is for ever. Raising it keeps stale work alive."""
    heartbeat_interval: int = 30_000
    """Milliseconds between the heartbeats of an agent, as the mesh asks for them."""
    heartbeat_timeout: int = 90_000
    """Milliseconds without one after which an agent is offline: three intervals. Its mail waits."""

    def __post_init__(self) -> None:
        for name in ("ack_timeout", "heartbeat_interval"):
            if getattr(self, name) < 1:
                raise InvalidSettings(f"{name} must be at least 1 ms, not {getattr(self, name)}")
        for name in ("max_retries", "retry_delay_base", "default_ttl"):
            if getattr(self, name) < 0:
                raise InvalidSettings(f"{name} must not be negative, not {getattr(self, name)}")
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise InvalidSettings("heartbeat_timeout must be longer than heartbeat_interval")

    @property
    def ttl_ms(self) -> int:
        return self.default_ttl * 1000

    def mailbox_settings(self, base: MailboxSettings | None = None) -> MailboxSettings:
        """The settings of a mailbox under this configuration; defaults stay what the mailbox says."""
        changed: dict[str, int] = {"backoff_ms_base": self.retry_delay_base}
        if self.ack_timeout != ACK_TIMEOUT_MS:
            changed["lease_ms"] = self.ack_timeout
        if self.max_retries != MAX_RETRIES:
            changed["max_retries"] = self.max_retries
        return msgspec.structs.replace(base or MailboxSettings(), **changed)
