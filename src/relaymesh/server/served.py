"""The objects that routes use. There is no logic here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.node import Node
from relaymesh.server.counting import Counting
from relaymesh.server.reliability import ReliabilityConfig, config_of
from relaymesh.server.roster import Roster
from relaymesh.server.settings import ServerSettings
from relaymesh.store.views import Views

T = TypeVar("T")
CATCH_UP_S = 10.0
"""How long an answer from the store's tables waits for them."""


@dataclass(slots=True)
class WebCounts:
    """The server's own counters since its start. Shown by `/metrics`."""

    requests: int = 0
    problems: int = 0
    polls: int = 0
    """Long polls that wait now."""
    write_get_compat: int = 0
    write_rate_limited: int = 0


@dataclass(slots=True, kw_only=True)
class Served:
    """One node and everything that is served with it."""

    node: Node
    session: AsyncLocalSession
    settings: ServerSettings
    tokens: Any = None
    audit: Any = None
    views: Views | None = None
    """The store's tables; None for a mesh in memory."""
    counts: WebCounts = field(default_factory=WebCounts)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the stop begins: long polls end, connections say goodbye."""
    large: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "relaymesh-large"))
    """Looks at large messages, one at a time, while the loop serves others."""
    roster: Roster = field(init=False)
    """Registrations and presence."""
    counting: Counting = field(init=False)
    """Counters of every mailbox."""

    def __post_init__(self) -> None:
        self.counting = Counting(self)
        given = self.settings.reliability
        config = config_of(self.node.values()) if given == ReliabilityConfig() else given
        self.roster = Roster(self.node.core, config, self.budget)
        self.node.advancing.away = lambda: self.roster.presence.offline(self.now)

    @property
    def budget(self) -> int:
        """Bytes of mail that the node keeps for one sender; 0 is no limit."""
        return self.settings.security.kept_bytes_max

    @property
    def taken_ms(self) -> int:
        """The lease of a step that an agent took and reports on later: as long as an agent may be silent."""
        return self.roster.config.heartbeat_timeout

    def opening(self, mailbox: str, given: MailboxSettings | None) -> MailboxSettings | None:
        """The settings to open a mailbox with: those given, and the server's own where they say nothing.

        None leaves a mailbox that is there as it is.
        """
        if given is None and self.node.core.read(lambda kernel: mailbox in kernel.state.mailboxes):
            return None
        return self.roster.config.mailbox_settings(given)

    @property
    def now(self) -> int:
        """Mesh time in ms."""
        return self.node.time.now()

    async def off_loop(self, look: Callable[[], T]) -> T:
        """Check something large in another thread. Each single call in it must be short, because it blocks
        the loop."""
        return await asyncio.get_running_loop().run_in_executor(self.large, look)
