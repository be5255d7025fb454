"""The roster: agents that joined (durable, in the kernel's registry) and whether they are there (presence).

Routes and connections ask it for everything about agents; it checks what an agent says of itself, and
which messages may go from whom to whom.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from relaymesh.errors import InvalidEnvelope, NotFound
from relaymesh.kernel.address import name_of, namespace_of
from relaymesh.kernel.commands import DrainAgent, RegisterAgent
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.request import Command, Result
from relaymesh.server.codes import AgentBusy
from relaymesh.server.presence import Presence, PresenceState
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.security.likeness import check_unlike
from relaymesh.wire.joining import joining
from relaymesh.wire.tasks import is_order
from relaymesh.wire.types import Role, check_direction, role_or_default

VERSIONS_SPOKEN = ("1.0", "1.1")
"""Versions of the protocol this node speaks, the newest last."""

_version = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.\d{1,4})?\Z", re.ASCII)


class Core(Protocol):
    """What the roster needs of a node's core."""

    def execute(self, command: Command[Result]) -> Result: ...
    def read(self, look: Callable[[Kernel], Any]) -> Any: ...


def negotiate(version: str) -> str:
    """The version that both sides use: 1.x is accepted; a later minor version than that of this node is not
    used.

    Raises `InvalidEnvelope` for another major version, naming those that are spoken here.
    """
    parts = _version.match(version)
    if parts is None:
        raise InvalidEnvelope(f"protocolVersion {version[:40]!r} is no version", hint="say 1.1 or 1.1.0")
    major, minor = int(parts[1]), int(parts[2] or 0)
    if major != 1:
        raise InvalidEnvelope(
            f"protocol {version} is not spoken here", hint=f"this node speaks {', '.join(VERSIONS_SPOKEN)}"
        )
    return VERSIONS_SPOKEN[min(minor, len(VERSIONS_SPOKEN) - 1)]


class Roster:
    """Agents of one node, in all its namespaces. `budget`: the most bytes that are kept for each; 0 is no
    limit."""

    def __init__(self, core: Core, config: ReliabilityConfig | None = None, budget: int = 0) -> None:
        self._core = core
        self._budget = budget
        self.config = config or ReliabilityConfig()
        self.presence = Presence(self.config.heartbeat_timeout)

    def follow(self, config: ReliabilityConfig) -> None:
        """Take another configuration from now on. Any thread may call it."""
        self.config = config
        self.presence.timeout_ms = config.heartbeat_timeout

    # -- joining and leaving

    async def register(
        self,
        agent: str,
        now: int,
        *,
        role: str | None = None,
        capabilities: Sequence[str] = (),
        protocol: str = VERSIONS_SPOKEN[-1],
        metadata: Mapping[str, Any] | None = None,
        settles: bool = False,
    ) -> Registration:
        """`handshake.register`: checked, made durable, and heard of. Raises `InvalidEnvelope`."""
        command = joining(
            agent,
            role=role,
            capabilities=capabilities,
            metadata=metadata,
            protocol=negotiate(protocol),
            settings=self.config.mailbox_settings(),
            budget=self._budget,
            settles=settles,
        )
        registration: Registration = await asyncio.to_thread(self._join, command)
        self.presence.heard(agent, now)
        return registration

    def _join(self, command: RegisterAgent) -> Registration:
        """Raises `Conflict` for a new agent whose name looks like that of another one."""
        namespace = namespace_of(command.agent)
        known: list[str] = self._core.read(lambda kernel: list(kernel.state.agents))
        check_unlike([name_of(command.agent)], [name_of(a) for a in known if namespace_of(a) == namespace])
        return self._core.execute(command)

    async def drain(self, agent: str) -> Registration:
        """No new tasks for it until it registers again. Raises `NotFound` when it never did."""
        return await asyncio.to_thread(self._core.execute, DrainAgent(agent))

    def heartbeat(self, agent: str, now: int, status: str | None = None) -> None:
        """Raises `NotFound` for an agent without a mailbox: it must register first."""
        if not self._core.read(lambda kernel: agent in kernel.state.mailboxes):
            raise NotFound(f"there is no agent {name_of(agent)!r}", hint="register first: POST /v1/agents")
        self.presence.heard(agent, now, status)

    # -- looking

    def with_taken(self, agents: Iterable[str]) -> list[str]:
        """Those of these agents that took steps, and report later."""
        found: list[str] = self._core.read(lambda kernel: kernel.state.board.taken.of(agents))
        return found

    def registration(self, agent: str) -> Registration | None:
        found: Registration | None = self._core.read(lambda kernel: kernel.state.agents.get(agent))
        return found

    def registrations(self) -> list[Registration]:
        """All of them, in the order in which they joined."""
        found: list[Registration] = self._core.read(lambda kernel: list(kernel.state.agents.values()))
        return found

    def state(self, agent: str, now: int) -> PresenceState:
        known = self.registration(agent)
        draining = known is not None and known.draining
        return self.presence.state(agent, now, registered=known is not None, draining=draining)

    def role_of(self, agent: str) -> Role:
        known = self.registration(agent)
        declared: Any = known.role if known is not None and known.role else None
        return role_or_default(agent, declared)

    # -- messages

    def check_message(self, type: str, sender: str, recipient: str | None) -> None:
        """Check that a message of this type may go from one to the other now.

        Raises `InvalidEnvelope` for a direction the protocol does not have, and `AgentBusy` for a task
        that is given to a draining agent. The mesh itself, which tasks are reported to, has no role.
        """
        if recipient is not None and is_order(type, recipient):
            recipient = None
        check_direction(type, sender, recipient, self.role_of)
        if type == "task_assign" and recipient is not None:
            known = self.registration(recipient)
            if known is not None and known.draining:
                raise AgentBusy(f"agent {name_of(recipient)!r} is draining and takes no new tasks")
