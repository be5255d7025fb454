"""What the SDK needs of a node, wherever it is: the calls of a session.

`Session` is answered by `relaymesh.node.local.LocalSession` and by the remote ones of
`relaymesh.client`; `AsyncSession` by their awaited twins. The SDK is written against these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from relaymesh.errors import MeshError
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.wire.stats import MeshStats

Groups = Sequence[tuple[str, Sequence[Envelope]]]
"""Messages by recipient."""
Edited = Sequence[Envelope | None] | None
"""For each dead letter the message that takes the place of its own; None leaves it as it was."""
Arrival = Callable[[list[Lease], MeshError | None], None]
"""Called once, by whoever has the deliveries: it only takes note, and never works."""


class Pull(Protocol):
    """A receive that nobody stands and waits for."""

    def forgo(self) -> None:
        """Wait no longer. What comes all the same is handed over, or goes back unburned."""


class Described(Protocol):
    """What both kinds of session say of their node, without asking it."""

    @property
    def namespace(self) -> str:
        """Where plain names lie."""

    @property
    def payload_bytes_max(self) -> int: ...

    @property
    def path(self) -> Path | None:
        """The data directory; None in memory, and far away."""

    @property
    def failure(self) -> MeshError | None:
        """Why no call will succeed any more; None while they may."""

    @property
    def forked(self) -> bool:
        """This is the copy of a forked child; the session is its parent's."""

    def now(self) -> int:
        """Mesh time, in milliseconds."""

    def new_ids(self, count: int) -> list[str]:
        """So many new ids of messages."""


class Session(Described, Protocol):
    """Plain calls. Thread-safe. Each answers once the promise that goes with it holds."""

    def open_mailbox(self, address: str, settings: MailboxSettings | None) -> None: ...

    def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None:
        """The agent joins; far away it is online from now on, as long as this session lives."""

    def subscribe(self, pattern: str, mailbox: str, settings: MailboxSettings) -> None: ...

    def unsubscribe(self, mailbox: str) -> int: ...

    def send(self, groups: Groups, minted: bool, timeout: float | None) -> list[Receipt]:
        """All or none. `minted`: every id came from `new_ids`. `timeout`: how long to wait for room."""

    def publish(
        self, topic: str, envelopes: Sequence[Envelope], minted: bool, timeout: float | None
    ) -> list[Receipt]: ...

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> list[Lease]:
        """Up to `max` deliveries; an empty list when none came in time. None waits for ever."""

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """The same without waiting: `arrived` is called when there are some."""

    def release(self, tokens: Sequence[int]) -> None:
        """Deliveries nobody looked at: back as if never granted."""

    def expect(self, mailbox: str, correlation_id: str, minted: bool = False) -> None: ...

    def unexpect(self, mailbox: str, correlation_id: str) -> None: ...

    def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]:
        """Answers the tokens that were stale."""

    def nack(self, nack: Nack) -> str: ...

    def settle(self, token: int, groups: Groups) -> list[Receipt]: ...

    def extend(self, token: int, ms: int) -> int: ...

    def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        """Deadlines of (token, ms); None for a lease that is lost."""

    def complete(self, mailbox: str, sequence: int) -> bool: ...

    def dead_letters(self) -> list[DeadLetter]: ...

    def redrive(
        self, letters: Sequence[tuple[str, int]], to: str | None, edited: Edited
    ) -> list[int | None]: ...

    def purge(self, letters: Sequence[tuple[str, int]]) -> int: ...

    def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int: ...

    def set_breaker(self, mailbox: str, *, open: bool) -> None: ...

    def deliver_due(self) -> int: ...

    def force_delayed(self, mailbox: str | None) -> int: ...

    def stats(self) -> MeshStats: ...

    def peek(self, mailbox: str, limit: int) -> list[Entry]: ...

    def checkpoint(self) -> int | None: ...

    def close(self, *, force: bool = False) -> None: ...


class AsyncSession(Described, Protocol):
    """The same calls, awaited, on the loop they belong to. Cancelling a receive gives deliveries back."""

    async def open_mailbox(self, address: str, settings: MailboxSettings | None) -> None: ...

    async def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None: ...

    async def subscribe(self, pattern: str, mailbox: str, settings: MailboxSettings) -> None: ...

    async def unsubscribe(self, mailbox: str) -> int: ...

    async def send(self, groups: Groups, minted: bool, timeout: float | None) -> list[Receipt]: ...

    async def publish(
        self, topic: str, envelopes: Sequence[Envelope], minted: bool, timeout: float | None
    ) -> list[Receipt]: ...

    async def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> list[Lease]: ...

    async def pull(self, mailbox: str, max: int) -> list[Lease]:
        """A receive without end, which outlasts a node that is away for a while."""

    def give_back(self, leases: list[Lease]) -> None:
        """Deliveries nobody looked at: back as if never granted, and without waiting."""

    async def release(self, tokens: Sequence[int]) -> None: ...

    async def expect(self, mailbox: str, correlation_id: str, minted: bool = False) -> None: ...

    async def unexpect(self, mailbox: str, correlation_id: str) -> None: ...

    async def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]: ...

    async def nack(self, nack: Nack) -> str: ...

    async def settle(self, token: int, groups: Groups) -> list[Receipt]: ...

    async def extend(self, token: int, ms: int) -> int: ...

    async def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]: ...

    async def complete(self, mailbox: str, sequence: int) -> bool: ...

    async def dead_letters(self) -> list[DeadLetter]: ...

    async def redrive(
        self, letters: Sequence[tuple[str, int]], to: str | None, edited: Edited
    ) -> list[int | None]: ...

    async def purge(self, letters: Sequence[tuple[str, int]]) -> int: ...

    async def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int: ...

    async def set_breaker(self, mailbox: str, *, open: bool) -> None: ...

    async def deliver_due(self) -> int: ...

    async def force_delayed(self, mailbox: str | None) -> int: ...

    async def stats(self) -> MeshStats: ...

    async def peek(self, mailbox: str, limit: int) -> list[Entry]: ...

    async def checkpoint(self) -> int | None: ...

    async def close(self, *, force: bool = False) -> None: ...
