"""The world of one run: a clock, a disk, and one node after another that lives on it.

Everything above the ports is the product: node, core, kernel, journal, recovery, checkpoint, archive and
store. The world starts it, lets it die, and tells the trace. It judges nothing but two things that can
only be seen at that moment: a start that is refused without cause, and one that should be and is not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from relaymesh.errors import DirectoryError, JournalDamaged, MeshError
from relaymesh.kernel.commands import Command, OpenMailbox, Subscribe
from relaymesh.kernel.step import Step
from relaymesh.node.core import Core, Receiver
from relaymesh.node.node import Node
from relaymesh.node.release import Marks, result_needs
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from relaymesh.testing.simulation.history import End, History, Life
from relaymesh.testing.simulation.plan import Plan
from relaymesh.testing.simulation.shelf import StoreShelf
from relaymesh.testing.simulation.trace import Trace
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.witness import Witness

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
        self.trigger: tuple[str, str, int] | None = None
        """Cut the power so many changes after this call on a file whose name begins so."""
        self.expected_refusal: tuple[str, bytes] | None = None
        """The segment that was damaged, and what it holds: the next start must name and keep it."""
        self.keep_next: Keep | None = None
        """What of the unsynced survives if the next start loses power; None leaves it to chance."""
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
    ) -> Step | None:
        """Decide the command now; the answer comes when the marks have passed. None: refused at once."""
        core = self.core
        try:
            step = core.submit(command)
        except MeshError as error:
            on_answer(None, error)
            return None
        needs = result_needs(step, waits_for_sync=core.waits_for_sync, durable=durable)
        call = Call(step, needs, on_answer)
        if core.passed(needs):
            call.release(None)
        else:
            self._calls.append(call)
            core.wait_for(call)
        return step

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
        node.core.journal = self.witness.tap(node.core.journal, self.disk)
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
