"""Two disks of one machine, and a ledger of what the journal on both promised."""

from __future__ import annotations

from pathlib import Path

from relaymesh.journal import Mirror, MirrorMode, archive_behind, drop_archived, recover
from relaymesh.journal.lockstep import Syncing
from relaymesh.testing.disk import Keep, MemoryDisk
from tests.journal.small import SMALL, Ledger, replay, state_of

OWN = ("lock", "mirror")
"""Files that only one of the two directories has, or that differ."""
LOCK_TEXTS = (b"", b"pid 1\n")
CRASHES = [(Keep.NOTHING, 0), (Keep.EVERYTHING, 0), (Keep.SUBSET, 1), (Keep.TORN, 2)]


def _counts(path: Path) -> bool:
    """Neither a file of the directory itself nor a daily report, which is written anew from the journal."""
    return path.name not in OWN and path.parent.name != "reports"


class Pair:
    """Two disks of one machine, and a ledger of what the journal on them promised."""

    def __init__(
        self,
        primary: MemoryDisk | None = None,
        mirror: MemoryDisk | None = None,
        *,
        mode: MirrorMode = "required",
        syncing: Syncing = "mirror first",
    ) -> None:
        self.primary = primary or MemoryDisk()
        self.mirror = mirror or MemoryDisk(seed=99)
        self.mode = mode
        self.syncing = syncing
        self.ledger = Ledger()

    def start(self) -> None:
        ledger = self.ledger
        recovery = recover(self.primary, SMALL, Mirror(self.mirror, self.mode, syncing=self.syncing))
        assert all(recovery.epoch > epoch for epoch in ledger.epochs), "an epoch came back"
        ledger.epochs.append(recovery.epoch)
        state = replay(recovery)
        self.writer = recovery.open_writer(5000)
        self.disk = recovery.disk
        ledger.recovered(state)

    def fill(self, frames: int) -> None:
        for _ in range(frames):
            self.ledger.append(self.writer)
        self.ledger.sync(self.writer)

    def checkpoint(self) -> None:
        self.ledger.checkpoint(self.disk, self.writer)
        archive_behind(self.disk, self.writer.synced)

    def life(self) -> None:
        """Everything a journal does: rotation, checkpoints, archive, retention, stop and restart."""
        self.start()
        for _ in range(2):
            self.fill(3)
            self.fill(3)
            self.checkpoint()
        self.ledger.append(self.writer)
        self.writer.close()
        self.ledger.promised = len(self.ledger.tried)
        self.start()
        self.fill(1)
        self.checkpoint()
        drop_archived(self.disk, before_ns=1006)
        self.fill(2)

    def crash(self, keep: Keep, seed: int) -> Pair:
        """Both disks as the next start finds them; each lost what it lost."""
        after = Pair(
            self.primary.crash(keep, seed=seed),
            self.mirror.crash(keep, seed=seed + 7),
            mode=self.mode,
            syncing=self.syncing,
        )
        ledger = self.ledger
        after.ledger = Ledger(list(ledger.tried), ledger.promised, list(ledger.epochs))
        return after

    def check_same(self) -> None:
        """Byte for byte. A deletion may be lost by one disk in a crash: then it is made again later."""
        ours, theirs = files_of(self.primary), files_of(self.mirror)
        for name in set(ours) ^ set(theirs):
            files = ours if name in ours else theirs
            folder = name.partition("/")[0]
            older = sorted((each for each in files if each.startswith(f"{folder}/")), reverse=True)
            kept = {"checkpoints": 2, "archive": 1}.get(folder)
            assert older.index(name) >= (kept or len(older)), f"{name} is in one directory only"
            del files[name]
        assert ours == theirs

    def check_mirror_alone(self) -> None:
        copy = MemoryDisk(self.mirror.files())
        Ledger(list(self.ledger.tried), self.ledger.promised).recovered(state_of(copy))


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    files = disk.files().items()
    aside = ("first/", "second/", "aside/")
    return {n: data for n, data in files if n not in OWN and ".aside" not in n and not n.startswith(aside)}


def started(**options: MirrorMode | Syncing) -> Pair:
    pair = Pair(**options)  # type: ignore[arg-type]
    pair.start()
    return pair


def same_trees(path: Path) -> bool:
    def tree(root: Path) -> dict[str, bytes]:
        files = (each for each in root.rglob("*") if each.is_file() and _counts(each))
        return {str(each.relative_to(root)): each.read_bytes() for each in files}

    return tree(path / "primary") == tree(path / "mirror") != {}


def agreed(why: str) -> None:
    pass


def damaged_pair() -> Pair:
    """A pair whose primary has a bad bit in acknowledged data."""
    pair = Pair()
    pair.life()
    pair.writer.close()
    first = min(name for name in pair.primary.files() if name.startswith("journal/"))
    pair.primary.flip(first, 150, 2)
    return pair
