"""What an attacker is given: the node, a credential of its own, and where to count what it did.

An attack is a generator. The first `yield` says that it is ready; each later one that an action is over. It
never ends by itself: it is closed when the time is over, and begun anew when the node cuts it off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.attacks.pace import Tally
from tests.attacks.sockets import Connection, Http, WebSocket

Attacking = Iterator[None]

PAUSE_STEP_S = 0.02


class Impossible(Exception):
    """This machine does not let the attack be made."""


@dataclass
class Target:
    """A node, as one attacker sees it. `agent`: the name that an agent's token is for."""

    port: int
    token: str
    agent: str
    tally: Tally = field(default_factory=Tally)
    _opened: bool = False

    @property
    def address(self) -> str:
        return f"default/{self.agent}"

    def connection(self) -> Connection:
        return Connection(self.port, self.tally)

    def http(self) -> Http:
        return Http(self.port, self.token, self.tally)

    def websocket(self, *, hello: bool = True) -> WebSocket:
        return WebSocket(self.port, self.token, self.tally, hello=hello)

    def open_mailbox(self, settings: Sequence[Any] = ()) -> None:
        """Open the attacker's own mailbox, the first time. `settings`: of `MailboxSettings`, by position."""
        if not self._opened:
            with self.websocket() as ws:
                ws.call("open_mailbox", mailbox=self.agent, settings=settings)
            self._opened = True

    def pause(self, seconds: float) -> Attacking:
        """Do nothing for a while; the time may be over meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(PAUSE_STEP_S)
            yield
