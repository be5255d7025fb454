"""The torture itself: workers started and ended by plan, then everything is drained and judged; in rounds.

A round is at most a minute of cycles on the one data directory, a drain, and the checker's findings; then its
ledgers are dropped, unless they are to be kept. So memory and ledgers stay small however long it takes.
"""

from __future__ import annotations

import shlex
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from relaymesh.node.settings import Durability
from relaymesh.testing.torture.checker import RULES, Findings, Standing, bring_up_to_date, judge, read_books
from relaymesh.testing.torture.child import Child, Ended, Silent
from relaymesh.testing.torture.plan import Cycle, cycles
from relaymesh.testing.torture.worker import DRAIN_S_MAX, Orders

READY_S_MAX = 60.0
STOP_S_MAX = 60.0
ROUND_S = 60.0
CHECKPOINT_S = 0.03
DISK_BYTES_MAX = 1_500_000_000
"""Sends are slowed down so that data and ledgers stay below this at the end."""
BYTES_PER_MESSAGE = 2_500
"""Believed until it can be measured."""
PER_SECOND_MIN, PER_SECOND_MAX = 50.0, 100_000.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is asked for."""

    data: Path
    ledgers: Path
    seconds: float
    seed: int
    tag: str
    """Stands in every message id, so that two tortures of one directory do not meet each other's messages."""
    workers: int = 4
    durability: Durability = "synced"
    keep: bool = False
    remote: bool = False
    """Through a server, which is what is killed; its clients stay."""
    cycles_min: int = 12
    """Cycles to do however slow the machine is: the first six hold every deed once."""
    disk_bytes_max: int = DISK_BYTES_MAX

    def again(self) -> str:
        """The command that takes the same plan once more."""
        words = ["relaymesh", "torture", "--seed", str(self.seed), "--minutes", f"{self.seconds / 60:g}"]
        words += ["--workers", str(self.workers), "--durability", self.durability]
        words += ["--remote"] if self.remote else []
        return shlex.join(words)


@dataclass
class Verdict:
    """What was done, what it cost, and what was found."""

    found: Findings = field(default_factory=Findings)
    kills: int = 0
    stops: int = 0
    """SIGSTOP and, after the lease, SIGCONT."""
    restarts: int = 0
    """Ends that were asked for: graceful ones, and those that give nothing back."""
    cycles: int = 0
    rounds: int = 0
    recoveries_ms: list[float] = field(default_factory=list)
    """Inside `Mesh(path)`: lock, recovery, replay, store, first synced record; not the interpreter."""
    failures: list[str] = field(default_factory=list)
    """A worker that did not start, did not stop, or ended by itself."""
    disk_bytes: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def good(self) -> bool:
        return not self.found.broken and not self.failures

    def recovery_ms(self, share: float) -> float:
        """0.5 for the median, 1 for the longest."""
        ordered = sorted(self.recoveries_ms)
        if not ordered:
            return 0.0
        if share == 0.5:
            return round(statistics.median(ordered), 1)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

    def broken(self) -> dict[str, int]:
        return {rule: self.found.broken[rule] for rule in RULES}


def nobody_asked(_verdict: Verdict, _seconds: float) -> None:
    """Progress that is not shown."""


class Failed(Exception):
    """A worker did what it must not: nothing more is to be learned from going on."""


