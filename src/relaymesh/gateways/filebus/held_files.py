"""Deliveries that are out as files: the lease of each, and where its file lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.names import META, REASON, TIERS, stem_of, token_of
from relaymesh.gateways.filebus.tree import Tree

INBOX, CLAIMED, DONE, DEAD = "inbox", "claimed", "done", "dead"

RENEW_BELOW = 2 / 3
"""A lease is renewed to its full length once less than this share of it is left."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the meta file of a delivery lies: a state, and which tier or worker."""

    state: str
    of: str = ""


@dataclass(slots=True, eq=False)
class Held:
    """One delivery. Times are mesh time, in milliseconds."""

    stem: str
    token: int
    mailbox: str
    sequence: int | None
    length_ms: int
    deadline: int
    expires_at: int
    spot: Spot
    moved_at: int
    """Its worker's last sign of life."""
    alive_ns: int = 0
    """The time of the worker's `alive` file when it was last looked at: any change is a sign of life."""
    settled: bool = False
    """Settled before it left (at_most_once): there is no lease to renew, and nothing to ack."""
    passed_over: int = 0
    """Deliveries that came after it and were claimed before it."""
    missing: int = 0
    """For how many looks its file was nowhere."""

    def needs_renewal(self, now: int) -> bool:
        return not self.settled and self.deadline - now < self.length_ms * RENEW_BELOW


class Spots:
    """Where every delivery of a bus lies. Work is done only for directories that changed."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[Folder, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def look(self, *, anew: bool = False) -> dict[str, Spot]:
        """The spot of every delivery that is not settled, by stem.

        Read in the order in which files move, so that one that moves on meanwhile is seen at least
        once; seen twice, the later spot counts.
        """
        tree = self._tree
        found: dict[str, Spot] = {}
        for tier in TIERS:
            found.update(dict.fromkeys(self._stems(tree.tiers[tier], anew), Spot(INBOX, tier)))
        for worker, folder in tree.look_for_workers(anew=anew).items():
            found.update(dict.fromkeys(self._stems(folder, anew), Spot(CLAIMED, worker)))
        found.update(dict.fromkeys(self._stems(tree.done, anew), Spot(DONE)))
        found.update(dict.fromkeys(self._stems(tree.dead, anew), Spot(DEAD)))
        if len(self._known) > len(tree.workers) + len(TIERS) + 2:
            self._known.clear()  # workers are gone
        return found

    def _stems(self, folder: Folder, anew: bool) -> tuple[str, ...]:
        names = folder.files(anew=anew)
        known = self._known.get(folder)
        if known is None or known[0] is not names:
            known = self._known[folder] = names, tuple(deliveries(names))
        return known[1]


def deliveries(names: tuple[str, ...]) -> Iterator[str]:
    """The stems of deliveries among the names of files, those with a reason beside them left out."""
    reasons = {name for name in names if name.endswith(REASON)}
    for name in names:
        stem = stem_of(name, META)
        if stem is not None and token_of(stem) is not None and stem + REASON not in reasons:
            yield stem
