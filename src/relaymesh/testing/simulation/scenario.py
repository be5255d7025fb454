"""One run from its seed: clients, time and faults in turn, then healing, then the verdict."""

from __future__ import annotations

import gc
import hashlib
import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relaymesh.errors import JournalPoisoned, MeshError
from relaymesh.journal.writer import Writer
from relaymesh.kernel.commands import Tick
from relaymesh.kernel.query import TasksToAdvance
from relaymesh.testing.disk import PowerLost
from relaymesh.testing.simulation.checking import check_everything
from relaymesh.testing.simulation.clients import Clients, no_answer
from relaymesh.testing.simulation.faults import Faults
from relaymesh.testing.simulation.hostile import Hostile
from relaymesh.testing.simulation.plan import Plan, make_plan
from relaymesh.testing.simulation.schedule_clients import ScheduleClients
from relaymesh.testing.simulation.task_clients import TaskClients
from relaymesh.testing.simulation.trace import Trace
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.witness import Tapped
from relaymesh.testing.simulation.world import World

MEMORY_FOLDER = Path("/dev/shm")
DRAIN_ROUNDS = 600
HEAD_BYTES = 80
"""More than the head of a frame and the number of its records take."""
COLLECT_EVERY = 50
WAIT_S = 100.0
"""Longer than any deadline of a task."""
TIMES_S = (0.0, 0.001, 0.001, 0.01, 0.05, 0.05, 0.3, 2.5, 12.0)
SETTLED_IN_SYNC = ("send", "send", "send_again", "send_again", "receive", "ack", "nack", "release", "stale")


@dataclass(frozen=True, slots=True)
class Played:
    """What one run showed."""

    seed: int
    digest: str
    lines: int
    faults: Counter[str]
    violation: Violation | None
    trace: list[str]
    messages: int
    deliveries: int
    cuts: frozenset[tuple[int, int]] = frozenset()
    """Between which kinds of records of tasks a crash came."""


