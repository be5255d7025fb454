"""How much one attacker may do: a share of a processor, a number of actions, a time."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

GRACE_S = 0.05
"""Processor time that may be used ahead of the share."""
REFUSAL_MAX = 300


@dataclass
class Tally:
    """What an attacker did. `done`: actions the node took; `refused`: those it answered with a problem."""

    done: int = 0
    refused: int = 0
    cut: int = 0
    """Connections that the node ended or refused."""
    bytes: int = 0
    """Sent, whether or not the node took them."""
    processor_s: float = 0.0
    took_s: float = 0.0
    skipped: str = ""
    """Why the attack is not possible on this machine."""
    last_refusal: str = ""

    @property
    def tried(self) -> int:
        return self.done + self.refused + self.cut

    def count(self, *, taken: bool, answer: object = "") -> None:
        """One action; `answer` is what the node said to it."""
        if taken:
            self.done += 1
        else:
            self.refused += 1
            self.last_refusal = str(answer)[:REFUSAL_MAX]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Pace:
    """Sleeps whenever this process has used more than its share of one processor."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._began = time.monotonic()
        self._used = time.process_time()

    @property
    def processor_s(self) -> float:
        return time.process_time() - self._used

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began

    def keep(self) -> None:
        ahead = self.processor_s - GRACE_S - self._share * self.took_s
        if ahead > 0:
            time.sleep(ahead / self._share)
