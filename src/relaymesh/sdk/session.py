"""What the SDK needs of a node, wherever it is: a handful of calls.

An operation is a value: a command or a query of the kernel, or a request to the node. A session carries it
there and brings its result back, so a new operation changes no session. `Session` is implemented by
`relaymesh.node.local.LocalSession` and by the remote ones of `relaymesh.client`; `AsyncSession` by their
awaited twins. The SDK is written against these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from relaymesh.errors import MeshError
from relaymesh.kernel.commands import Request, Result
from relaymesh.kernel.deliveries import Deliveries

Arrival = Callable[[Deliveries, MeshError | None], None]
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

    def holds(self, token: int) -> bool:
        """Whether the lease is still good, as far as is known here. Any thread may ask."""


class Session(Described, Protocol):
    """Requests in the caller's thread. Thread-safe."""

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        """Do what a command, a query or a request to the node asks for. Returns once its promise holds.

        timeout: of a command that sends, seconds to wait for room in a full mailbox. None: not at all.
        durable: wait for the sync, also where results do not.
        """

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries:
        """Up to `max` deliveries; none at all when none came in time. `timeout` None waits for ever."""

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """The same without waiting: `arrived` is called when there are some."""

    def close(self, *, force: bool = False) -> None: ...


class AsyncSession(Described, Protocol):
    """The same, awaited, on the loop it belongs to. Cancelling a receive gives deliveries back."""

    async def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result: ...

    async def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries: ...

    async def pull(self, mailbox: str, max: int) -> Deliveries:
        """A receive without end, which outlasts a node that is away for a while."""

    def give_back(self, tokens: Sequence[int]) -> None:
        """Return deliveries that were not looked at, as if never granted, and without waiting."""

    async def close(self, *, force: bool = False) -> None: ...