class Run:
    """One run: `play` it once."""

    def __init__(self, plan: Plan, trace: Trace, folder: Path | None) -> None:
        self.plan = plan
        self.trace = trace
        self.rng = random.Random(f"run-{plan.seed}")
        self.world = World(plan, trace, folder)
        self.clients = Clients(self.world)
        self.faults = Faults(self.world, self.clients)
        self.hostile = Hostile(self.world, self.clients)
        self.world.on_disk_call = self._during
        self._inside = False
        self._waited = False
        self.tasks = TaskClients(self.clients)
        habits = {name: self.clients.habits[name] for name in plan.habits}
        habits |= {name: self.tasks.habits[name] for name in plan.task_habits}
        self.schedules = ScheduleClients(self.clients, self.tasks.agents if plan.task_habits else [])
        habits |= {name: self.schedules.habits[name] for name in plan.schedule_habits}
        self._actions = [*habits.values(), self._write, self._sync, self._tend, self._pass_time, self._tick]
        others = (14.0, 14.0, 4.0, 10.0, 2.0)
        wanted = (plan.habits, plan.task_habits, plan.schedule_habits)
        self._weights = [*(weight for some in wanted for weight in some.values()), *others]

    def play(self) -> None:
        self._start()
        for _ in range(self.plan.actions):
            self._do(self.hostile.act)
            self._do(self.world.advance_postponed)
            self._do(self.tasks.talk.act)
            faulty = self.rng.random() < self.plan.fault_every
            self._do(self.faults.strike if faulty else self.rng.choices(self._actions, self._weights)[0])
            if not faulty:
                self.faults.after_action()
        self.heal()
        self.tasks.count_late()
        check_everything(self.world)
        self.trace.line(f"disk {platter(self.world.disk.files())}")

    # -- one action ---------------------------------------------------------------------------

    def _do(self, action: Callable[[], None]) -> None:
        """An action, and the end of the life if it brought that about."""
        world = self.world
        try:
            action()
        except PowerLost:
            self.faults.power_lost()
        except JournalPoisoned:
            self.faults.poisoned()
        finally:
            world.doing = ""
        if world.up and world.core.failure is not None:
            self.faults.poisoned()
        if not world.up:
            self._start()

    def _start(self) -> None:
        while True:
            self.clients.node_ended()
            if self.world.history.lives:
                self.world.clock.advance(self.rng.choice((0, 0.1, 3, 100)))
            try:
                self.world.start(self.faults.between)
                return
            except PowerLost:
                self.faults.power_lost()
            except JournalPoisoned:
                self.faults.poisoned()

    def _write(self) -> None:
        self.world.core.write()

    def _sync(self) -> None:
        self.world.doing = "sync"
        self.world.core.sync_written()
        self.world.tidy_calls()

    def _tend(self) -> None:
        self.world.doing = "tend"
        try:
            self.world.node.tend()
        except MeshError as error:
            if self.world.core.failure is not None:
                raise
            self.trace.line(f"no checkpoint: {error.code}")
        self.faults.remember_mark()

    def _tick(self) -> None:
        self.world.submit(Tick(), no_answer)

    def _pass_time(self) -> None:
        seconds = self.rng.choice(TIMES_S)
        self.world.clock.advance(seconds)
        self.trace.line(f"{seconds} s pass")

    # -- while the disk is busy ---------------------------------------------------------------

    def _during(self, call: str, name: str) -> None:
        """Clients go on while a sync or a checkpoint is under way."""
        world = self.world
        syncing = world.doing == "sync" and call == "sync" and name.startswith("journal/")
        drawing = world.doing == "checkpoint" and call == "write_at" and name.startswith("checkpoints/")
        if self._inside or not (syncing or drawing):
            return
        self._inside = True
        try:
            if syncing and self.faults.slow:
                self.faults.slow -= 1
                world.clock.advance(self.rng.choice((0.5, 3.0, 20.0)))
                world.counted("slow_sync")
            if self.rng.random() < self.plan.chattiness:
                self._chat(writing=syncing)
        finally:
            self._inside = False

    def _chat(self, *, writing: bool) -> None:
        world = self.world
        journal = world.core.journal
        assert isinstance(journal, Tapped)
        if journal.writer._short_of_space:
            return  # asking for room would wait for this very sync
        stopping = vars(world.core)
        stopping["_stop_broken"] = _later  # it waits for this very sync
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.clients.habits[self.rng.choice(SETTLED_IN_SYNC)]()
                world.counts["during_sync" if writing else "during_checkpoint"] += 1
        finally:
            del stopping["_stop_broken"]
        if writing and self._fits(journal.writer) and self.rng.random() < 0.5:
            world.core.write()

    def _fits(self, writer: Writer) -> bool:
        """A frame that needs no rotation: that would wait for this very sync."""
        size = HEAD_BYTES + sum(map(len, self.world.core._encoded))
        return writer._live.offset + size <= self.plan.settings.journal.segment_bytes_max

    # -- healing ------------------------------------------------------------------------------

    def heal(self) -> None:
        """All faults off, time passes, everything is received and acked: it must come to an end."""
        self.trace.line("healing")
        self.faults.off = True
        self.faults.disarm()
        world, clients = self.world, self.clients
        if world.core.failure is not None:
            self._do(self._write)
        clients.held.clear()
        while clients.waiting:
            clients.forgo()
        world.postponing = False
        world.advance_postponed()
        self.tasks.join_all()
        self.schedules.pause_all()
        for number in range(DRAIN_ROUNDS):
            if number == DRAIN_ROUNDS // 2:
                self.tasks.give_up(self._to_advance())
            if self._drain_once() and self._times_passed():
                break
        else:
            raise Violation("progress", f"after all faults were healed these never end: {self._left()}")
        world.core.sync()
        world.tidy_calls()

    def _times_passed(self) -> bool:
        """Whether every deadline of a task that still waits has passed too; if not, time goes on."""
        world = self.world
        if self._waited or not world.history.tasks:
            return True
        self._waited = True
        world.clock.advance(WAIT_S)
        world.node.tend()
        return False

    def _drain_once(self) -> bool:
        """One round of receiving and settling; whether nothing is left."""
        world, clients = self.world, self.clients
        for mailbox in self.plan.mailboxes:
            clients.take(mailbox, 10)
        world.core.sync()
        for delivery in list(clients.held):
            if delivery.step:
                self.tasks.finish(delivery)
            else:
                clients.finish(delivery, durable=True)
        halted = any(box.settings.halt_on_dead_letter for box in self.plan.mailboxes.values())
        full = self.plan.task_habits and any(
            box.settings.dead_letters_max < 100 for box in self.plan.mailboxes.values()
        )  # steps are not sent to a mailbox whose dead letters are too many
        if (halted or full) and (letters := clients.letters()):
            clients.put_back(letters, purge=True)
        world.node.tend()
        world.core.sync()
        quiet = self.tasks.talk.heal()  # last of all: what was settled here may let a step begin to wait
        if quiet and not self._left() and not self._to_advance():
            return True
        next_at: int = world.core.read(lambda kernel: kernel.next_event_at)
        most_ms = 5_000 if self.plan.task_habits else 60_000
        world.clock.advance(max(1, min(next_at - world.now(), most_ms)) / 1000)
        return False

    def _to_advance(self) -> list[str]:
        waiting: list[str] = self.world.core.read(lambda kernel: kernel.look(TasksToAdvance()))
        return waiting

    def _left(self) -> list[tuple[str, int]]:
        left: list[tuple[str, int]] = self.world.core.read(
            lambda kernel: [
                (box.address, sequence) for box in kernel.state.mailboxes.values() for sequence in box.entries
            ]
        )
        return left


