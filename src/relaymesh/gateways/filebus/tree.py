"""The bus directory: the folders of the seed's layout, opened once, below one root."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from relaymesh.errors import DirectoryError, InvalidSettings, NotFound
from relaymesh.gateways.filebus.folder import HAS_DIRECTORY_FDS, Folder
from relaymesh.gateways.filebus.names import TIERS, is_worker
from relaymesh.modes import GROUP, make_folder
from relaymesh.modes import PRIVATE as OWNER_ALONE

PRIVATE = ".gateway"
"""The gateway's own: its lock, and the sends it has taken."""
SHARED = ("meta", "payload", "receipt", "inbox", "processing", "done", "dead")


def make_tree(path: Path, group: int | None = None) -> None:
    """Make what is missing of a bus directory: for its owner, and for the members of `group`, if given.

    Without a group a directory that is there stays as it is: if its group may write, so it may in new ones.
    """
    make_folder(path)
    if group is not None:
        root = Folder.root(path)
        try:
            _give(root, group)
        finally:
            root.close()
    tree = Tree(path, make=True)
    try:
        if group is not None:
            for folder in tree.shared:
                _give(folder, group)
    finally:
        tree.close()


def _give(folder: Folder, group: int) -> None:
    """Let the group write here, and let what is made here belong to it (the set-group-id bit)."""
    if folder.fd is None:
        raise InvalidSettings("this system has no groups of users", hint="leave out --group")
    try:
        os.fchown(folder.fd, -1, group)
        os.fchmod(folder.fd, GROUP.folder | stat.S_ISGID)
    except OSError as error:
        raise DirectoryError(
            f"{folder.path} cannot be given to group {group}: {error.strerror}",
            hint="name a group that you belong to, of a directory that you own",
        ) from error


class Tree:
    """An open bus directory. `owners` are the users whose files are taken."""

    def __init__(
        self,
        path: Path,
        *,
        owners: frozenset[int] = frozenset(),
        make: bool = False,
        descriptors: bool = HAS_DIRECTORY_FDS,
    ) -> None:
        self.path = path
        self._open: list[Folder] = []
        try:
            self.root = self._keep(Folder.root(path, descriptors=descriptors))
            self.private = self._keep(self.root.folder(PRIVATE, make=make, mode=OWNER_ALONE.folder))
            shared = {name: self._keep(self.root.folder(name, make=make)) for name in SHARED}
            self.meta, self.payload, self.receipt = shared["meta"], shared["payload"], shared["receipt"]
            self.inbox, self.processing = shared["inbox"], shared["processing"]
            self.done, self.dead = shared["done"], shared["dead"]
            self.tiers = {name: self._keep(self.inbox.folder(name, make=make)) for name in TIERS}
            self.shared = [*shared.values(), *self.tiers.values()]
            self._check()
        except FileNotFoundError as error:
            self.close()
            raise NotFound(
                f"there is no file bus in {path}", hint=f"make one: relaymesh bus init {quote(str(path))}"
            ) from error
        except BaseException:
            self.close()
            raise
        self.workers: dict[str, Folder] = {}
        self._workers_seen: tuple[str, ...] = ()
        self.owners = owners
        if hasattr(os, "geteuid"):
            self.owners = owners | {os.geteuid(), self.root.status().st_uid}

    def _keep(self, folder: Folder) -> Folder:
        self._open.append(folder)
        return folder

    def _check(self) -> None:
        """A rename must be atomic, and other users must not write here."""
        device = self.root.status().st_dev
        for folder in self._open:
            seen = folder.status()
            if seen.st_dev != device:
                raise DirectoryError(
                    f"{folder.path} lies on another file system than {self.path}",
                    hint="a file bus needs one file system, so that a rename is atomic",
                )
            if hasattr(os, "geteuid") and seen.st_mode & stat.S_IWOTH:
                raise DirectoryError(
                    f"every user may write into {folder.path}",
                    hint=f"chmod o-w {folder.path}; give a group the right instead",
                )

    def look_for_workers(self, *, anew: bool = False) -> dict[str, Folder]:
        """The folders of workers, by worker id. A new one is opened, one that is gone is closed."""
        names = self.processing.others(anew=anew)
        if names is not self._workers_seen:
            self._workers_seen = names
            present = {name for name in names if is_worker(name)}
            for gone in self.workers.keys() - present:
                self.workers.pop(gone).close()
            for name in present - self.workers.keys():
                try:
                    self.workers[name] = self.processing.folder(name)
                except (DirectoryError, FileNotFoundError):
                    continue
        return self.workers

    def day(self, wall: float) -> Folder:
        """`done/YYYY-MM-DD` of this moment, in UTC. The caller closes it."""
        return self.done.folder(datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d"), make=True)

    def close(self) -> None:
        for folder in [*self._open, *getattr(self, "workers", {}).values()]:
            folder.close()
        self._open.clear()
