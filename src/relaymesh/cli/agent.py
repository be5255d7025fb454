"""agent: who joined, who is there, and what waits for them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import parse_json
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.looking import look_into
from relaymesh.cli.moments import span_text
from relaymesh.cli.nodes import agent_path, node_of
from relaymesh.cli.options import Call
from relaymesh.cli.table import Column
from relaymesh.errors import DirectoryInUse, NotFound
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.looks import counts_of, registrations
from relaymesh.kernel.registration import Registration
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.server.roster import Roster
from relaymesh.wire.api import AgentBody, AgentsAnswer, AgentState, NodeAnswer, RegisterRequest, agent_body

app = typer.Typer(help="Agents: list, show, register, drain.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent's name, or its full address.")]

AGENTS = [
    Column("name", "text"),
    Column("state"),
    Column("role"),
    Column("pending", "number"),
    Column("last_heard", "number", span_text, "heard"),
    Column("capabilities", "text", ", ".join),
    Column("status", "text"),
]


@app.command("list")
@mesh_command
def list_agents(
    call: Call,
) -> None:
    """List agents: whether they are there, and what waits for them.

    Without a node no agent can be heard: the state is then `registered`, or `unknown` for a mailbox whose
    agent never joined.
    """
    node = node_of(call)
    if node is None:
        agents, now = _in_directory(call), 0
    else:
        with node:
            agents = node.get("/v1/agents", AgentsAnswer).agents
            now = node.get("/v1/node", NodeAnswer).now
    call.output.rows(
        AGENTS, (_row(agent, now) for agent in agents), empty="no agents yet: relaymesh agent register NAME"
    )


@app.command("show")
@mesh_command
def show_agent(
    call: Call,
    name: Name,
) -> None:
    """Show an agent's description of itself, and its state."""
    node = node_of(call)
    if node is not None:
        with node:
            _print(call, node.get(agent_path(name), AgentBody))
        return
    address = agent_address(name)
    for agent in _in_directory(call):
        if agent.address == address:
            _print(call, agent)
            return
    raise NotFound(f"there is no agent {name!r}", hint="relaymesh agent list shows them")


@app.command("register")
@mesh_command
def register(
    call: Call,
    name: Name,
    role: Annotated[
        str | None,
        typer.Option("--role", metavar="ROLE", help="manager, developer, reviewer, tester or agent."),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option("--capability", metavar="WORD", help="What it can do; may be given several times."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="An object with fields of its own.")
    ] = None,
    settles: Annotated[
        bool,
        typer.Option("--settles", help="It ends steps with a result; else its ack means that it took one."),
    ] = False,
) -> None:
    """Register an agent: it has a mailbox from then on. Registering again replaces its description."""
    fields = {} if metadata is None else parse_json(metadata, "--metadata")
    if not isinstance(fields, dict):
        raise UsageFailed("--metadata is no JSON object", hint="""--metadata '{"team": "blue"}'""")
    words = {
        "name": name,
        "role": role,
        "capabilities": capability or [],
        "metadata": fields,
        "settles": settles,
    }
    try:
        request = msgspec.convert(words, RegisterRequest)
    except msgspec.ValidationError as error:
        raise UsageFailed(f"this cannot be registered: {error}") from None
    node = node_of(call)
    if node is not None:
        with node:
            _print(call, node.post("/v1/agents", request, AgentBody))
        return
    _print(call, _embedded(call, request.name, request))


@app.command("drain")
@mesh_command
def drain(
    call: Call,
    name: Name,
) -> None:
    """Give an agent no new tasks, until it registers again. What it has, it finishes."""
    node = node_of(call)
    if node is not None:
        with node:
            _print(call, node.post(agent_path(name, "drain"), None, AgentBody))
        return
    _print(call, _embedded(call, name, None))


# -- without a node


def _embedded(call: Call, name: str, request: RegisterRequest | None) -> AgentBody:
    """Register (or, without a request, drain) in the directory itself."""
    address = agent_address(name)
    node = _opened(call)
    try:
        roster = Roster(node.core)
        if request is None:
            registration = asyncio.run(roster.drain(address))
        else:
            registration = asyncio.run(
                roster.register(
                    address,
                    node.time.now(),
                    role=request.role,
                    capabilities=request.capabilities,
                    protocol=request.protocol_version,
                    metadata=request.metadata,
                    settles=request.settles,
                )
            )
        pending = node.core.read(partial(counts_of, (address,), node.time.now()))[address].pending
    finally:
        node.close()
    return _described(address, registration, pending)


def _opened(call: Call) -> Node:
    try:
        return Node(call.existing(), MeshSettings())
    except DirectoryInUse as error:
        raise DirectoryInUse(
            error.message, hint="it runs without a server; stop it, or run relaymesh serve there"
        ) from None


def _in_directory(call: Call) -> list[AgentBody]:
    seen = look_into(call.existing())
    agents = registrations(seen.replayed)
    boxes = {address: box.pending for address, box in seen.mailboxes().items() if ":" not in address}
    return [
        _described(address, agents.get(address), boxes.get(address, 0))
        for address in sorted(boxes.keys() | agents.keys())
    ]


def _described(address: str, registration: Registration | None, pending: int) -> AgentBody:
    """No agent can be heard here: the state is what it said last."""
    if registration is None:
        return agent_body(address, None, state="unknown", pending=pending)
    state: AgentState = "draining" if registration.draining else "registered"
    return agent_body(address, registration, state=state, pending=pending)


# -- printing


def _row(agent: AgentBody, now: int) -> dict[str, Any]:
    fields = _fields(agent)
    heard = fields["last_heard_at"]
    moment = None if heard is None else datetime.fromisoformat(heard).timestamp()
    fields["last_heard"] = None if moment is None else max(0.0, now / 1000 - moment)
    return fields


def _print(call: Call, agent: AgentBody) -> None:
    fields = _fields(agent)
    if not call.output.json:
        fields["capabilities"] = ", ".join(agent.capabilities)
        fields["metadata"] = msgspec.json.encode(agent.metadata).decode() if agent.metadata else None
    call.output.record(fields)


def _fields(agent: AgentBody) -> dict[str, Any]:
    values = {name: getattr(agent, name) for name in agent.__struct_fields__}
    return {name: None if value is UNSET else value for name, value in values.items()}