def _later() -> None:
    """A kernel that broke inside a sync: the next call finds it broken, and stops the core then."""


def platter(files: dict[str, bytes]) -> str:
    """A hash of every byte on the disk: two runs of one seed also write the same."""
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(files):
        found.update(name.encode())
        found.update(files[name])
    return found.hexdigest()


def run_seed(seed: int, *, keep_trace: bool = False) -> Played:
    """Play one seed. Never raises: what goes wrong is in the answer."""
    with _folder() as folder:
        return _run_seed(seed, folder, keep_trace=keep_trace)


def run_seeds(seeds: Iterator[int] | range) -> Iterator[Played]:
    """Play many seeds, one after the other, in one folder."""
    with _folder() as folder:
        for number, seed in enumerate(seeds, 1):
            yield _run_seed(seed, folder)
            if number % COLLECT_EVERY == 0:
                gc.collect()


def _run_seed(seed: int, folder: Path, *, keep_trace: bool = False) -> Played:
    trace = Trace(keep_all=keep_trace)
    plan = make_plan(seed)
    place = folder / f"seed-{seed}" if plan.with_store else None
    run = Run(plan, trace, place)
    violation = None
    try:
        run.play()
    except Violation as found:
        violation = found
    except Exception as error:
        violation = Violation("no_surprises", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    finally:
        run.world.leave()
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
    if violation is not None:
        violation.seed = seed
        violation.trace = trace.lines[-20:]
        trace.line(f"violation {violation.invariant}")
    history = run.world.history
    return Played(
        seed,
        trace.digest,
        trace.count,
        run.world.counts,
        violation,
        trace.lines if keep_trace else violation.trace if violation else [],
        len(history.sent),
        len(history.deliveries),
        frozenset(run.world.cuts),
    )


@contextmanager
def _folder() -> Iterator[Path]:
    """A private folder for stores, in memory where there is such a place; logs are silent meanwhile."""
    logger = logging.getLogger("relaymesh")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    collecting = gc.isenabled()
    gc.disable()  # it would look through the same few objects again and again
    base = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    try:
        with tempfile.TemporaryDirectory(prefix="relaymesh-simulation-", dir=base) as folder:
            yield Path(folder)
    finally:
        logger.setLevel(level)
        if collecting:
            gc.enable()
