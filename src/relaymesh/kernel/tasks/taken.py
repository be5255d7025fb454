"""Which steps are taken: an agent acked them on receipt and reports the results later. Only records change
it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from relaymesh.kernel.records import StepsTaken

if TYPE_CHECKING:
    from relaymesh.kernel.state import State

RENEW_MS_MIN = 1_000
"""More frequent heartbeats of one agent renew nothing, so a flood of them costs little."""


class Held(msgspec.Struct, gc=False):
    """The tokens of the steps that one mailbox's agent took."""

    tokens: dict[int, None]
    renewed_at: int = -RENEW_MS_MIN
    """Volatile."""


class Taken:
    """Steps that are taken, by mailbox. Derived from the board."""

    __slots__ = ("_by_mailbox",)

    def __init__(self) -> None:
        self._by_mailbox: dict[str, Held] = {}

    def add(self, mailbox: str, token: int) -> None:
        held = self._by_mailbox.get(mailbox)
        if held is None:
            held = self._by_mailbox[mailbox] = Held({})
        held.tokens[token] = None

    def discard(self, mailbox: str, token: int) -> None:
        held = self._by_mailbox[mailbox]
        del held.tokens[token]
        if not held.tokens:
            del self._by_mailbox[mailbox]

    def of(self, mailboxes: Iterable[str]) -> list[str]:
        """Those of these mailboxes that have any."""
        return [mailbox for mailbox in mailboxes if mailbox in self._by_mailbox] if self._by_mailbox else []

    def to_renew(self, mailbox: str, now: int) -> Iterator[int]:
        """The tokens of a mailbox, unless they were renewed a moment ago."""
        held = self._by_mailbox.get(mailbox)
        if held is not None and now - held.renewed_at >= RENEW_MS_MIN:
            held.renewed_at = now
            yield from held.tokens


def apply_taken(state: State, record: StepsTaken) -> None:
    """Make the leases longer; after a restart they have the same length."""
    mailbox = state.mailboxes[record.mailbox]
    for sequence in record.sequences:
        entry = mailbox.entries.take_out(sequence)
        link, lease = state.board.take(sequence, record), entry.lease
        if link is None or lease is None:
            continue  # behind a gap
        if state.keep is not None:
            state.keep(mailbox, entry)
        deadline = link.no_later(record.at + record.lease_ms)
        if deadline > lease.deadline:
            lease.deadline = deadline
            if state.live:
                state.lease_clock.extend(lease)
