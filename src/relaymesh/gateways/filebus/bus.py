"""The gateway of one bus directory: looks, acts, waits, looks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from relaymesh.errors import DirectoryInUse, InvalidSettings, RateLimited, Refused, Unreachable
from relaymesh.gateways.filebus.deliveries import Deliveries
from relaymesh.gateways.filebus.notices import Notices, log
from relaymesh.gateways.filebus.outbox import Outbox
from relaymesh.gateways.filebus.scan import Scan
from relaymesh.gateways.filebus.settings import BusSettings
from relaymesh.gateways.filebus.tree import PRIVATE, Tree, make_tree
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.commands import OpenMailbox
from relaymesh.node.disk import RealLock
from relaymesh.sdk.session import Session

LOCK = "lock"


class FileBus:
    """One bus directory, and the agents whose mail goes through it. For one thread.

    `close` gives back what no worker claimed. Without it, what lay in `inbox/` comes back when its
    lease runs out, and counts as an attempt.
    """

    def __init__(
        self,
        session: Session,
        path: Path,
        agents: Sequence[str],
        settings: BusSettings | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Makes the directory, opens the mailboxes of `agents`; the first is the default sender."""
        self.settings = settings or BusSettings()
        self.agents = tuple(dict.fromkeys(agent_address(name) for name in agents))
        if not self.agents:
            raise InvalidSettings("a file bus needs an agent", hint="name one with --agent NAME")
        self.notices = Notices()
        self._session = session
        make_tree(path)
        self._lock = _lock(path)
        try:
            self._tree = Tree(path, owners=self.settings.owners)
        except BaseException:
            self._lock.release()
            raise
        try:
            for agent in self.agents:
                session.execute(OpenMailbox(agent))
            parts = (self._tree, session, self.settings, self.agents, self.notices, wall)
            self.outbox = Outbox(*parts)
            self.deliveries = Deliveries(*parts)
            self._scan = Scan(self._tree, self.deliveries, self.settings, self.notices, wall)
            self._scan.turn()
            self._scanned_at = session.now()
        except BaseException:
            self._tree.close()
            self._lock.release()
            raise

    def turn(self) -> bool:
        """One look at every directory, and what follows from it. Returns whether anything happened.

        Raises `Refused` or `Unreachable` when the mesh cannot be asked now: the files wait.
        """
        now = self._session.now()
        if now - self._scanned_at >= self.settings.scan_s * 1000:
            self._scanned_at = now
            self._scan.turn()
        sent = self.outbox.turn()
        return self.deliveries.turn() or sent

    def run(self, stop: threading.Event) -> None:
        """Turn until told to stop; slower and slower, down to `poll_s_max`, while nothing happens."""
        pause = self.settings.poll_s_min
        while not stop.wait(pause):
            try:
                happened = self.turn()
            except (Refused, Unreachable) as error:
                log.warning("the mesh cannot take part now, the files wait: %s", error)
                pause = error.retry_after if isinstance(error, RateLimited) else self.settings.poll_s_max
                continue
            except OSError as error:  # a full disk, most likely: everything is tried again
                log.warning("the files cannot be worked on now: %s", error)
                pause = self.settings.poll_s_max
                continue
            pause = self.settings.poll_s_min if happened else min(pause * 2, self.settings.poll_s_max)

    def close(self) -> None:
        """Give back what no worker claimed, and let go of the directory. Claims stay claimed."""
        try:
            self.deliveries.close()
        finally:
            self._tree.close()
            self._lock.release()


def _lock(path: Path) -> RealLock:
    try:
        return RealLock(path / PRIVATE / LOCK)
    except BlockingIOError as error:
        raise DirectoryInUse(
            f"another gateway serves the file bus {path}", hint="stop the other gateway first"
        ) from error
