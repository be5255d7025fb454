"""What `mesh.stats()` answers: counts that can be checked against each other."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.bounds import plain_text
from relaymesh.kernel.counts import MailboxStats

__all__ = ["MailboxStats", "MeshStats"]


class MeshStats(msgspec.Struct, frozen=True, kw_only=True):
    """The whole mesh."""

    mailboxes: dict[str, MailboxStats]
    sequence: int
    synced: int
    epoch: int
    unrouted: int
    """Messages published to topics without a subscription."""
    dead_letters: int
    remembered_ids: int
    journal_bytes: int
    """Bytes written by this process."""
    store_lag: int
    duplicates: int = 0
    """Messages that were sent before and not queued again, since the start."""
    refused: dict[str, int] = {}
    """Sends and publishes that were refused for a limit, at once or after their timeout, since the start, by
    error code."""
    kept: dict[str, int] = {}
    """Bytes kept in memory, by who pays for them: the twenty with the most. Keys are addresses of senders and
    mailboxes, or `subscriptions of ` and the address of an agent."""

    def delayed(self, mailbox: str | None = None) -> int:
        """Messages that wait for their time: of one mailbox, or all."""
        if mailbox is not None:
            mailbox = plain_text(mailbox, "mailbox")
        return sum(box.delayed for address, box in self.mailboxes.items() if mailbox in (None, address))

    @property
    def pending(self) -> int:
        return sum(box.pending for box in self.mailboxes.values())
