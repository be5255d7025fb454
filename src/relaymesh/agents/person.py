"""A person in the team: a mailbox without a process. The person works with `relaymesh answer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from relaymesh.agents.declarations import AgentDeclaration
from relaymesh.client.websocket import WebSocketSession
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.commands import RegisterAgent

__all__ = ["Person"]


class Person:
    """Registers the person, and keeps it online while the team is up."""

    is_cut_off = False

    def __init__(
        self, declared: AgentDeclaration, open_session: Callable[[], Awaitable[WebSocketSession]]
    ) -> None:
        self.declared = declared
        self._open_session = open_session
        self._session: WebSocketSession | None = None

    async def start(self) -> None:
        self._session = await self._open_session()
        declared = self.declared
        await self._session.execute(
            RegisterAgent(
                agent_address(declared.name),
                declared.role,
                declared.capabilities,
                metadata=b'{"person":true}',
            )
        )

    async def stop(self, grace_s: float) -> None:  # noqa: ARG002  nothing runs
        if self._session is not None:
            await self._session.close()

    def shown(self) -> dict[str, Any]:
        return {
            "agent": self.declared.name,
            "kind": self.declared.kind,
            "state": "person",
            "running": [],
            "concurrency": 0,
            "done": 0,
            "failed": 0,
            "restarts": 0,
            "last_error": "",
        }
