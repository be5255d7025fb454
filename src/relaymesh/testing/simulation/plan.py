"""The plan of one run, all of it from the seed: who there is, which faults strike, how often.

Each seed switches a random half of the faults and habits on, with random weights. A run with
everything at once tests nothing thoroughly: rare pairs meet only where the rest is quiet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec

from relaymesh.journal import JournalSettings
from relaymesh.kernel.payload import INLINE_BYTES_MAX
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

TASK_HABITS = {
    "submit": 5.0,
    "submit_again": 2.0,
    "submit_conflict": 0.5,
    "run_anew": 0.5,
    "finish_step": 14.0,
    "fail_step": 2.0,
    "nack_step": 3.0,
    "fatal_step": 1.5,
    "redrive_step": 3.0,
    "purge_step": 0.7,
    "a_day_passes": 1.0,
    "finish_late": 3.0,
    "pause_owner": 2.0,
    "abandon": 2.0,
    "cancel": 0.7,
    "cancel_hard": 0.7,
    "cancel_race": 2.0,
    "drain": 0.7,
    "join": 0.7,
    "show_task": 2.0,
    "list_tasks": 0.5,
}
"""What clients of tasks do, in the runs that have tasks."""

SCHEDULE_HABITS = {
    "set_schedule": 3.0,
    "pause_schedule": 0.7,
    "resume_schedule": 1.5,
    "remove_schedule": 0.5,
    "minutes_pass": 6.0,
}
"""What clients of schedules do, in the runs that have schedules."""

SCHEDULES_SHARE = 0.25
SCHEDULES_WITH_TASKS_SHARE = 0.1
"""The share of runs that have schedules, among those without tasks and among those with tasks."""

SWEEP_WEIGHT = 1.5
"""How often payload files are swept, in the runs that have some."""

TALK_HABITS = {
    "answer": 4.0,
    "answer_again": 1.0,
    "stranger": 1.5,
    "signal": 4.0,
    "signal_again": 1.5,
    "flood": 0.1,
    "report": 3.0,
    "pay": 2.0,
    "save": 0.5,
    "grow": 6.0,
    "work": 8.0,
    "regret": 1.5,
}
"""What clients that talk to tasks do, in the runs that have tasks which can be talked to."""

TASKS_SHARE = 0.4
"""The share of runs that have tasks beside mail."""
TALK_SHARE = 0.6
"""The share of those whose tasks wait, grow, are undone and have budgets."""

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
    task_habits: dict[str, float] = field(default_factory=dict)
    """Empty: this run has no tasks."""
    schedule_habits: dict[str, float] = field(default_factory=dict)
    """Empty: this run has no schedules."""
    interrupted: float = 0.0
    """How likely a settle is written, and what follows from it is not sent yet."""
    talk: dict[str, float] = field(default_factory=dict)
    """Empty: tasks of this run neither wait, nor grow, nor are undone, nor have budgets."""

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
    inline = random.Random(f"payloads of {seed}").choice((INLINE_BYTES_MAX, INLINE_BYTES_MAX, 100))
    if inline < INLINE_BYTES_MAX:
        habits["sweep"] = SWEEP_WEIGHT
    mailboxes = {box.address: box for box in [*_agents(rng), *_subscriptions(rng)]}
    _bound_dead_letters(random.Random(f"dead letters of {seed}"), mailboxes)
    tasks = random.Random(f"tasks of {seed}")
    task_habits = _task_habits(tasks, mailboxes)
    return Plan(
        seed=seed,
        actions=rng.choice((80, 120, 180, 260)),
        settings=_settings(rng, random.Random(f"ages of {seed}"), inline),
        mailboxes=mailboxes,
        habits=habits,
        faults=faults,
        chattiness=rng.choice((0.0, 0.2, 0.5)),
        with_store=with_store,
        remote=rng.choice((0.0, 0.3, 1.0)),
        fault_every=rng.choice((0.02, 0.04, 0.08)),
        task_habits=task_habits,
        schedule_habits=_schedule_habits(random.Random(f"schedules of {seed}"), bool(task_habits)),
        interrupted=tasks.choice((0.0, 0.3, 0.7)),
        talk=_talk_habits(random.Random(f"talk of {seed}")) if task_habits else {},
    )


def _talk_habits(rng: random.Random) -> dict[str, float]:
    if rng.random() >= TALK_SHARE:
        return {}
    habits = {name: weight * _weight(rng) for name, weight in TALK_HABITS.items() if rng.random() < 0.8}
    return habits or {"answer": 1.0}


def _task_habits(rng: random.Random, mailboxes: dict[str, MailboxPlan]) -> dict[str, float]:
    """`rng` is of its own: a run without tasks is as it was before there were any."""
    steps = [
        box
        for box in mailboxes.values()
        if not box.pattern and box.settings.delivery_semantics != "at_most_once"
    ]
    if not steps or rng.random() >= TASKS_SHARE:
        return {}
    essential = ("submit", "finish_step")
    return {
        name: weight * _weight(rng)
        for name, weight in TASK_HABITS.items()
        if name in essential or rng.random() < 0.7
    }


def _schedule_habits(rng: random.Random, with_tasks: bool) -> dict[str, float]:
    """`rng` is of its own: a run without schedules is as it was before there were any."""
    if rng.random() >= (SCHEDULES_WITH_TASKS_SHARE if with_tasks else SCHEDULES_SHARE):
        return {}
    essential = ("set_schedule", "minutes_pass")
    return {
        name: weight * _weight(rng)
        for name, weight in SCHEDULE_HABITS.items()
        if name in essential or rng.random() < 0.7
    }


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


def _settings(rng: random.Random, ages: random.Random, inline_bytes_max: int) -> MeshSettings:
    """`ages` is a generator of its own: the rest of the plan stays as it was."""
    return MeshSettings(
        inline_bytes_max=inline_bytes_max,
        dead_letter_days=ages.choice((30.0, 30.0, 30.0, 2e-5, 2e-4)),
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
