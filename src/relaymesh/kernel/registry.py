"""Registered agents and their descriptions. Durable; which agents are online now is not.

A registered agent has a mailbox. Registering again replaces its description and ends a drain; an unchanged
description writes nothing, so a client may register at every connection.
"""

from __future__ import annotations

from relaymesh.errors import NotFound
from relaymesh.kernel.address import name_of
from relaymesh.kernel.charges import MAILBOX_BYTES
from relaymesh.kernel.commands import DrainAgent, RegisterAgent
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import AgentRegistered, MailboxOpened
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.settings import MailboxSettings


def register(decision: Decision, command: RegisterAgent) -> Registration:
    """Open the agent's mailbox if it has none, and store its description. Returns its registration."""
    state, agent = decision.state, command.agent
    if agent not in state.mailboxes:
        state.charges.require(agent, MAILBOX_BYTES, command.budget)
        decision.emit(MailboxOpened(1, decision.now, agent, command.settings or MailboxSettings()))
    known = state.agents.get(agent)
    said = (command.role, command.capabilities, command.protocol, command.metadata, False, command.settles)
    if known is None or known.said != said:
        decision.emit(AgentRegistered(1, decision.now, agent, *said))
    decision.after_sync()
    return state.agents[agent]


def drain(decision: Decision, command: DrainAgent) -> Registration:
    """The agent finishes what it has and gets no new tasks until it registers again."""
    known = decision.state.agents.get(command.agent)
    if known is None:
        raise NotFound(f"agent {name_of(command.agent)!r} is not registered", hint="see relaymesh agent list")
    if not known.draining:
        said = (known.role, known.capabilities, known.protocol, known.metadata, True, known.settles)
        decision.emit(AgentRegistered(1, decision.now, command.agent, *said))
    decision.after_sync()
    return decision.state.agents[command.agent]
