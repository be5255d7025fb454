"""The plan of one run, all of it from the seed: who there is, which faults strike, how often.

Each seed switches a random half of the faults and habits on, with random weights. A run with
everything at once tests nothing thoroughly: rare pairs meet only where the rest is quiet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import msgspec

from relaymesh.journal import JournalSettings
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.settings import MeshSettings

KEYS = ("a", "b", "c")
TOPICS = ("default/news.a", "default/news.b")
ROUTES = {
    "default/news.a": ("default/news.a",),
    "default/news.*": ("default/news.a", "default/news.b"),
    "default/**": ("default/news.a", "default/news.b"),
}
"""Which topics a pattern covers, said here once more so that no checker asks the product."""

RUNNING = (
    "power_loss",
    "torn_write",
    "reordered_pages",
    "partial_flush",
    "kill",
    "graceful_restart",
    "short_write",
    "write_eio",
    "sync_eio_restart",
    "sync_eio_power_loss",
    "write_enospc",
    "allocate_enospc",
    "disk_floor",
    "slow_sync",
    "rotation_crash",
    "checkpoint_crash",
    "checkpoint_eio",
    "archive_crash",
    "wall_jump_forward",
    "wall_jump_back",
    "suspend",
    "store_ahead",
)
"""Faults that strike while the node runs."""

DOWN = (
    "bit_flip",
    "segment_missing",
    "mark_lost",
    "mark_stale",
    "epoch_lost",
    "checkpoint_damaged",
    "recovery_crash",
    "recovery_eio",
)
"""Faults that strike between two lives, or during the start of the next."""

STORE = ("store_lost", "store_damaged", "store_behind")
"""Faults of the store, between two lives."""

FAULTS = RUNNING + DOWN + STORE

HABITS = {
    "send": 18.0,
    "send_batch": 5.0,
    "send_alike": 6.0,
    "publish": 6.0,
    "send_again": 4.0,
    "send_conflict": 1.5,
    "receive": 16.0,
    "wait": 8.0,
    "forgo": 1.0,
    "ack": 14.0,
    "ack_durable": 5.0,
    "ack_batch": 6.0,
    "drop": 1.0,
    "nack": 5.0,
    "nack_fatal": 1.5,
    "nack_until": 1.5,
    "settle": 4.0,
    "extend": 2.0,
    "release": 2.0,
    "forget": 1.5,
    "stale": 3.0,
    "complete": 0.7,
    "redrive": 2.0,
    "purge": 1.0,
    "force": 0.5,
    "reprioritise": 0.7,
}
"""What clients do, with the usual weights."""

ESSENTIAL = frozenset({"send", "receive", "ack"})


@dataclass(frozen=True, slots=True)
class MailboxPlan:
    """A mailbox, by its address. `pattern` makes it a subscription."""

    address: str
    settings: MailboxSettings
    pattern: str | None = None

    def limit(self, code: str, message_retries: int | None) -> int:
        """How many retries this failure allows: the table of the failure contract, written down again."""
        by_code = {"timeout": 3, "rate_limited": 5, "invalid": 0, "fatal": 0, "conflict": 0, "duplicate": 0}
        retries = by_code.get(code, 3)
        if retries == 0:
            return 0
        if message_retries is not None:
            return message_retries
        return retries if self.settings.max_retries is None else self.settings.max_retries

    def lease_ms(self, priority: int) -> int:
        return self.settings.lease_ms or (0, 5_000, 10_000, 30_000, 60_000, 60_000)[priority]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before a run begins."""

    seed: int
    actions: int
    settings: MeshSettings
    mailboxes: dict[str, MailboxPlan]
    habits: dict[str, float]
    faults: dict[str, float]
    chattiness: float
    """How likely clients go on while the disk is busy."""
    with_store: bool
    remote: float
    """The share of receivers that outlive the node."""
    sender_names: tuple[str, ...] = ("default/planner", "default/tester")
    fault_every: float = 0.04

    @property
    def agents(self) -> list[str]:
        return [box.address for box in self.mailboxes.values() if box.pattern is None]

    @property
    def subscriptions(self) -> list[MailboxPlan]:
        return [box for box in self.mailboxes.values() if box.pattern is not None]

    def routed(self, topic: str) -> list[str]:
        return [
            box.address
            for box in self.mailboxes.values()
            if box.pattern is not None and topic in ROUTES[box.pattern]
        ]


