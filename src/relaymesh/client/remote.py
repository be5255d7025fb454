"""What both remote sessions share, whatever the transport."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from random import Random
from typing import Any

from relaymesh.client.clock import Elapsed, RemoteTime
from relaymesh.client.held_leases import HeldLeases
from relaymesh.errors import LeaseLost
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.commands import Extend, ExtendAll
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.token import format_token
from relaymesh.wire.frames import Attempt
from relaymesh.wire.ids import IdMint

RETURNED = frozenset({"retrying", "deferred"})
"""The result of a nack when the message goes back to its mailbox."""
EXPIRED_SLACK_MS = 60_000
"""How long after its end an unsettled lease is forgotten."""


class RemoteSession:
    """What a session knows of its node without a request: its time, its limits, and the leases held."""

    path = None

    def __init__(self, url: str, clock: Elapsed | None) -> None:
        self.url = url
        self.namespace = DEFAULT_NAMESPACE
        self.payload_bytes_max = 0
        self._time = RemoteTime(clock)
        self.now = self._time.now
        """Mesh time, in milliseconds."""
        self._mint = IdMint(Random())
        self._minting = threading.Lock()
        self._process = os.getpid()
        self._held = HeldLeases()
        self.holds = self._held.holds

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy: the connection belongs to the parent."""
        return self._process != os.getpid()

    def new_ids(self, count: int) -> list[str]:
        with self._minting:
            return self._mint.mint(self.now(), count)

    def _heard(self, now_ms: int) -> None:
        self._time.heard(now_ms)
        self._held.drop_expired(now_ms - EXPIRED_SLACK_MS)

    async def _extend(self, command: Extend, **_: Any) -> int:
        deadline = (await self._extend_all([(command.token, command.ms)]))[0]
        if deadline is None:
            raise lost(command.token)
        return deadline

    async def _extend_each(self, command: ExtendAll, **_: Any) -> list[int | None]:
        return await self._extend_all(command.extends)

    async def _extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        """Deadlines of (token, ms); None for a lease that is lost."""
        raise NotImplementedError

    def _nacked(self, token: int, state: str | None, begun: int, repeated: bool) -> str:
        """The result of a nack; None for a token that is no longer valid.

        If the nack was repeated, its first try may have done it, provided it began before the lease ended.
        """
        unknown = not self._held.holds(token)
        if state is None and repeated and (unknown or begun <= self._held.deadline(token)):
            state = "settled"  # by the first try, or by another holder since: nothing is left to do
        if state in RETURNED:
            self._held.returned(token)
        else:
            self._held.drop([token])
        if state is None:
            raise lost(token)
        return state

    # A repeated settle whose first answer was lost may find its own work done. Only the node can tell: a
    # lease also ends with its time, and with a nack of an earlier message of its lane.

    async def _ended(self, attempts: list[Attempt]) -> list[bool]:
        """For each delivery: whether that attempt ended the message."""
        raise NotImplementedError

    async def _really_stale(self, stale: Sequence[int]) -> list[int]:
        """Those whose message was not settled by the first try. For a settle that was repeated."""
        known = {token: attempt for token in stale if (attempt := self._held.attempt(token)) is not None}
        ended = await self._ended(list(known.values())) if known else []
        ours = {token for token, by_us in zip(known, ended, strict=True) if by_us}
        return [token for token in stale if token not in ours]


def lost(token: int) -> LeaseLost:
    return LeaseLost(f"lease {format_token(token)} is no longer held")


def receipts_from(
    envelopes: Sequence[Envelope], rows: Sequence[tuple[int, bool, int, int]], *, first: bool
) -> list[Receipt]:
    """Receipts from the node's answer. `first`: count a duplicate as accepted: it is our own repeat."""
    return [
        Receipt(envelope.id, sequence, duplicate and not first, targets, due)
        for envelope, (sequence, duplicate, targets, due) in zip(envelopes, rows, strict=True)
    ]
