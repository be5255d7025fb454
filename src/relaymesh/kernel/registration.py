"""The description of an agent that joined."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.records import AgentRegistered

Said = tuple[str, tuple[str, ...], str, bytes, bool, bool]


class Registration(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One agent, by its last `handshake.register`."""

    agent: str
    """Its address, which is also its mailbox."""
    registered_at: int
    """When it joined, mesh time in ms. A drain does not change it."""
    role: str = ""
    """Its declared role; empty when it declared none."""
    capabilities: tuple[str, ...] = ()
    protocol: str = ""
    metadata: bytes = b"{}"
    """Fields of its own: a JSON object."""
    draining: bool = False
    settles: bool = True
    """Whether it ends steps with a result. If not, its ack of a step means that the step is taken."""

    @property
    def said(self) -> Said:
        return self.role, self.capabilities, self.protocol, self.metadata, self.draining, self.settles


def registration_of(record: AgentRegistered, before: Registration | None) -> Registration:
    """The agent's registration after this record."""
    since = before.registered_at if before is not None and record.draining else record.at
    return Registration(
        record.mailbox,
        since,
        record.role,
        record.capabilities,
        record.protocol,
        record.metadata,
        record.draining,
        record.settles,
    )
