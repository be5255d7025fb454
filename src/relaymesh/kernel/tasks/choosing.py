"""Choosing an agent by its capability, when a step is sent. `StepsSent` records the choice.

It is the one with the fewest messages among the registered agents of the task's namespace that have the
capability and can take a step now; if several have the same number, the first by name. A replay reads the
record and does not choose.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heapify, heapreplace

from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.state import State

__all__ = ["Agents", "refusal"]


class Agents:
    """The agents with one capability. `away`: those known to be offline."""

    def __init__(self, state: State, namespace: str, capability: str, away: Container[str]) -> None:
        self._least = [
            (len(state.mailboxes[agent].entries), agent)
            for agent, said in state.agents.items()
            if capability in said.capabilities
            and namespace_of(agent) == namespace
            and agent not in away
            and not refusal(state, agent)
            and state.mailboxes[agent].breaker.state != "open"
            and state.mailboxes[agent].room_for(1, 0)
        ]
        heapify(self._least)

    def choose(self) -> str | None:
        """The address of the agent with the fewest messages; from now on it counts one more."""
        if not self._least:
            return None
        load, agent = self._least[0]
        heapreplace(self._least, (load + 1, agent))
        return agent


def refusal(state: State, address: str) -> str:
    """Why this mailbox takes no steps now; empty: it does if there is room."""
    mailbox, agent = state.mailboxes.get(address), state.agents.get(address)
    if mailbox is None:
        return f"there is no mailbox {address}"
    if agent is not None and agent.draining:
        return f"{address} is draining"
    if state.letters.count and state.letters.of(address).full(mailbox.settings):
        return f"the dead letters of {address} are full"
    if mailbox.settings.delivery_semantics == "at_most_once":
        return f"{address} is at_most_once, which would lose a step whose agent dies"
    return ""
