"""Taking a step: an agent acks its message on receipt, and reports the result later.

An agent that does not settle with a result registers without `settles`. Its ack of a step ends nothing: the
step stays RUNNING under the same token, with a lease that lasts as long as an agent may be silent. A report
and a heartbeat renew that lease; a result or a failure ends the step as for any other agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.kernel.commands import KeepTaken
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entries import entries_of, sequences_of
from relaymesh.kernel.leases import prolong
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Part
from relaymesh.kernel.records import StepsTaken


def take(decision: Decision, mailbox: Mailbox, parts: Sequence[Part], lease_ms: int) -> Sequence[Part]:
    """Note the steps among these messages as taken, if the agent reports later. Returns what an ack ends."""
    board = decision.state.board
    agent = decision.state.agents.get(mailbox.address) if lease_ms and board.links else None
    if agent is None or agent.settles or not board.has_step(sequences_of(parts)):
        return parts
    entries = entries_of(parts, mailbox.entries)
    anew: list[int] = []
    for entry in entries:
        link = board.links.get(entry.sequence)
        if link is None:
            continue
        if not link.step.taken_ms:
            anew.append(entry.sequence)
        elif entry.lease is not None:
            prolong(decision, entry.lease, link.step.taken_ms)
    if anew:
        decision.emit(StepsTaken(len(anew), decision.now, mailbox.address, anew, lease_ms))
    return [entry for entry in entries if entry.sequence not in board.links]


def keep_taken(decision: Decision, command: KeepTaken) -> int:
    """The agents live: renew the leases of the steps that they took. Returns how many."""
    state = decision.state
    renewed = 0
    for agent in command.agents:
        for token in state.board.taken.to_renew(agent, decision.now):
            lease = state.lease(token)
            if lease is not None:
                prolong(decision, lease, state.board.by_token[token].step.taken_ms)
                renewed += 1
    decision.after_write()
    return renewed
