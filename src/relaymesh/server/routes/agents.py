"""Agents: joining, heartbeats, leaving. Registrations are durable; presence is not."""

from __future__ import annotations

import asyncio

import msgspec

from relaymesh.errors import NotFound
from relaymesh.kernel.registration import Registration
from relaymesh.server.counting import in_turns, stats_of_one
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.served import Served
from relaymesh.server.tasks import renew_taken
from relaymesh.wire.api import (
    AgentBody,
    HandshakeAck,
    HeartbeatAnswer,
    HeartbeatRequest,
    RegisterRequest,
    agent_body,
)
from relaymesh.wire.stats import MeshStats


async def register(exchange: Exchange) -> HandshakeAck:
    """`handshake.register`: an agent joins and gets a mailbox. A second call updates the registration."""
    principal, served = exchange.principal, exchange.served
    principal.require("agent")
    request = await exchange.decode(RegisterRequest)
    agent = principal.address(request.name)
    principal.require_mailbox(agent)
    exchange.acted_as({agent})
    registration = await served.roster.register(
        agent,
        served.now,
        role=request.role,
        capabilities=request.capabilities,
        protocol=request.protocol_version,
        metadata=request.metadata,
        settles=request.settles,
    )
    return handshake_ack(served, agent, registration)


def handshake_ack(served: Served, agent: str, registration: Registration) -> HandshakeAck:
    """The answer to `handshake.register`, over HTTP and over the WebSocket."""
    body = _described(served, agent, registration, _pending_of(served, agent))
    config = served.roster.config
    return HandshakeAck(
        **msgspec.structs.asdict(body),
        heartbeat_interval_ms=config.heartbeat_interval,
        heartbeat_timeout_ms=config.heartbeat_timeout,
    )


async def list_agents(exchange: Exchange) -> Reply:
    """Agents of the credential's namespace: those that joined, and those that only have a mailbox.

    An agent's own token sees how much mail is `pending` for that agent alone. With more than 250 mailboxes
    the list may be some seconds old.
    """
    principal, served = exchange.principal, exchange.served
    principal.require_looking()

    async def show(stats: MeshStats) -> bytes:
        boxes = {mailbox: box for mailbox, box in stats.mailboxes.items() if ":" not in mailbox}
        pending = {agent: box.pending for agent, box in boxes.items() if principal.may_look(agent)}
        joined = {each.agent: each for each in served.roster.registrations()}
        agents = sorted(agent for agent in joined.keys() | boxes.keys() if principal.sees(agent))
        parts: list[bytes] = []
        for some in in_turns(agents):
            bodies = [_described(served, agent, joined.get(agent), pending) for agent in some]
            parts.append(msgspec.json.encode(bodies)[1:-1])
            await asyncio.sleep(0)
        return b'{"agents":[' + b",".join(parts) + b"]}"

    return Reply(200, await served.counting.shown(f"agents {principal.view}", show))


async def show(exchange: Exchange) -> AgentBody:
    """One agent."""
    principal, served = exchange.principal, exchange.served
    agent = principal.address(exchange.parameters["name"])
    principal.require_looking()
    pending = _pending_of(served, agent)
    registration = served.roster.registration(agent)
    if registration is None and agent not in pending:
        raise NotFound(f"there is no agent {agent}", hint="relaymesh agent list, GET /v1/agents: all names")
    return _described(served, agent, registration, pending if principal.may_look(agent) else {})


async def heartbeat(exchange: Exchange) -> HeartbeatAnswer:
    """A heartbeat of the agent. The answer is `ack`. After `heartbeatTimeoutMs` without a heartbeat the agent
    is offline.

    Renews the leases of steps that the agent took.
    """
    served = exchange.served
    agent = _own(exchange)
    request = await exchange.decode(HeartbeatRequest)
    now = served.now
    served.roster.heartbeat(agent, now, request.status)
    await renew_taken(served, [agent])
    config = served.roster.config
    return HeartbeatAnswer(
        type="ack",
        now=now,
        state=served.roster.state(agent, now),
        heartbeat_interval_ms=config.heartbeat_interval,
        heartbeat_timeout_ms=config.heartbeat_timeout,
    )


async def drain(exchange: Exchange) -> AgentBody:
    """The agent finishes what it has and gets no new tasks, until it registers again."""
    served = exchange.served
    agent = _own(exchange)
    await exchange.body()
    registration = await served.roster.drain(agent)
    return _described(served, agent, registration, _pending_of(served, agent))


def _own(exchange: Exchange) -> str:
    """The agent in the path. The credential must be that agent, or be allowed to act for it."""
    principal = exchange.principal
    principal.require("agent")
    agent = principal.address(exchange.parameters["name"])
    principal.require_mailbox(agent)
    exchange.acted_as({agent})
    return agent


def _pending_of(served: Served, agent: str) -> dict[str, int]:
    """What the mailbox of an agent holds, by its address; empty if it has none."""
    stats = stats_of_one(served, agent)
    return {} if stats is None else {agent: stats.pending}


def _described(
    served: Served, agent: str, registration: Registration | None, pending: dict[str, int]
) -> AgentBody:
    presence = served.roster.presence
    return agent_body(
        agent,
        registration,
        state=served.roster.state(agent, served.now),
        pending=pending.get(agent),
        last_heard=presence.last_heard(agent),
        status=presence.status(agent),
    )
