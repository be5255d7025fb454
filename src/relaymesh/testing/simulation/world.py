"""The world of one run: a clock, a disk, and one node after another that lives on it.

Everything above the ports is the product: node, core, kernel, journal, recovery, checkpoint, archive and
store. The world starts it, lets it die, and tells the trace. It judges nothing but two things that can
only be seen at that moment: a start that is refused without cause, and one that should be and is not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from relaymesh.errors import DirectoryError, JournalDamaged, MeshError
from relaymesh.kernel.commands import OpenMailbox, Subscribe
from relaymesh.kernel.records import (
    BudgetSet,
    SignalReceived,
    StepsAdded,
    StepsEnded,
    TaskClosing,
    TaskSubmitted,
)
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import Answer, Cancel, Fail, Finish, Grow, SetBudget, Signal, Submit
from relaymesh.node.advancing import Advancing
from relaymesh.node.core import Core, Receiver
from relaymesh.node.node import Node
from relaymesh.node.release import Marks, result_needs
from relaymesh.node.tasks import Tasks
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from relaymesh.testing.simulation.history import End, History, Life
from relaymesh.testing.simulation.plan import Plan
from relaymesh.testing.simulation.shelf import StoreShelf
from relaymesh.testing.simulation.trace import Trace
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.witness import Witness, cut_between

LONG_MS = 10_000
"""An advance that is refused for so long is refused for long."""
NOTED = (TaskSubmitted, StepsEnded, StepsAdded, TaskClosing, SignalReceived, BudgetSet)
"""What a client is told of tasks is in one of these."""
STARTS_MAX = 12
FAULTY_STARTS_MAX = 8


class Call:
    """A client waits for the answer to one command: the ticket it holds at the core."""

    __slots__ = ("answered", "needs", "on_answer", "step")

    def __init__(self, step: Step, needs: Marks, on_answer: Callable[[Any, MeshError | None], None]) -> None:
        self.step = step
        self.needs = needs
        self.on_answer = on_answer
        self.answered = False

    def release(self, error: MeshError | None) -> None:
        if not self.answered:
            self.answered = True
            self.on_answer(self.step.result if error is None else None, error or self.step.error)


class LifeEnded(MeshError):
    """What a client is told whose node died before it answered: the outcome is unknown."""

    code = "LIFE_ENDED"


class World:
    """One run. `counts` holds every fault that struck, by kind."""

    def __init__(self, plan: Plan, trace: Trace, folder: Path | None) -> None:
        self.plan = plan
        self.trace = trace
        self.rng = random.Random(f"world-{plan.seed}")
        self.clock = ManualClock()
        self.disk = MemoryDisk(seed=plan.seed)
        self.history = History(plan)
        self.counts: Counter[str] = Counter()
        self.shelf = None if folder is None else StoreShelf(folder)
        self.witness = Witness()
        self.doing = ""
        """The action that is under way: what may be done inside a disk call depends on it."""
        self.on_disk_call: Callable[[str, str], None] = _nothing
        self.on_prepared: Callable[[Submit], None] = _nothing_yet
        """Called when the key of a task was looked up, and nothing is decided yet."""
        self.trigger: tuple[str, str, int] | None = None
        """Cut the power so many changes after this call on a file whose name begins so."""
        self.expected_refusal: tuple[str, bytes] | None = None
        """The segment that was damaged, and what it holds: the next start must name and keep it."""
        self.keep_next: Keep | None = None
        """What of the unsynced survives if the next start loses power; None leaves it to chance."""
        self.postponing = plan.interrupted > 0
        """Whether the thread that settled something may be slow to send what follows from it."""
        self._postponed: list[str] = []
        """Tasks that a slow thread will advance, unless the node dies first."""
        self._owes = False
        """Whether that thread has mail about tasks to send too."""
        self._slow = random.Random(f"slow threads of {plan.seed}")
        self.cuts: set[tuple[int, int]] = set()
        """Between which two kinds of records of tasks a crash came, by their numbers."""
        self._before_crash: list[tuple[int, bytes]] = []
        self._node: Node | None = None
        self._calls: list[Call] = []
        self._attach()

    # -- the node -----------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    @property
    def core(self) -> Core:
        return self.node.core

    @property
    def up(self) -> bool:
        return self._node is not None

    @property
    def life(self) -> Life:
        return self.history.lives[-1]

    def now(self) -> int:
        return self.node.time.now()

    def submit(
        self,
        command: Command[Any],
        on_answer: Callable[[Any, MeshError | None], None],
        *,
        durable: bool = False,
        decide: Callable[[Any], Step] | None = None,
    ) -> Step | None:
        """Decide the command now; the answer comes when the marks have passed. None: refused at once."""
        core = self.core
        try:
            with self.node.payloads.filed(command) if self.node.payloads.is_large(command) else nullcontext():
                step = (decide or core.submit)(command)
        except MeshError as error:
            on_answer(None, error)
            return None
        needs = result_needs(step, waits_for_sync=core.waits_for_sync, durable=durable)
        if isinstance(command, Finish | Fail | Submit | Cancel | Answer | Grow | SetBudget | Signal):
            on_answer = self._noting(step, on_answer)
        call = Call(step, needs, on_answer)
        if core.passed(needs):
            call.release(None)
        else:
            self._calls.append(call)
            core.wait_for(call)
        return step

    def _noting(
        self, step: Step, on_answer: Callable[[Any, MeshError | None], None]
    ) -> Callable[[Any, MeshError | None], None]:
        """Note an answer about a task that leaves before its records are on the disk."""
        sequence, last, what = step.base, -1, ""
        for record in step.records:
            sequence += record.count
            if isinstance(record, NOTED):
                last, what = sequence - 1, type(record).__name__

        def answered(result: Any, error: MeshError | None) -> None:
            if error is None and last >= 0 and not self.witness.is_safe(last):
                self.history.early.append(f"the answer about {what} (sequence {last})")
            on_answer(result, error)

        return answered

    def receive(self, mailbox: str, receiver: Receiver, *, wait: bool = True) -> None:
        """Decide a receive now. The receiver is released when its deliveries may leave."""
        with suppress(MeshError):
            self.core.receive(mailbox, receiver, wait=wait)

    def forgo(self, mailbox: str, receiver: Receiver) -> None:
        with suppress(MeshError):
            self.core.forgo(mailbox, receiver)

    # -- starting -----------------------------------------------------------------------------

    def start(self, before_start: Callable[[], None]) -> None:
        """Start until it stands. `before_start` may damage what lies there, and arm what strikes then."""
        for tries in range(STARTS_MAX):
            if tries < FAULTY_STARTS_MAX:
                before_start()
            else:
                self.disk.faults.clear()
                self.expected_refusal = None
            if self._try_start():
                return
        raise Violation("start_refused", f"the node does not start after {STARTS_MAX} tries without a fault")

    def _try_start(self) -> bool:
        self.doing = "start"
        expected, self.expected_refusal = self.expected_refusal, None
        path = None if self.shelf is None else self.shelf.folder
        try:
            node = Node(
                path,
                self.plan.settings,
                clock=self.clock,
                rng=random.Random(self.rng.getrandbits(32)),
                disk=self.disk,
                background=False,
            )
        except PowerLost:
            self.counted("recovery_crash", f"at {self.disk.lost_at}")
            self._lose_power_or_kill()
            return False
        except DirectoryError as error:
            self._refused(error, expected)
            return False
        finally:
            self.doing = ""
        if expected is not None:
            raise Violation(
                "damage_refused", f"the node started although {expected[0]} holds damaged, acknowledged data"
            )
        self._began(node)
        return True

    def _refused(self, error: DirectoryError, expected: tuple[str, bytes] | None) -> None:
        armed, self.disk.faults = self.disk.faults, []
        if expected is not None:
            self._refused_rightly(error, *expected)
        elif any(fault.nth <= 0 for fault in armed):
            self.counted("recovery_eio", type(error).__name__)
        else:
            raise Violation("start_refused", f"{type(error).__name__}: {error}")

    def _refused_rightly(self, error: DirectoryError, name: str, data: bytes) -> None:
        file = name.rpartition("/")[2]
        number = int(file.partition("-")[0])
        if not isinstance(error, JournalDamaged) or not (
            file in error.message or str(number) in error.message
        ):
            raise Violation("damage_refused", f"{name} is damaged, but the start says: {error}")
        found = self.disk.files().get(name)
        if found is not None and found != data:
            raise Violation("damage_refused", f"the refused start changed {name}")
        self.trace.line(f"start refused: {file}")

    def _lose_power_or_kill(self) -> None:
        keep = self.rng.choice((Keep.NOTHING, Keep.PREFIX, Keep.TORN, Keep.SUBSET, Keep.EVERYTHING))
        keep = self.keep_next or keep
        if keep is Keep.EVERYTHING:
            self.disk = self.disk.kill()
        else:
            self.disk = self.disk.crash(keep, seed=self.rng.getrandbits(32))
            self._end_of_start_by_power_loss()
        self._attach()

    def _end_of_start_by_power_loss(self) -> None:
        """A start that lost power may have lost what the life before it only wrote."""
        if self.history.lives:
            self.life.end = "power_loss"
            self.life.ended = self.history.next_order()

    def _began(self, node: Node) -> None:
        self._node = node
        node.core.on_ready = self._ready
        self._postponed, self._owes = [], False
        self._watch_tasks(node)
        if self._before_crash and node.opened is not None:
            first = node.opened.writer.segment.partition("-")[2].partition(".")[0]
            cut = cut_between(self._before_crash, int(first))
            if cut is not None:
                self.cuts.add(cut)
                self.counts["crash_between_records"] += 1
        node.core.journal = self.witness.tap(node.core.journal, self.disk, self.history.early)
        lives = self.history.lives
        life = Life(len(lives), node.core.epoch, self.history.next_order(), node.time.now())
        lives.append(life)
        self.trace.line(
            f"start {life.number}: epoch {life.epoch}, sequence {node.core.synced}, time {life.started_at}"
        )
        self._open_mailboxes()

    def _open_mailboxes(self) -> None:
        """As a program does after each start: no change where they are there already."""
        for box in self.plan.mailboxes.values():
            command: Command[Any] = OpenMailbox(box.address, box.settings)
            if box.pattern is not None:
                command = Subscribe(box.pattern, box.address, box.settings)
            self.core.submit(command)

    # -- tasks --------------------------------------------------------------------------------

    @property
    def has_tasks(self) -> bool:
        """Whether a task lives: for counting alone."""
        return self._node is not None and bool(self._node.core.kernel.state.board.tasks)

    def _watch_tasks(self, node: Node) -> None:
        """Let other threads run behind the look-up of a key, and count advances that are refused."""
        looked: list[Submit] = []

        def prepare(command: Submit) -> None:
            if looked and looked[-1] is command:
                self.counts["look_again"] += 1
            looked[:] = [command]
            Tasks.prepare(node.tasks, command)
            self.on_prepared(command)

        since: dict[str, int] = {}

        def block(task: str, why: str) -> None:
            now = node.time.now()
            if task not in node.advancing._blocked:
                since[task] = now
            elif now - since.setdefault(task, now) >= LONG_MS:
                since[task] = now + (1 << 60)
                self.counts["refused_for_long"] += 1
            self.counts["advance_refused"] += 1
            Advancing._block(node.advancing, task, why)

        vars(node.tasks)["prepare"] = prepare
        vars(node.advancing)["_block"] = block

    def _ready(self, step: Step) -> None:
        """A step made steps of tasks ready. Their messages may come later than its own records, or never."""
        if not self.postponing or self.doing or self._slow.random() >= self.plan.interrupted:
            self.node.advancing.advance(step)
            return
        self.counts["slow_advance"] += 1
        self._postponed += step.ready or ()
        self._owes = self._owes or step.owes
        if self._slow.random() < 0.5:
            self.core.write()

    def advance_postponed(self) -> None:
        """The slow threads go on."""
        if (self._postponed or self._owes) and (not self.postponing or self._slow.random() < 0.5):
            tasks, self._postponed = self._postponed, []
            owes, self._owes = self._owes, False
            if self.postponing and self._slow.random() < 0.3:
                seconds = self._slow.choice((0.5, 3.0, 16.0))
                self.clock.advance(seconds)  # leases end while it advances
                self.trace.line(f"{seconds} s pass in a slow thread")
            step = Step(0, [], [], [])
            step.ready, step.owes = tasks, owes
            self.node.advancing.advance(step)

    # -- ending -------------------------------------------------------------------------------

    def stop(self) -> None:
        """A graceful stop."""
        self.doing = "stop"
        self.node.close()
        self._ended("graceful")

    def kill(self) -> None:
        """kill -9: the page cache lives on."""
        self.disk = self.disk.kill()
        self._ended("kill")

    def lose_power(self, keep: Keep) -> None:
        self.disk = self.disk.crash(keep, seed=self.rng.getrandbits(32))
        self._ended("power_loss")

    def _ended(self, end: End) -> None:
        self.doing = ""
        self._before_crash = []
        if end != "graceful" and self.has_tasks:
            self._before_crash = self.witness.decided(self.core._encoded)
            self.counts["crash_under_task"] += 1
            self.counts["crash_before_advance"] += bool(self._postponed)
        node, self._node = self.node, None
        if self.shelf is not None and end != "graceful":
            self.shelf.bury(node)
        life = self.life
        life.end, life.ended, life.last_at = end, self.history.next_order(), node.time.now()
        self.trace.line(f"life {life.number} ends: {end}")
        calls, self._calls = self._calls, []
        for call in calls:
            call.release(LifeEnded("the node died before it answered"))
        self._attach()

    def _attach(self) -> None:
        self.disk.watch = self._watch
        self.disk.wall_ns = lambda: self.clock.wall_ms() * 1_000_000
        self.disk.shorten = None
        self.trigger = None
        self.witness.forget()

    def leave(self) -> None:
        """The run is over, however it ended: let go of the store."""
        if self._node is not None and self._node.store is not None:
            self._node.store.close()
        self._node = None

    # -- the disk -----------------------------------------------------------------------------

    def _watch(self, call: str, name: str) -> None:
        if self.trigger is not None:
            wanted, begins, changes = self.trigger
            if call == wanted and name.startswith(begins):
                self.trigger = None
                self.disk.cut_power_after(changes)
        if self._node is not None:
            self.on_disk_call(call, name)

    def fail(self, fault: Fault) -> None:
        self.disk.faults.append(fault)

    def counted(self, kind: str, detail: str = "") -> None:
        """A fault struck."""
        self.counts[kind] += 1
        self.trace.line(f"fault {kind} {detail}".rstrip())

    def tidy_calls(self) -> None:
        """Forget calls that have their answer."""
        self._calls = [call for call in self._calls if not call.answered]


def _nothing(call: str, name: str) -> None:
    pass


def _nothing_yet(command: Submit) -> None:
    pass
