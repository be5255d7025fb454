"""Counting: the state of a kernel as `MeshStats`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import counts_of
from relaymesh.wire.stats import MeshStats

if TYPE_CHECKING:
    from relaymesh.node.node import Node


KEPT_MAX = 20
"""How many payers are shown: those with the most kept messages."""


def stats_of(node: Node, kernel: Kernel, addresses: Iterable[str] | None = None) -> MeshStats:
    """Counters of these mailboxes, or of all, and of the node."""
    state = kernel.state
    mailboxes = counts_of(addresses, node.time.now(), kernel)
    return MeshStats(
        mailboxes=mailboxes,
        sequence=state.sequence,
        synced=node.core.synced,
        epoch=state.epoch,
        unrouted=state.unrouted,
        duplicates=state.duplicates,
        refused=node.refusals.counts(),
        dead_letters=state.letters.count,
        kept={} if mailboxes and addresses is not None else state.charges.greatest(KEPT_MAX),
        remembered_ids=len(state.admitted),
        journal_bytes=node.core.journal.bytes_written,
        store_lag=node.projector.lag if node.projector is not None else 0,
    )
