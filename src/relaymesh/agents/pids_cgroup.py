"""A pids cgroup for each run: it limits the processes and lists them, and a process cannot leave it.

Version 1 and version 2 of cgroups are used the same way: a directory whose `cgroup.procs` lists its processes
and whose `pids.max` bounds them. It is made below the cgroup of this process, or beside it where version 2
allows no limits below a cgroup that holds processes. A process that may write there (root, an agent of the
same user where cgroups are delegated) can move itself out on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PidsCgroup", "pids_cgroup_places"]

PREFIX = "relaymesh-"
MOUNTS = Path("/proc/self/mounts")
OWN = Path("/proc/self/cgroup")


class PidsCgroup:
    """The cgroup of one run. `made` creates it; `removed` removes it when it is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def made(cls, name: str, processes_max: int | None) -> PidsCgroup | None:
        """Create a cgroup at the first place that allows it. None: this process may not create one."""
        for place in pids_cgroup_places():
            path = place / f"{PREFIX}{name}"
            try:
                if path.exists():  # of a supervisor that died
                    cls(path).removed()
                path.mkdir()
            except OSError:
                continue
            try:
                (path / "pids.max").write_text("max" if processes_max is None else str(processes_max))
                return cls(path)
            except OSError:  # the controller is not enabled there
                _try_rmdir(path)
        return None

    @classmethod
    def named(cls, name: str) -> PidsCgroup | None:
        """The cgroup of this name, even if a dead process created it."""
        for place in pids_cgroup_places():
            path = place / f"{PREFIX}{name}"
            if path.is_dir():
                return cls(path)
        return None

    @classmethod
    def names(cls, prefix: str) -> list[str]:
        """The names of existing cgroups that start with this prefix."""
        found = []
        for place in pids_cgroup_places():
            try:
                found += [entry.name for entry in os.scandir(place) if entry.is_dir()]
            except OSError:
                continue
        start = PREFIX + prefix
        return sorted(name.removeprefix(PREFIX) for name in found if name.startswith(start))

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def members(self) -> frozenset[int]:
        found: set[int] = set()
        for folder in self._tree():
            try:
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
            except OSError:
                continue
        return frozenset(found)

    def forbid(self) -> None:
        """Set the limit so that no process in it can start another one."""
        try:
            (self.path / "pids.max").write_text("0")
        except OSError:
            pass

    def reached(self) -> int:
        """How often the limit refused a new process."""
        try:
            for line in (self.path / "pids.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "max":
                    return int(count)
        except (OSError, ValueError):
            pass
        return 0

    def removed(self) -> bool:
        """Remove it if no process runs in it. Returns whether it is gone."""
        for folder in reversed(list(self._tree())):
            if not _try_rmdir(folder):
                return False
        return not self.path.exists()

    def _tree(self) -> Iterator[Path]:
        """Itself, then what an agent may have made below it."""
        for folder, _, _ in os.walk(self.path):
            yield Path(folder)


def pids_cgroup_places() -> list[Path]:
    """Directories in which a cgroup with a bound on processes may be made, the best first."""
    try:
        own = _own_paths()
        mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return []
    places: list[Path] = []
    for _, where, kind, options, *_ in mounts:
        if kind == "cgroup" and "pids" in options.split(",") and "pids" in own:
            places.append(Path(where + own["pids"]))
        elif kind == "cgroup2" and "" in own:
            inside = Path(where + own[""])
            places += [inside, inside.parent] if own[""] != "/" else [inside]
    return places


def _own_paths() -> dict[str, str]:
    """The cgroup of this process by controller; "" is that of version 2."""
    found: dict[str, str] = {}
    for line in OWN.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _try_rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
