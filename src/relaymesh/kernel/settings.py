"""Settings of one mailbox. Durable: the record that opens the mailbox holds them."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import (
    BYTES_MAX,
    CODE_LENGTH_MAX,
    COUNT_MAX,
    LEASE_MS_MAX,
    RETRIES_MAX,
    flag,
    one_of,
    real,
    shown,
    text,
    whole,
)
from relaymesh.kernel.contract import Contract, Rule

ScheduleName = Literal["weighted", "strict", "fifo"]
Semantics = Literal["at_least_once", "at_most_once", "exactly_once"]
Overflow = Literal["reject", "dead_letter"]

LEASE_MS_BY_PRIORITY = (0, 5_000, 10_000, 30_000, 60_000, 60_000)
"""Lease by priority 1..5 (index 0 is unused): 5, 10, 30, 60, 60 s."""

RATE_PER_S_MAX = 1_000_000
BACKOFF_MS_MAX = 300_000
CONTRACT_ROWS_MAX = 1_000


class MailboxSettings(msgspec.Struct, array_like=True, frozen=True, gc=False, omit_defaults=True):
    """The settings of one mailbox. Every default is safe to keep."""

    capacity: int = 100_000
    """How many unsettled messages it may hold. Raising it costs about 700 bytes of memory a message."""
    capacity_bytes: int = 268_435_456
    """How many unsettled bytes it may hold: content, unknown fields (`extra`), texts of failures (256 MiB).
    """
    schedule: ScheduleName = "weighted"
    """Which message goes first: `weighted` 8:3:1 over the tiers, `strict` by priority, `fifo` by arrival."""
    max_consecutive_high: int = 100
    """`strict` only: after this many entries of higher tiers in a row one low entry goes, then one normal."""
    lease_ms: int = 0
    """Length of a lease; 0: by priority (5, 10, 30, 60, 60 s)."""
    max_retries: int | None = None
    """Retries after the first attempt, at most as many as the contract allows; None: the contract decides
    (3).
    """
    backoff_ms_base: int = 1_000
    """Delay before retry n is min(base * 2^(n-1), cap) * (1 + U(0, jitter))."""
    backoff_ms_cap: int = 60_000
    """Largest delay before jitter. Up to 300,000 (5 min) is allowed."""
    backoff_jitter: float = 0.25
    """Share of the delay that is added at random, so that retries do not come in step."""
    max_deferrals: int = 100
    """How often `nack(until=...)` may defer one delivery before it becomes a dead letter."""
    ordered: bool = False
    """Make the whole mailbox one lane: messages are handled strictly one after the other."""
    halt_on_dead_letter: bool = False
    """Halt a lane when one of its entries dies, until the letter is redriven or purged."""
    delivery_semantics: Semantics = "at_least_once"
    """`at_most_once` settles before it delivers; `exactly_once` is a name for at-least-once plus dedup."""
    overflow: Overflow = "reject"
    """A publish to this full mailbox is refused whole (`reject`), or dead-lettered here alone
    (`dead_letter`).
    """
    contract: Contract | None = None
    """Rows of its own failure contract; codes without a row use the default table."""
    breaker: bool = True
    """Whether the circuit breaker opens by itself; see docs/explanation/breaker.md."""
    breaker_retry_rate: float = 0.05
    """It opens when more than this share of deliveries failed in every tenth of the window; 1: never."""
    breaker_window_ms: int = 600_000
    """How long the retry rate must have been too high (10 min). Raising it wastes more attempts on a failing
    receiver.
    """
    breaker_min_outcomes: int = 100
    """Deliveries that must have ended in the window before the retry rate counts."""
    breaker_failures: int = 50
    """It also opens after this many failures in a row, however few deliveries there are; 0: never."""
    breaker_open_ms: int = 30_000
    """How long it stays open before probes; a failed probe doubles it, up to 8 times this."""
    breaker_probes: int = 3
    """How many deliveries may be out while it is half-open, and how many must succeed to close it."""
    rate_per_s: float = 0.0
    """Deliveries per second, including retries; 0: no limit."""
    rate_burst: int = 0
    """Deliveries at once after a quiet time; 0: those of one second, and at least one."""
    dead_letters_max: int = 100_000
    """Dead letters that may wait here for a redrive or a purge; at the limit, sends to it are refused."""
    dead_letter_bytes_max: int = 268_435_456
    """Bytes of content and failures of those (256 MiB). Redriven letters are kept while there is room."""

    def __post_init__(self) -> None:
        for name, (least, most) in WHOLE_BOUNDS.items():
            force_setattr(self, name, whole(getattr(self, name), name, least, most, InvalidSettings))
        for name, highest in REAL_BOUNDS.items():
            force_setattr(self, name, real(getattr(self, name), name, 0.0, highest, InvalidSettings))
        for name, allowed in CHOICES.items():
            force_setattr(self, name, one_of(getattr(self, name), name, allowed, InvalidSettings))
        for name in FLAGS:
            flag(getattr(self, name), name, InvalidSettings)
        if self.max_retries is not None:
            retries = whole(self.max_retries, "max_retries", 0, RETRIES_MAX, InvalidSettings)
            force_setattr(self, "max_retries", retries)
        if self.backoff_ms_base > self.backoff_ms_cap:
            raise InvalidSettings("backoff_ms_cap must lie between backoff_ms_base and 300000 (5 minutes)")
        if self.contract is not None:
            force_setattr(self, "contract", _checked_contract(self.contract))

    def lease_for(self, priority: int) -> int:
        return self.lease_ms or LEASE_MS_BY_PRIORITY[priority]


WHOLE_BOUNDS: dict[str, tuple[int, int]] = {
    "capacity": (1, COUNT_MAX),
    "capacity_bytes": (1, BYTES_MAX),
    "dead_letters_max": (1, COUNT_MAX),
    "dead_letter_bytes_max": (1, BYTES_MAX),
    "max_consecutive_high": (1, COUNT_MAX),
    "lease_ms": (0, LEASE_MS_MAX),
    "backoff_ms_base": (0, BACKOFF_MS_MAX),
    "backoff_ms_cap": (0, BACKOFF_MS_MAX),
    "max_deferrals": (0, RETRIES_MAX),
    "breaker_window_ms": (1, LEASE_MS_MAX),
    "breaker_min_outcomes": (1, COUNT_MAX),
    "breaker_failures": (0, COUNT_MAX),
    "breaker_open_ms": (1, LEASE_MS_MAX),
    "breaker_probes": (1, COUNT_MAX),
    "rate_burst": (0, COUNT_MAX),
}
"""Settings that are whole numbers: the least and the most. `max_retries` may also be None."""
REAL_BOUNDS = {"backoff_jitter": 1.0, "breaker_retry_rate": 1.0, "rate_per_s": float(RATE_PER_S_MAX)}
"""Settings that are numbers from 0 to this."""
CHOICES: dict[str, tuple[str, ...]] = {
    "schedule": get_args(ScheduleName),
    "delivery_semantics": get_args(Semantics),
    "overflow": get_args(Overflow),
}
FLAGS = ("ordered", "halt_on_dead_letter", "breaker")


def _checked_contract(contract: Any) -> Contract:
    """A copy of the contract: the caller may change its own."""
    if not isinstance(contract, dict):
        raise InvalidSettings(f"contract must map error codes to rules, not {shown(contract)}")
    if len(contract) > CONTRACT_ROWS_MAX:
        raise InvalidSettings(f"a contract has at most {CONTRACT_ROWS_MAX} rows, not {len(contract)}")
    checked: Contract = {}
    for code, rule in contract.items():
        name = text(code, "an error code of the contract", 1, CODE_LENGTH_MAX, InvalidSettings)
        if not isinstance(rule, Rule):
            raise InvalidSettings(f"the contract maps {shown(name)} to {shown(rule)}; it must be a Rule")
        checked[name] = Rule(rule.retries, rule.exit, rule.alert, rule.after_ms, rule.default)
    return checked
