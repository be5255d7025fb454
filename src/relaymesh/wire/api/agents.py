"""Agents: who is registered, and who is there."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from relaymesh.kernel.address import name_of
from relaymesh.kernel.moment import iso
from relaymesh.kernel.registration import Registration
from relaymesh.wire.api.base import Address, Answer, Fields, Name, Request, Time
from relaymesh.wire.protocol import PROTOCOL_VERSION
from relaymesh.wire.types import Role

AgentState = Literal["registered", "online", "draining", "offline", "unknown"]
"""`registered`: joined, and not heard of since the node started; `unknown`: it only has a mailbox."""


class RegisterRequest(Request, frozen=True):
    """`handshake.register`: who joins, and what it can do. Registering again renews it."""

    name: Name
    role: Annotated[Role, Meta(description="Which types it may send and get.")] | None = None
    capabilities: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=128)]],
        Meta(description="What it can do, in its own words.", max_length=64),
    ] = field(default_factory=list)
    protocol_version: Annotated[
        str, Meta(description="1.x is understood; another major version is refused.", max_length=32)
    ] = PROTOCOL_VERSION
    metadata: Fields = field(default_factory=dict)
    settles: Annotated[
        bool,
        Meta(
            description="It ends a step with a result. If not, its ack of a step means that it took the step,"
            " and `task_complete` or `task_failed` to `relaymesh` ends it."
        ),
    ] = False


class AgentBody(Answer, frozen=True):
    """An agent as it is now."""

    name: str
    address: Address
    state: Annotated[AgentState, Meta(description="offline after 90 s without a heartbeat.")]
    registered: Annotated[bool, Meta(description="false: it only has a mailbox.")]
    pending: (
        Annotated[
            int,
            Meta(description="Unsettled messages in its mailbox; absent where a token may not see it."),
        ]
        | UnsetType
    ) = UNSET
    role: str | None = None
    capabilities: list[str] = field(default_factory=list)
    protocol_version: str | None = None
    registered_at: Time | UnsetType = UNSET
    last_heard_at: Annotated[Time, Meta(description="Its last sign of life.")] | UnsetType = UNSET
    status: Annotated[str, Meta(description="What its last heartbeat said.")] | UnsetType = UNSET
    metadata: Fields = field(default_factory=dict)
    settles: Annotated[bool, Meta(description="It ends steps with a result.")] | UnsetType = UNSET


class HandshakeAck(AgentBody, frozen=True, kw_only=True):
    """`handshake.ack`: you joined, as this agent, and these are the terms."""

    type: Literal["handshake.ack"] = "handshake.ack"
    heartbeat_interval_ms: Annotated[int, Meta(description="A heartbeat is expected every so many ms.")]
    heartbeat_timeout_ms: Annotated[int, Meta(description="Without one for so long the agent is offline.")]


def agent_body(
    address: str,
    registration: Registration | None,
    *,
    state: AgentState,
    pending: int | None,
    last_heard: int | None = None,
    status: str | None = None,
) -> AgentBody:
    """What it said when it joined, if it did, and how it stands. `last_heard` is mesh time.

    `pending` is None for a reader that may not see it.
    """
    body = AgentBody(
        name=name_of(address),
        address=address,
        state=state,
        registered=registration is not None,
        pending=UNSET if pending is None else pending,
        last_heard_at=UNSET if last_heard is None else iso(last_heard),
        status=UNSET if status is None else status,
    )
    if registration is None:
        return body
    return msgspec.structs.replace(
        body,
        role=registration.role or None,
        capabilities=list(registration.capabilities),
        protocol_version=registration.protocol or None,
        registered_at=iso(registration.registered_at),
        metadata=msgspec.json.decode(registration.metadata),
        settles=registration.settles,
    )


class AgentsAnswer(Answer, frozen=True):
    """Agents of the credential's namespace, by name."""

    agents: list[AgentBody]


class HeartbeatRequest(Request, frozen=True):
    """Still there. `status` is shown to people."""

    status: Annotated[str, Meta(max_length=256)] | None = None


class HeartbeatAnswer(Answer, frozen=True):
    """The `ack` of a heartbeat."""

    type: Literal["ack"]
    now: Annotated[int, Meta(description="Mesh time, ms since 1970.")]
    state: AgentState
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
