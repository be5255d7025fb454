"""The faults: what breaks, when, and how it is healed. Each counts itself when it strikes.

A fault that waits for its moment (the next write, the next rotation) is armed first and counted
when that moment comes, so the counts are of what happened and not of what was planned.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from relaymesh.errors import MeshError
from relaymesh.testing.disk import Fault, Keep
from relaymesh.testing.simulation.clients import Clients
from relaymesh.testing.simulation.plan import DOWN, RUNNING, STORE
from relaymesh.testing.simulation.reading import Segment, read_segments
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.world import World

KEEPS = {
    "power_loss": Keep.NOTHING,
    "partial_flush": Keep.PREFIX,
    "torn_write": Keep.TORN,
    "reordered_pages": Keep.SUBSET,
}
"""What of the unsynced survives, by kind of power loss."""

FREE = 10**12
LONG_SLEEP_S = 5


class Faults:
    """The faults of one run, chosen by its plan."""

    def __init__(self, world: World, clients: Clients) -> None:
        self.world = world
        self.clients = clients
        self.rng = random.Random(f"faults-{world.plan.seed}")
        enabled = world.plan.faults
        self.running = [kind for kind in RUNNING if kind in enabled]
        self.running_weights = [enabled[kind] for kind in self.running]
        self.down = [kind for kind in DOWN if kind in enabled]
        self.store = [kind for kind in STORE if kind in enabled]
        self.after_power: str | None = None
        """Which power loss follows when the disk goes off; None: one of those enabled."""
        self.old_mark: bytes | None = None
        self.heal: list[Callable[[], None]] = []
        self.off = False
        """The time of faults is over."""
        self._strikes: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "graceful_restart": self._graceful,
            "short_write": self._short_write,
            "write_eio": lambda: self._arm("write_eio", "write_at", errno.EIO, "journal/", partial=True),
            "sync_eio_restart": lambda: self._arm("sync_eio_restart", "sync", errno.EIO, "journal/"),
            "sync_eio_power_loss": lambda: self._arm("sync_eio_power_loss", "sync", errno.EIO, "journal/"),
            "write_enospc": lambda: self._arm(
                "write_enospc", "write_at", errno.ENOSPC, "journal/", partial=True
            ),
            "allocate_enospc": lambda: self._arm("allocate_enospc", "allocate", errno.ENOSPC, "journal/"),
            "disk_floor": self._disk_floor,
            "slow_sync": self._slow_sync,
            "rotation_crash": lambda: self._aim("rotation_crash", "create", "journal/"),
            "checkpoint_crash": self._checkpoint_crash,
            "checkpoint_eio": self._checkpoint_eio,
            "archive_crash": self._archive_crash,
            "wall_jump_forward": lambda: self._jump("wall_jump_forward", 1),
            "wall_jump_back": lambda: self._jump("wall_jump_back", -1),
            "suspend": self._suspend,
            "store_ahead": self._store_ahead,
        }
        for kind in KEEPS:
            self._strikes[kind] = self._power_cut(kind)
        self.armed: dict[str, Fault] = {}
        self.slow = 0
        self.aimed: str | None = None
        self._ahead = ""

    # -- while the node runs ------------------------------------------------------------------

    def strike(self) -> None:
        if self.running:
            kind = self.rng.choices(self.running, self.running_weights)[0]
            self._strikes[kind]()

    def _power_cut(self, kind: str) -> Callable[[], None]:
        def cut() -> None:
            self.after_power = kind
            self.world.disk.cut_power_after(self.rng.choice((0, 1, 2, 3, 5, 9)))

        return cut

    def power_lost(self) -> None:
        """The disk went off under the node: decide what survives, and count it."""
        world = self.world
        kind, self.after_power = self.after_power, None
        where = f"at {world.disk.lost_at}"
        if self.aimed is not None:
            world.counted(self.aimed, where)
            self.aimed = None
            if self.rng.random() < 0.3:
                world.kill()
                return
        if kind is None:
            kind = self.rng.choice(list(KEEPS))
        world.counted(kind, where)
        world.lose_power(KEEPS[kind])

    def poisoned(self) -> None:
        """The journal failed: the process exits and is started again, maybe on another machine's power."""
        world = self.world
        struck = self._count_armed()
        world.disk.faults.clear()
        if struck == "sync_eio_power_loss":
            world.lose_power(self.rng.choice((Keep.NOTHING, Keep.SUBSET)))
        else:
            world.kill()

    def _count_armed(self) -> str | None:
        """Count what struck since the last look; the last of them."""
        struck = None
        for kind, fault in list(self.armed.items()):
            if fault.nth <= 0:
                struck = kind
                del self.armed[kind]
                self.world.counted(kind)
                if fault in self.world.disk.faults:
                    self.world.disk.faults.remove(fault)
        return struck

    def after_action(self) -> None:
        """Notice what struck without ending anything, and let some troubles pass."""
        if self.armed:
            self._count_armed()
        if self.heal and self.rng.random() < 0.1:
            self.heal.pop(0)()

    def _arm(self, kind: str, call: str, error: int, within: str, *, partial: bool = False) -> None:
        if kind in self.armed:
            return
        keep = self.rng.choice((0, 1, 20, 70)) if partial else 0
        fault = Fault(call, nth=self.rng.choice((1, 1, 2, 4)), error=error, within=within, keep_bytes=keep)
        self.armed[kind] = fault
        self.world.fail(fault)

    def _aim(self, kind: str, call: str, within: str) -> None:
        """Cut the power soon after such a call, whenever it comes."""
        self.aimed = kind
        self.after_power = self.rng.choice(list(KEEPS))
        self.world.trigger = (call, within, self.rng.randrange(7))

    def _kill(self) -> None:
        """Often with something written that no sync has covered yet."""
        if self.rng.random() < 0.5:
            self.clients.send()
            self.world.core.write()
        self.world.counted("kill")
        self.world.kill()

    def _graceful(self) -> None:
        """Deliveries go back unburned and everything is flushed."""
        self.disarm()
        self.world.counted("graceful_restart")
        self.world.stop()

    def _short_write(self) -> None:
        rng, world = self.rng, self.world

        def shorten(name: str, size: int) -> int:
            if name.startswith("journal/") and size > 1 and rng.random() < 0.5:
                world.counts["short_write"] += 1
                return rng.randrange(1, size)
            return size

        world.disk.shorten = shorten
        world.trace.line("writes may be short")

    def _disk_floor(self) -> None:
        world = self.world
        world.counted("disk_floor")
        world.disk.free = self.rng.choice((0, 1_000))
        self.heal.append(self._free_space)

    def _free_space(self) -> None:
        self.world.disk.free = FREE
        self.world.trace.line("there is space again")

    def _slow_sync(self) -> None:
        self.slow += 1

    def _checkpoint_crash(self) -> None:
        self._aim("checkpoint_crash", self.rng.choice(("create", "write_at", "rename")), "checkpoints/")
        self.checkpoint()

    def _archive_crash(self) -> None:
        """Two checkpoints, so that something can be archived; the power goes while it is moved."""
        self.checkpoint()
        self._aim("archive_crash", "rename", "journal/")
        world = self.world
        for _ in range(3):
            self.clients.send()
            world.core.sync()
        self.checkpoint()
        if world.trigger is not None:
            world.trigger, self.aimed = None, None

    def checkpoint(self) -> None:
        """As housekeeping would; a failure leaves the journal as it was."""
        world = self.world
        world.doing = "checkpoint"
        try:
            sequence = world.node.checkpoint()
        except MeshError as error:
            if world.core.failure is not None:
                raise
            world.trace.line(f"no checkpoint: {error.code}")
        else:
            world.trace.line(f"checkpoint at {sequence}")
        finally:
            world.doing = ""

    def _checkpoint_eio(self) -> None:
        call = self.rng.choice(("write_at", "sync", "create", "rename"))
        error = self.rng.choice((errno.EIO, errno.ENOSPC))
        self._arm("checkpoint_eio", call, error, "checkpoints/")
        self.checkpoint()

    def _jump(self, kind: str, sign: int) -> None:
        self.world.clock.jump_wall(sign * self.rng.choice((1, 100, 3_600, 100_000)))
        self.world.life.disturbed += 1
        self.world.counts["clock_jump_under_task"] += self.world.has_tasks
        self.world.counted(kind)

    def _suspend(self) -> None:
        seconds = self.rng.choice((1, 20, 600))
        self.world.clock.suspend(seconds)
        self.world.life.disturbed += 1
        self.world.counts["clock_jump_under_task"] += self.world.has_tasks
        if seconds > LONG_SLEEP_S:
            self.world.history.woke.append((self.world.life.epoch, self.world.now()))
        self.world.counted("suspend")

    # -- between two lives --------------------------------------------------------------------

    def between(self) -> None:
        """Before a start: what happened to the files meanwhile, and what will strike during the start."""
        world = self.world
        self.armed.clear()
        world.disk.faults.clear()
        self.aimed = self.after_power = None
        if self._ahead:
            self._between_ahead()
            return
        if world.disk.free != FREE and self.rng.random() < 0.7:
            world.disk.free = FREE
        if self.off:
            world.disk.free = FREE
            return
        for kind in self.down:
            if self.rng.random() < 0.3:
                getattr(self, f"_{kind}")()
        if world.shelf is not None:
            for kind in self.store:
                if self.rng.random() < 0.5:
                    getattr(self, f"_{kind}")()

    def remember_mark(self) -> None:
        """A mark that will be stale later."""
        self.old_mark = self.world.disk.content("mark") or self.old_mark

    def _segments(self) -> list[Segment]:
        return [each for each in read_segments(self.world.disk.files()) if each.folder == "journal"]

    def _bit_flip(self) -> None:
        """In data that something whole says was synced: the start must be refused, and is then healed."""
        world = self.world
        if world.expected_refusal is not None:
            return
        segments = [each for each in self._segments() if each.protected > 0]
        if not segments:
            return
        segment = self.rng.choice(segments)
        if not world.disk.has_synced(segment.path, segment.protected):
            said = f"{segment.path} is said to be synced below {segment.protected}, and is not"
            raise Violation("synced_before_leaving", said)
        offset, bit = self.rng.randrange(segment.protected), self.rng.randrange(8)
        world.disk.flip(segment.path, offset, bit)
        world.counted("bit_flip", f"{segment.path} offset {offset} bit {bit}")
        self._refuse(segment.path)
        if world.disk.content(segment.path) is not None:  # power loss may take an unsynced name
            world.disk.flip(segment.path, offset, bit)

    def _segment_missing(self) -> None:
        world = self.world
        segments = self._segments()
        if len(segments) < 3:
            return
        path = self.rng.choice(segments[1:-1]).path
        inode = world.disk._names[path]
        data = world.disk.lose(path)
        assert inode is not None
        assert data is not None
        world.counted("segment_missing", path)
        self._refuse(path, data)
        world.disk._names[path] = world.disk._durable_names[path] = inode

    def _refuse(self, path: str, data: bytes | None = None) -> None:
        """This start must be refused, naming the file and leaving it as it is."""
        world = self.world
        world.expected_refusal = path, data if data is not None else world.disk.files()[path]
        if world._try_start():
            raise AssertionError("a start that must be refused returned")

    def _mark_lost(self) -> None:
        if self.world.disk.lose("mark") is not None:
            self.world.counted("mark_lost")

    def _mark_stale(self) -> None:
        if self.old_mark is not None and self.world.disk.lose("mark") is not None:
            self.world.disk.put("mark", self.old_mark)
            self.world.counted("mark_stale")

    def _epoch_lost(self) -> None:
        if self.world.disk.lose("epoch") is not None:
            self.world.counted("epoch_lost")

    def _checkpoint_damaged(self) -> None:
        """The newest one: an older one or the whole journal stands in for it."""
        disk = self.world.disk
        names = [name for name in sorted(disk.files()) if name.endswith(".rmc")]
        if names:
            disk.flip(names[-1], self.rng.randrange(len(disk.files()[names[-1]])), self.rng.randrange(8))
            self.world.counted("checkpoint_damaged", names[-1])

    def _recovery_crash(self) -> None:
        self.world.disk.cut_power_after(self.rng.choice((0, 1, 2, 3, 4, 6, 8, 10, 14)))
        # If the start needs fewer changes, the power goes soon after it.

    def _recovery_eio(self) -> None:
        call = self.rng.choice(("write_at", "sync", "create", "rename", "sync_folder", "allocate", "read_at"))
        error = errno.EIO if call in ("read_at", "sync") else self.rng.choice((errno.EIO, errno.ENOSPC))
        self.world.fail(Fault(call, nth=self.rng.choice((1, 1, 2, 3)), error=error))

    # -- the store ----------------------------------------------------------------------------

    def _store_lost(self) -> None:
        assert self.world.shelf is not None
        self.world.shelf.write({})
        self.world.counted("store_lost")

    def _store_damaged(self) -> None:
        assert self.world.shelf is not None
        if self.world.shelf.damage(self.rng.choice((b"\xff" * 100, b"not a database at all", b"\0" * 5_000))):
            self.world.counted("store_damaged")

    def _store_behind(self) -> None:
        shelf = self.world.shelf
        assert shelf is not None
        if shelf.older:
            shelf.write(shelf.older)
            self.world.counted("store_behind")
        elif self.world.history.lives and self.world.life.end != "kill":
            # Only what the journal certainly still has: a copy of what a power loss took back later
            # would be no older state but another one.
            segments = read_segments(self.world.disk.files())
            if segments and shelf.applied() <= segments[-1].next_sequence:
                shelf.keep_older()

    def _store_ahead(self) -> None:
        """Killed with a frame in the page cache; the next start loses power behind the store's catching up.

        The store then has what the journal lost.
        """
        self.clients.send()
        self.world.core.write()
        self.world.kill()
        self._ahead = "armed"

    def _between_ahead(self) -> None:
        world = self.world
        assert world.shelf is not None
        if self._ahead == "armed":
            self._ahead = "tried"
            world.trigger = ("create", "journal/", 0)
            world.keep_next = Keep.NOTHING
            return
        self._ahead = ""
        world.keep_next = None
        segments = read_segments(world.disk.files())
        if segments and world.shelf.applied() > segments[-1].next_sequence:
            world.counted("store_ahead", f"{world.shelf.applied()} > {segments[-1].next_sequence}")

    def disarm(self) -> None:
        """Everything works from now on."""
        world = self.world
        world.disk.faults.clear()
        self.armed.clear()
        world.trigger = None
        world.disk.shorten = None
        world.disk.free = FREE
        world.disk.cut_power_after(1 << 60)
        self.aimed = self.after_power = None
        self.slow = 0
        self.heal.clear()
