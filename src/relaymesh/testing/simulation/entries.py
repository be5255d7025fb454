"""What the ledger keeps of each message, mailbox and token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relaymesh.testing.simulation.plan import MailboxPlan
from relaymesh.testing.simulation.told import StepTold


@dataclass(slots=True, eq=False)
class Entry:
    """One message in one mailbox."""

    mailbox: str
    sequence: int
    id: str
    content: bytes
    lane: str | None
    priority: int
    due: int
    ready: int
    ttl: int
    max_retries: int | None
    envelope: list[Any]
    state: str = "pending"
    attempts: int = 0
    ended: int = 0
    """Attempts that ended, as the store counts them."""
    deferrals: int = 0
    waited: int = 0
    """Milliseconds between nacks and the moments they set, which its TTL does not count."""
    redrives: int = 0
    token: int = 0
    holder: str = ""
    remote: bool = False
    leased_at: int = 0
    lease_ms: int = 0
    granted: bool = False
    moved: bool = False
    """Its place in line was changed: reprioritised."""
    completed: bool = False
    unseen: bool = False
    """It was acked without being handed out once more, because its work was done."""
    reason: str = ""
    dead_at: int = 0
    left_at: int = 1 << 62
    """When it last changed its state, if it is settled."""
    failures: list[int] = field(default_factory=list)
    """The sizes of the failures that are kept with it."""
    step: StepTold | None = None
    """The step whose work it is."""
    asks: StepTold | None = None
    """The step whose question it is."""
    news: str = ""
    """The kind of mail about a task that it is."""
    taken_back: bool = False
    """The mesh settled it: its step was answered, waits no more, or has used its budget."""

    @property
    def by_mesh(self) -> bool:
        """Whether the mesh itself sent it."""
        return str(self.envelope[1]).endswith("/relaymesh")

    @property
    def size(self) -> int:
        return len(self.content) + (len(self.envelope[17] or b"") if len(self.envelope) > 17 else 0)

    def failed(self, failure: list[Any]) -> None:
        """One failure more; of more than 32 the first and the last are kept."""
        self.failures.append(128 + sum(len(text.encode()) for text in failure[2:5]))
        if len(self.failures) > 32:
            del self.failures[1]

    @property
    def expires(self) -> int:
        return self.due + self.ttl + self.waited if self.ttl else 0

    @property
    def place(self) -> tuple[int, int]:
        return self.due, self.sequence

    def __str__(self) -> str:
        return f"{self.id} (sequence {self.sequence}) in {self.mailbox}"


@dataclass(slots=True)
class Box:
    """One mailbox's entries that are not settled, and its counts."""

    plan: MailboxPlan
    unsettled: dict[int, Entry] = field(default_factory=dict)
    lanes: dict[str, dict[int, Entry]] = field(default_factory=dict)
    bytes: int = 0
    failure_bytes: int = 0
    accepted: int = 0
    acked: int = 0
    dropped: int = 0
    dead: int = 0
    redriven: int = 0
    retried: int = 0
    deferred: int = 0
    delivered: int = 0
    expired: int = 0
    halts: dict[int, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Granted:
    """What the journal says of one token."""

    entry: Entry
    attempt: int
    at: int
    holder: str


@dataclass(frozen=True, slots=True)
class Purge:
    """One dead letter that was removed for good. `waited`: a step of a task waited for it."""

    mailbox: str
    dead_sequence: int
    letter: Entry
    at: int
    waited: bool
