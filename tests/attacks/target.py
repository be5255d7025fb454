"""What an attacker is given: the node, a credential of its own, and where to count what it did.

An attack is a generator. The first `yield` says that it is ready; each later one that an action is over. It
never ends by itself: it is closed when the time is over, and begun anew when the node cuts it off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.attacks.pace import Tally
from tests.attacks.sockets import WebSocket

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

    @property
    def address(self) -> str:
        return f"default/{self.agent}"

    def open_mailbox(self, capacity: int = 100_000) -> None:
        with WebSocket(self.port, self.token) as ws:
            ws.call("open_mailbox", mailbox=self.agent, settings=[capacity])

    def pause(self, seconds: float) -> Attacking:
        """Do nothing for a while; the time may be over meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(PAUSE_STEP_S)
            yield
