"""Every attack, by name: what it does, with which credential, and when it has done enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.attacks import kept, loop, unfinished
from tests.attacks.target import Attacking, Target

Credential = Literal["agent", "read", "none"]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """`enough`: actions the node took, after which the attacker holds what it has; 0 goes on to the end."""

    act: Callable[[Target], Attacking]
    credential: Credential
    enough: int = 0
    mailboxes: int = 0
    """Mailboxes that must be there before it begins."""


ATTACKS: dict[str, Attack] = {
    "unknown_field": Attack(act=kept.unknown_field, credential="agent", enough=300),
    "stacks": Attack(act=kept.stacks, credential="agent", enough=200),
    "peeks": Attack(act=kept.peeks, credential="agent"),
    "expectations": Attack(act=kept.expectations, credential="agent", enough=200),
    "dead_letters": Attack(act=kept.dead_letters, credential="agent", enough=300),
    "unfinished_messages": Attack(act=unfinished.messages, credential="read"),
    "unfinished_bodies": Attack(act=unfinished.bodies, credential="read"),
    "half_open_heads": Attack(act=unfinished.heads, credential="none"),
    "pings": Attack(act=loop.pings, credential="agent"),
    "bundles": Attack(act=loop.bundles, credential="agent"),
    "fields": Attack(act=loop.fields, credential="agent", enough=50),
    "batches": Attack(act=loop.batches, credential="agent", enough=10),
    "metrics": Attack(act=loop.metrics, credential="read", mailboxes=10_000),
}
