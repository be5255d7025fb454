"""The low-frequency scan: every directory in full, held against the leases; and what is old goes.

The leases drive everything else. This is the safety net: files that no look of the bus would ever come
upon are found here, cleared away if they are the gateway's own, reported if they are a worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relaymesh.gateways.filebus.deliveries import Deliveries
from relaymesh.gateways.filebus.folder import TEMPORARY, Folder, kind_of
from relaymesh.gateways.filebus.inbox import ENDINGS
from relaymesh.gateways.filebus.names import (
    ALIVE,
    LOST,
    META,
    REASON,
    RECEIPT,
    TIERS,
    VERDICT,
    is_day,
    is_send,
    is_worker,
    stem_of,
    token_of,
)
from relaymesh.gateways.filebus.notices import Notices, log
from relaymesh.gateways.filebus.retention import DAY_S, purge_files
from relaymesh.gateways.filebus.settings import BusSettings
from relaymesh.gateways.filebus.tree import Tree

LEFT_BEHIND_S = 3600
"""A payload without its meta that was not touched for so long was left behind."""


class Scan:
    """Looks through one bus directory when it is called. `turn` costs a stat for each file."""

    def __init__(
        self,
        tree: Tree,
        deliveries: Deliveries,
        settings: BusSettings,
        notices: Notices,
        wall: Callable[[], float],
    ) -> None:
        self._tree = tree
        self._deliveries = deliveries
        self._settings = settings
        self._notices = notices
        self._wall = wall
        self._purged_on: int | None = None

    def turn(self) -> None:
        self._deliveries.check_claims()
        self._clear_payloads()
        self._clear_temporary()
        self._purge()
        self._report()

    def _folders(self) -> Iterator[Folder]:
        tree = self._tree
        yield from (tree.private, tree.meta, tree.payload, tree.receipt)
        yield from (tree.processing, tree.done, tree.dead)
        yield from tree.tiers.values()
        yield from tree.workers.values()

    def _age_s(self, folder: Folder, name: str) -> float:
        seen = folder.stat(name)
        return 0.0 if seen is None else self._wall() - seen.st_mtime

    def _clear_payloads(self) -> None:
        """Payloads of deliveries that are no longer out: a gateway died between two steps."""
        payload = self._tree.payload
        out = self._deliveries.held
        for name in payload.files(anew=True):
            for ending in ENDINGS:
                stem = stem_of(name, ending)
                if stem is not None and token_of(stem) is not None and stem not in out:
                    payload.remove(name)

    def _clear_temporary(self) -> None:
        """Files that a gateway died over. This one is writing none now."""
        for folder in self._folders():
            for name in folder.files():
                if name.startswith(TEMPORARY):
                    folder.remove(name)

    # -- retention

    def _purge(self) -> None:
        """At the start, and once on each day (UTC) of the wall clock."""
        now = self._wall()
        day = int(now // DAY_S)
        if day == self._purged_on:
            return
        settings = self._settings
        done_before = now - settings.done_retention_days * DAY_S
        dead_before = now - settings.dead_retention_days * DAY_S
        removed = purge_files(self._tree, done_before, dead_before, self._notices)
        self._purged_on = day
        if removed:
            words = ", ".join([f"{count} {kind}" for kind, count in sorted(removed.items())])
            log.info("removed old files of the bus: %s", words)

    # -- what only a person can decide

    def _report(self) -> None:
        for where, what in self._strangers():
            self._notices.say(where, what)

    def _strangers(self) -> Iterator[tuple[str, str]]:
        tree = self._tree
        known: dict[Folder, Callable[[str], bool]] = {
            tree.meta: lambda name: stem_of(name, META) is not None,
            tree.payload: self._is_no_orphan,
            tree.receipt: lambda name: name.endswith(RECEIPT),
            tree.processing: lambda _: False,
            tree.done: _is_delivery,
            tree.dead: lambda name: name.endswith((META, REASON, VERDICT, *ENDINGS)),
        }
        for folder in tree.tiers.values():
            known[folder] = _is_delivery
        for folder in tree.workers.values():
            known[folder] = lambda name: name == ALIVE or name.endswith(LOST) or _is_delivery(name)
        for folder, fits in known.items():
            where = folder.path.relative_to(tree.path).as_posix()
            for name in folder.files():
                if not name.startswith(".") and not fits(name):
                    yield f"{where}/{name}", "is no file of the bus, or was left behind"
            for name in folder.others():
                if not self._belongs(folder, name):
                    seen = folder.stat(name)
                    kind = "gone" if seen is None else kind_of(seen.st_mode)
                    yield f"{where}/{name}", f"is {kind} and is left alone"

    def _is_no_orphan(self, name: str) -> bool:
        stems = [stem for ending in ENDINGS if (stem := stem_of(name, ending)) is not None]
        if not stems:
            return False
        [stem] = stems
        if not is_send(stem):
            return token_of(stem) is not None
        expected = self._tree.meta.stat(stem + META) is not None
        return expected or self._age_s(self._tree.payload, name) < LEFT_BEHIND_S

    def _belongs(self, folder: Folder, name: str) -> bool:
        tree = self._tree
        if folder is tree.processing:
            return is_worker(name) and name in tree.workers
        if folder is tree.done:
            return is_day(name)
        return folder is tree.inbox and name in TIERS


def _is_delivery(name: str) -> bool:
    stem = stem_of(name, META)
    return stem is not None and token_of(stem) is not None
