"""The history: what clients asked, what they were told, and what they were handed. Nothing else.

Checkers judge the product by this and by their own reading of the journal. `order` counts everything
that happened in one run, so two events can be told apart even at the same mesh time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from relaymesh.testing.simulation.plan import MailboxPlan, Plan

Answer = Literal["pending", "done", "refused", "unknown"]
End = Literal["running", "graceful", "kill", "power_loss"]


@dataclass(slots=True, eq=False)
class Message:
    """A message as its sender made it. `target` is a mailbox, or `topic:` and a topic."""

    id: str
    target: str
    content: bytes
    key: str | None = None
    priority: int = 3
    delay_ms: int = 0
    ttl_ms: int = 0
    max_retries: int | None = None


@dataclass(slots=True, eq=False)
class Sent:
    """One asking to accept one message, and the answer."""

    message: Message
    order: int
    at: int
    life: int
    answer: Answer = "pending"
    code: str = ""
    answered: int = 0
    answered_at: int = 0
    sequence: int = -1
    duplicate: bool = False
    targets: int = 1
    due: int = 0


@dataclass(slots=True, eq=False)
class Delivery:
    """One delivery as it reached its receiver."""

    token: int
    mailbox: str
    sequence: int
    id: str
    content: bytes
    attempt: int
    deadline: int
    holder: str
    remote: bool
    order: int
    at: int
    life: int
    lease_ms: int
    step: bool = False
    """Whether it is the work of a step of a task."""
    by_mesh: bool = False
    """Whether the mesh itself sent it."""
    question: bool = False


@dataclass(slots=True, eq=False)
class Settled:
    """One asking to settle a delivery, and the answer.

    `how`: ack, drop, nack, fatal, defer, settle (ack and send), release, extend; of a step also finish, fail,
    grow, report and abandon.
    """

    delivery: Delivery
    how: str
    order: int
    at: int
    life: int
    durable: bool = False
    answer: Answer = "pending"
    code: str = ""
    result: str = ""
    answered: int = 0
    not_before: int = 0
    """The redelivery this asks for may not come before this mesh time."""
    deadline: int = 0
    """What an extend was promised."""
    code_given: str = ""
    """The error code of a nack."""
    output: bytes = b"null"
    """The result that a finish gave."""
    usage: tuple[int, int] = (0, 0)
    """What the attempt used, as its end says."""
    steps: list[Any] = field(default_factory=list)
    """The plans of the steps that a grow asked for."""


@dataclass(slots=True, eq=False)
class Redriven:
    """One asking to put a dead letter back, or to purge it."""

    mailbox: str
    dead_sequence: int
    purge: bool
    order: int
    life: int
    answer: Answer = "pending"
    code: str = ""
    sequence: int | None = None


@dataclass(slots=True, eq=False)
class Submitted:
    """One asking to begin a task, and the answer. `plan` and `input` are what the client made."""

    key: str
    plan: Any
    input: bytes
    request: bytes
    order: int
    at: int
    life: int
    again: bool = False
    answer: Answer = "pending"
    code: str = ""
    answered: int = 0
    task: str = ""
    duplicate: bool = False
    owner: str = "default/planner"
    reply_to: str = ""
    notify: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class Cancelled:
    """One asking to cancel a task, and the answer."""

    task: str
    hard: bool
    order: int
    at: int
    answer: Answer = "pending"
    result: str = ""
    """The state of the task that the answer names."""


@dataclass(slots=True, eq=False)
class Answered:
    """One asking to answer the question of a step, and what came of it."""

    task: str
    step: str
    value: bytes
    by: str
    order: int
    answer: Answer = "pending"
    code: str = ""


@dataclass(slots=True, eq=False)
class Signalled:
    """One signal to a task, and what came of it. `duplicate`: it came before, by the answer."""

    task: str
    name: str
    id: str
    value: bytes
    order: int = 0
    answered: int = 0
    answer: Answer = "pending"
    code: str = ""
    duplicate: bool = False


@dataclass(slots=True, eq=False)
class BudgetAsked:
    """One asking for another budget; None: as before."""

    task: str
    cost: int | None
    tokens: int | None
    answer: Answer = "pending"
    code: str = ""


@dataclass(slots=True, eq=False)
class Shown:
    """What a client was shown of one task. `steps`: name to state and output, if steps were asked for."""

    task: str
    at: int
    synced: int
    """Everything below this sequence was synced before the client asked."""
    status: str = ""
    """Empty: there is no such task."""
    result: bytes | None = None
    steps: dict[str, tuple[str, bytes | None]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Life:
    """One start of the node and how it ended."""

    number: int
    epoch: int
    order: int
    started_at: int
    end: End = "running"
    ended: int = 0
    last_at: int = 0
    """Mesh time when it ended."""
    disturbed: int = 0
    """How often its clock jumped or its machine slept."""


@dataclass(slots=True)
class History:
    """Everything of one run."""

    plan: Plan
    sent: list[Sent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[Settled] = field(default_factory=list)
    redrives: list[Redriven] = field(default_factory=list)
    tasks: list[Submitted] = field(default_factory=list)
    cancels: list[Cancelled] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    signals: list[Signalled] = field(default_factory=list)
    budgets: list[BudgetAsked] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    """What left before it was on the disk, in words."""
    scheduled: set[str] = field(default_factory=set)
    """Schedules whose put was receipted."""
    refused_ticks: set[str] = field(default_factory=set)
    """Schedules whose tick waited at the end, because it was refused."""
    forced: set[str] = field(default_factory=set)
    """Mailboxes whose delayed messages were forced out before their time."""
    woke: list[tuple[int, int]] = field(default_factory=list)
    """When the machine awoke from a long sleep: the epoch, and the mesh time."""
    order: int = 0

    def next_order(self) -> int:
        self.order += 1
        return self.order

    @property
    def receipts(self) -> Iterable[Sent]:
        return (sent for sent in self.sent if sent.answer == "done")

    def power_losses_between(self, first: int, last: int) -> int:
        """How many lives ended in a power loss between two orders."""
        return sum(life.end == "power_loss" and first < life.ended <= last for life in self.lives)

    def ends_between(self, first: int, last: int) -> list[Life]:
        return [life for life in self.lives if life.end != "running" and first < life.ended <= last]

    def settings_of(self, mailbox: str) -> MailboxPlan:
        return self.plan.mailboxes[mailbox]
