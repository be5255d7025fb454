"""What an agent says of itself when it joins, checked at the edge: over a server, and embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.commands import RegisterAgent
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.wire.content import encode_content
from relaymesh.wire.envelope import check_text
from relaymesh.wire.types import ROLES

METADATA_BYTES_MAX = 65_536
CAPABILITIES_MAX = 64
PROTOCOL_SPOKEN = "1.1"


def joining(
    agent: str,
    *,
    role: str | None = None,
    capabilities: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    protocol: str = PROTOCOL_SPOKEN,
    settings: MailboxSettings | None = None,
    budget: int = 0,
    settles: bool = False,
) -> RegisterAgent:
    """The command that registers an agent. Raises `InvalidEnvelope` for what it may not say of itself.

    `settles`: it ends steps with a result, as everything that stands on this SDK does.
    """
    return RegisterAgent(
        agent,
        check_role(role),
        _capabilities(capabilities),
        protocol,
        encode_content(_metadata(metadata), METADATA_BYTES_MAX)[0],
        settings,
        budget,
        settles,
    )


def check_role(role: str | None) -> str:
    """A role as it is registered; empty for none. Raises `InvalidEnvelope`."""
    if role is None:
        return ""
    if type(role) is not str or role not in ROLES:
        raise InvalidEnvelope(f"role {shown(role)} is none of {', '.join(ROLES)}")
    return role


def _capabilities(capabilities: Sequence[str]) -> tuple[str, ...]:
    if type(capabilities) not in (list, tuple):
        raise InvalidEnvelope("capabilities must be a list of words")
    if len(capabilities) > CAPABILITIES_MAX:
        raise InvalidEnvelope(f"at most {CAPABILITIES_MAX} capabilities, not {len(capabilities)}")
    return tuple([check_text(each, "capability") for each in capabilities])


def _metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if type(metadata) is not dict:
        raise InvalidEnvelope("metadata must be a dict of fields of your own")
    return metadata
