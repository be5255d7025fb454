"""The calls of a node, local or remote, that the SDK uses.

An operation is a value: a command or a query of the kernel, or a request to the node. A session carries it to
the node and returns its result, so a new operation changes no session. `relaymesh.node.local.LocalSession`
and the remote sessions of `relaymesh.client` implement `Session`; their async twins implement
`AsyncSession`. The SDK depends on these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from relaymesh.errors import MeshError
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.request import Request, Result

Arrival = Callable[[Deliveries, MeshError | None], None]
"""Called once, by the thread that has the deliveries: it only queues them, and never runs handlers."""


class Pull(Protocol):
    """A receive that no thread waits in."""

    def forgo(self) -> None:
        """Stop waiting. Deliveries that still come are handed over, or go back: no attempt is counted."""


class Described(Protocol):
    """What both kinds of session know of their node, without a request."""

    @property
    def namespace(self) -> str:
        """The namespace of plain names."""

    @property
    def payload_bytes_max(self) -> int: ...

    @property
    def path(self) -> Path | None:
        """The data directory; None for a mesh in memory or a remote mesh."""

    @property
    def failure(self) -> MeshError | None:
        """Why no call will succeed any more; None while calls may succeed."""

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy; the session belongs to the parent."""

    def now(self) -> int:
        """Mesh time, in milliseconds."""

    def new_ids(self, count: int) -> list[str]:
        """This many new message ids."""

    def holds(self, token: int) -> bool:
        """Whether the lease is still held, as far as this process knows. Thread-safe."""


class Session(Described, Protocol):
    """Sends requests in the caller's thread. Thread-safe."""

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        """Execute a command, a query or a request to the node. Returns once its promise holds.

        timeout: how many seconds a send waits for room in a full mailbox. None: do not wait.
        durable: wait for the sync even where the durability setting does not.
        """

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries:
        """Return up to `max` deliveries; none if none came in time. `timeout` None waits forever."""

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> Pull:
        """The same without waiting: `arrived` is called with the deliveries."""

    def close(self, *, force: bool = False) -> None: ...


class AsyncSession(Described, Protocol):
    """The same, awaited, on the loop that it belongs to. Cancelling a receive gives deliveries back."""

    async def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result: ...

    async def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries: ...

    async def pull(self, mailbox: str, max: int) -> Deliveries:
        """A receive without a time limit, which continues when a node was away for a while."""

    def give_back(self, tokens: Sequence[int]) -> None:
        """Return deliveries that no caller saw, as if never granted. Does not wait."""

    async def close(self, *, force: bool = False) -> None: ...
