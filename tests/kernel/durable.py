"""The durable part of a state as a plain structure, to compare a replay with the live one."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.dedup import Seen
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.state import State


def durable(state: State) -> dict[str, Any]:
    """Everything a replay must give back, but for the ids: see `admitted`."""
    return {
        "sequence": state.sequence,
        "now": state.now,
        "epoch": (state.epoch, state.partition, state.next_token),
        "unrouted": state.unrouted,
        "subscriptions": list(state.subscriptions),
        "agents": list(state.agents.items()),
        "suspended": {address: state.subscriptions.suspended(address) for address in state.mailboxes},
        "mailboxes": {address: _mailbox(mailbox) for address, mailbox in state.mailboxes.items()},
        "letters": [msgspec.to_builtins(letter) for letter in state.letters],
        "dead": state.letters.count,
    }


def _mailbox(mailbox: Mailbox) -> dict[str, Any]:
    return {
        "settings": mailbox.settings,
        "owner": (mailbox.owner, mailbox.owner_budget),
        "counters": msgspec.to_builtins(mailbox.counters),
        "halted": dict(mailbox.halted),
        "bytes": mailbox.bytes,
        "by_priority": list(mailbox.by_priority),
        "leased": mailbox.leased,
        "entries": [_entry(entry) for entry in mailbox.entries.values()],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    """Ready or delayed is not compared: `ready_at` and the clock say that."""
    return {
        "envelope": entry.envelope,
        "sequence": entry.sequence,
        "times": (entry.accepted_at, entry.due_at, entry.ready_at),
        "ready_sequence": entry.ready_sequence,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "deferrals": entry.deferrals,
        "waited_ms": entry.waited_ms,
        "topic": entry.topic,
        "redrives": entry.redrives,
        "completed": entry.completed,
        "failures": list(entry.failures or ()),
        "lease": _lease(entry.lease),
    }


def _lease(lease: Lease | None) -> tuple[object, ...]:
    if lease is None:
        return ()
    grant = lease.grant
    return lease.token, lease.attempt, lease.entry.sequence, grant.mailbox, grant.holder, grant.remote


def admitted(state: State) -> dict[tuple[str, str], Seen | tuple[str, int]]:
    """Every id the state answers for; a live one may have forgotten some that a replay remembers."""
    return {
        (target, id): found if isinstance(found, Seen) else ("pending", found)
        for target, id, found in state.admitted
    }