class Torture:
    """One run. `interrupt` ends it early, with a verdict on what was done so far."""

    def __init__(self, settings: Settings, tell: Callable[[Verdict, float], None] | None = None) -> None:
        """`tell` is called after every cycle, with the seconds that have passed."""
        self.settings = settings
        self.verdict = Verdict()
        self._tell = tell or nobody_asked
        self._standing = Standing()
        self._unknown: dict[str, list[str]] = {}
        self._run = 0
        self._spawned = 0
        self._spare: Child | None = None
        self._child: Child | None = None
        self._began = time.monotonic()
        self._interrupted = False

    def interrupt(self) -> None:
        """From a signal handler: the worker that runs is killed, and what follows is the drain."""
        self._interrupted = True

    def run(self) -> Verdict:
        self._began = time.monotonic()
        plan = cycles(self.settings.seed)
        self.settings.ledgers.mkdir(parents=True, exist_ok=True)
        try:
            self._take_stock()
            while not self._over():
                self._round(plan)
        except Failed as failed:
            self.verdict.failures.append(str(failed))
            self._last_look()
        finally:
            for child in (self._child, self._spare):
                if child is not None:
                    child.end()
                    child.forget_if_silent()
            self.verdict.seconds = self._elapsed()
            self.verdict.interrupted = self._interrupted
            self.verdict.disk_bytes = self._disk_bytes()
        return self.verdict

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _over(self) -> bool:
        return (
            self._interrupted or bool(self.verdict.found.broken) or self._elapsed() >= self.settings.seconds
        )

    def _take_stock(self) -> None:
        """A mesh that is there already: drain what an earlier torture left in it, and count from there."""
        if not (self.settings.data / "journal").is_dir():
            return
        self._drain()
        bring_up_to_date(self._standing, read_books(self.settings.ledgers))
        self._drop_ledgers()

    # -- a round

    def _round(self, plan: Iterator[Cycle]) -> None:
        ends = min(self._elapsed() + ROUND_S, self.settings.seconds)
        per_second = self._per_second()
        while self._goes_on(ends):
            self._cycle(next(plan), per_second)
            self.verdict.cycles += 1
            self._tell(self.verdict, self._elapsed())
        self._drain()
        self._judge()
        self.verdict.rounds += 1

    def _goes_on(self, ends: float) -> bool:
        few = self.verdict.cycles < self.settings.cycles_min
        return not self._interrupted and (few or self._elapsed() < ends)

    def _last_look(self) -> None:
        """After a worker failed: drain what can be drained, so that there is more to say than that."""
        try:
            self._drain()
        except Failed as failed:
            self.verdict.failures.append(str(failed))
        self._judge()

    def _judge(self) -> None:
        """Find what was broken; drop the ledgers of a round in which nothing was."""
        self.verdict.found += judge(read_books(self.settings.ledgers), self._standing)
        self.verdict.disk_bytes = self._disk_bytes()
        self._unknown.clear()
        if self.verdict.good and not self.settings.keep:
            self._drop_ledgers()
        elif self.verdict.good:
            self._put_away()

    def _drop_ledgers(self) -> None:
        """Not what a worker that is there wrote to stderr: the spare one has it open."""
        for file in self.settings.ledgers.glob("[0-9]*"):
            file.unlink()

    def _put_away(self) -> None:
        """Kept ledgers of a round in a folder of their own, so that the next round is judged by itself."""
        folder = self.settings.ledgers / f"round-{self.verdict.rounds}"
        folder.mkdir()
        for file in self.settings.ledgers.glob("[0-9]*"):
            file.rename(folder / file.name)

    def _disk_bytes(self) -> int:
        folders = (self.settings.data, self.settings.ledgers)
        return sum(file.lstat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())

    def _per_second(self) -> float:
        """What the disk has room for in the time that is left."""
        messages, used = self.verdict.found.messages, self.verdict.disk_bytes
        each = max(500.0, used / messages) if messages else BYTES_PER_MESSAGE
        left_s = max(1.0, self.settings.seconds - self._elapsed())
        room = (self.settings.disk_bytes_max - used) / each / left_s
        return min(PER_SECOND_MAX, max(PER_SECOND_MIN, room))

    # -- a cycle

    def _cycle(self, cycle: Cycle, per_second: float) -> None:
        with self._worker(self._orders(cycle, per_second)) as child:
            getattr(self, f"_{cycle.deed}")(child, cycle)
        self._note_unknown(self._run)

    @contextmanager
    def _worker(self, orders: Orders) -> Iterator[Child]:
        """A worker that has begun. It is gone at the end, whatever happens; its own fault is `Failed`."""
        child, self._spare = self._spare or self._spawn(), None
        self._child = child
        try:
            child.begin(orders)
            self._spare = self._spawn()
            yield child
        except Ended:
            raise self._fault(child, "ended by itself") from None
        except Silent as silent:
            what = "did not start" if str(silent) in ("opening", "ready") else f"came to no {silent}"
            raise self._fault(child, what, f"within {READY_S_MAX:g} s") from None
        finally:
            child.end()
            self._child = None
        child.forget_if_silent()

    def _spawn(self) -> Child:
        """A process for the next cycle: its interpreter starts while this one works."""
        self._spawned += 1
        return Child(self.settings.ledgers / f"stderr-{self._spawned:06d}")

    def _orders(self, cycle: Cycle | None, per_second: float = PER_SECOND_MAX) -> Orders:
        """For a cycle, or for the drain."""
        self._run += 1
        settings = self.settings
        return Orders(
            kind="drain" if cycle is None else "loop" if cycle.on_a_loop else "plain",
            data=str(settings.data),
            ledgers=str(settings.ledgers),
            run=self._run,
            tag=settings.tag,
            seed=str(settings.seed),
            workers=settings.workers,
            per_second=per_second,
            durability=settings.durability,
            small=cycle is not None and cycle.small,
            checkpoints=cycle is not None and cycle.deed == "kill_checkpoint",
            unknown=[] if cycle is None else list(self._unknown.values()),
        )

    def _fault(self, child: Child, what: str, more: str = "") -> Failed:
        code = child.end()
        words = " ".join(filter(None, [f"worker {self._run} {what}", more, f"(exit code {code})"]))
        return Failed(f"{words}: {child.errors() or 'it said nothing'}")

    def _ready(self, child: Child) -> None:
        fields = child.hear("ready", READY_S_MAX)
        self.verdict.recoveries_ms.append(fields["recovery_ms"])

    def _wait(self, child: Child, seconds: float) -> None:
        """Let it work. It must not end by itself."""
        deadline = time.monotonic() + seconds
        while not self._interrupted and (left := deadline - time.monotonic()) > 0:
            if child.wait(min(left, 0.2)) is not None:
                raise Ended

    def _kill(self, child: Child) -> None:
        if child.wait(0) is not None:
            raise Ended
        child.signal(signal.SIGKILL)
        if child.end() != -signal.SIGKILL:
            raise Ended
        self.verdict.kills += 1

    # -- what is done to a worker

    def _kill_at_work(self, child: Child, cycle: Cycle) -> None:
        self._ready(child)
        self._wait(child, cycle.work_s)
        self._kill(child)

    def _kill_opening(self, child: Child, cycle: Cycle) -> None:
        """In the middle of recovery, mostly."""
        child.hear("opening", READY_S_MAX)
        typical = statistics.median(self.verdict.recoveries_ms or [50.0]) / 1000
        self._wait(child, cycle.share * typical * 1.2)
        self._kill(child)

    def _kill_checkpoint(self, child: Child, cycle: Cycle) -> None:
        self._ready(child)
        for _ in range(1 + int(cycle.work_s * 10)):
            child.hear("checkpoint", READY_S_MAX)
        self._wait(child, cycle.share * CHECKPOINT_S)
        self._kill(child)

    def _pause(self, child: Child, cycle: Cycle) -> None:
        """Longer than every lease it holds. What it settles afterwards must be refused."""
        self._ready(child)
        self._wait(child, cycle.work_s)
        child.signal(signal.SIGSTOP)
        time.sleep(cycle.pause_s)
        child.signal(signal.SIGCONT)
        self.verdict.stops += 1
        self._wait(child, 0.3)
        if cycle.then_kill:
            self._kill(child)
        else:
            self._end_well(child, graceful=True)

    def _stop(self, child: Child, cycle: Cycle) -> None:
        self._ready(child)
        self._wait(child, cycle.work_s)
        self._end_well(child, graceful=True)

    def _restart(self, child: Child, cycle: Cycle) -> None:
        self._ready(child)
        self._wait(child, cycle.work_s)
        self._end_well(child, graceful=False)

    def _end_well(self, child: Child, *, graceful: bool) -> None:
        if graceful:
            child.signal(signal.SIGTERM)
        else:
            child.let_go()
        code = child.wait(STOP_S_MAX)
        if code is None:
            raise self._fault(child, "did not stop", f"within {STOP_S_MAX:g} s")
        if code != 0:
            raise Ended
        self.verdict.restarts += 1

    # -- between cycles, and at the end

    def _note_unknown(self, run: int) -> None:
        """Which sends have no outcome yet. Replies are not sent again: they belong to a settle."""
        for file in sorted(self.settings.ledgers.glob(f"{run:06d}.*")):
            with file.open(encoding="ascii", newline="\n") as lines:
                for line in lines:
                    if line[0] not in "IRX" or not line.endswith("\n"):
                        continue
                    words = line.split()
                    if words[0] != "I":
                        self._unknown.pop(words[1], None)
                    elif not words[1].startswith("re-"):
                        self._unknown[words[1]] = words

    def _drain(self) -> None:
        limit_s = DRAIN_S_MAX + STOP_S_MAX
        with self._worker(self._orders(None)) as child:
            self._ready(child)
            code = child.wait(limit_s)
            if code is None:
                raise self._fault(child, "did not drain", f"within {limit_s:g} s")
            if code != 0:
                raise Ended
