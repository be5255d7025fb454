"""Requests that the node answers itself, beside the commands and queries of its kernel."""

from __future__ import annotations

from relaymesh.kernel.request import Request
from relaymesh.wire.stats import MeshStats

__all__ = ["Checkpoint", "Stats"]


class Stats(Request[MeshStats]):
    """Counters of every mailbox and of the node. Does not wait for the disk."""


class Checkpoint(Request[int | None]):
    """Write the whole state now. Returns the sequence it was taken at; None in memory."""