def make_plan(seed: int) -> Plan:
    rng = random.Random(seed)
    with_store = rng.random() < 0.15
    faults = {
        kind: _weight(rng) for kind in FAULTS if rng.random() < (0.75 if kind.startswith("store") else 0.5)
    }
    if not with_store:
        faults = {kind: weight for kind, weight in faults.items() if not kind.startswith("store")}
    habits = {
        name: weight * _weight(rng)
        for name, weight in HABITS.items()
        if name in ESSENTIAL or rng.random() < 0.7
    }
    mailboxes = {box.address: box for box in [*_agents(rng), *_subscriptions(rng)]}
    _bound_dead_letters(random.Random(f"dead letters of {seed}"), mailboxes)
    return Plan(
        seed=seed,
        actions=rng.choice((80, 120, 180, 260)),
        settings=_settings(rng),
        mailboxes=mailboxes,
        habits=habits,
        faults=faults,
        chattiness=rng.choice((0.0, 0.2, 0.5)),
        with_store=with_store,
        remote=rng.choice((0.0, 0.3, 1.0)),
        fault_every=rng.choice((0.02, 0.04, 0.08)),
    )


def _bound_dead_letters(rng: random.Random, mailboxes: dict[str, MailboxPlan]) -> None:
    """Few enough, in some, that they fill up. `rng` is of its own: the rest of the plan stays as it was."""
    for address, box in mailboxes.items():
        few = rng.random() < (0.4 if box.pattern else 0.1)
        settings = msgspec.structs.replace(
            box.settings,
            dead_letters_max=rng.choice((2, 5)) if few else 100_000,
            dead_letter_bytes_max=rng.choice((700, 5_000)) if few and rng.random() < 0.5 else 268_435_456,
        )
        mailboxes[address] = replace(box, settings=settings)


def _weight(rng: random.Random) -> float:
    return rng.choice((0.3, 1.0, 1.0, 3.0))


def _agents(rng: random.Random) -> list[MailboxPlan]:
    return [
        MailboxPlan(f"default/agent-{i}", _mailbox_settings(rng, subscription=False))
        for i in range(rng.choice((1, 2, 2, 3)))
    ]


def _subscriptions(rng: random.Random) -> list[MailboxPlan]:
    return [
        MailboxPlan(f"{pattern}:s{i}", _mailbox_settings(rng, subscription=True), pattern)
        for i, pattern in enumerate(rng.sample(list(ROUTES), rng.choice((0, 1, 2))))
    ]


def _mailbox_settings(rng: random.Random, *, subscription: bool) -> MailboxSettings:
    base = rng.choice((5, 100, 1_000))
    return MailboxSettings(
        capacity=rng.choice((6, 15, 100_000)),
        capacity_bytes=rng.choice((600, 268_435_456, 268_435_456)),
        schedule=rng.choice(("weighted", "weighted", "strict", "fifo")),
        lease_ms=rng.choice((0, 300, 2_000)),
        max_retries=rng.choice((None, None, 0, 1, 3)),
        backoff_ms_base=base,
        backoff_ms_cap=max(base, rng.choice((100, 2_000, 60_000))),
        max_deferrals=rng.choice((1, 100)),
        ordered=rng.random() < 0.15,
        halt_on_dead_letter=rng.random() < 0.1,
        delivery_semantics="at_most_once" if rng.random() < 0.08 else "at_least_once",
        overflow=rng.choice(("reject", "dead_letter")) if subscription else "reject",
    )


def _settings(rng: random.Random) -> MeshSettings:
    return MeshSettings(
        remembered_ids_max=rng.choice((3, 20, 100_000)),
        checkpoint_bytes=rng.choice((4_000, 12_000, 10**9)),
        idle_sync_ms=rng.choice((20, 100)),
        archive_days=100,
        journal=JournalSettings(
            segment_bytes_max=rng.choice((1_500, 4_000, 16_000)),
            allocate_bytes=rng.choice((0, 600, 2_000)),
            checkpoint_reserve_bytes=2_000,
            room_refresh_bytes=rng.choice((0, 2_000)),
        ),
    )
