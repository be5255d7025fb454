"""Goes through the crash states of all lives, each once, until enough different ones were recovered."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from relaymesh.testing.enumeration.checking import check, check_and_go_on
from relaymesh.testing.enumeration.lives import LIVES, Life, Misbehaved, recorded, recovery_recorded
from relaymesh.testing.enumeration.plain import PlainDisk
from relaymesh.testing.enumeration.recording import Promise
from relaymesh.testing.enumeration.states import CrashState, Moment, Thinning, crash_states, moments

__all__ = ["Failure", "Found", "replay", "search"]

GO_ON_EVERY = 8
"""One state in so many is also written to, verified and recovered again."""
INSIDE_EVERY = 500
"""The recovery of one state in so many is crashed too, at each of its own calls."""
INSIDE_STRIDE = 16
STRIDES = (64, 8, 1)
SALT = 0x5EED


@dataclass(frozen=True, slots=True)
class Failure:
    """A state that was not recovered as promised; `place` is what `--replay` takes.

    silent: the recovery succeeded, with data that is not what was promised.
    """

    place: str
    why: str
    silent: bool


@dataclass(slots=True)
class Found:
    """considered: states built, the same ones again included. by_life: different ones, by what led there."""

    considered: int = 0
    recoveries: int = 0
    digests: set[int] = field(default_factory=set)
    by_life: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.considered += other.considered
        self.recoveries += other.recoveries
        self.digests |= other.digests
        self.by_life += other.by_life
        self.failures += other.failures


def search(states: int, *, share: int = 0, shares: int = 1, failures_max: int = 5) -> Found:
    """Recover that many different states, of the `share`-th part of all of them."""
    return _Search(share, shares, failures_max).run(states)


class _Search:
    def __init__(self, share: int, shares: int, failures_max: int) -> None:
        self.found = Found()
        self._share, self._shares = share, shares
        self._failures_max = failures_max
        self._checked: set[tuple[int, Promise]] = set()

    def run(self, states: int) -> Found:
        tasks = [(life, moment) for life in LIVES for moment in moments(recorded(life))]
        random.Random(SALT).shuffle(tasks)  # any part of the run touches every life
        for thinning in _thinnings():
            before = len(self.found.digests)
            for life, moment in tasks:
                for state in crash_states(moment, life.pages, thinning):
                    if state.digest % self._shares == self._share:
                        self._look_at(life, moment, state)
                if self._is_enough(states):
                    return self.found
            if thinning.seed and len(self.found.digests) == before:
                return self.found  # nothing new is left to find
        return self.found

    def _is_enough(self, states: int) -> bool:
        return len(self.found.digests) >= states or len(self.found.failures) >= self._failures_max

    def _look_at(self, life: Life, moment: Moment, state: CrashState) -> None:
        if not self._is_new(life.name, state, moment.promise):
            return
        place = f"{life.name}:{moment.call}:{state.digest:x}"
        self._recover(life, state, moment.promise, place)
        if state.digest // self._shares % INSIDE_EVERY == 0:
            self._crash_inside(life, state, moment.promise, place)

    def _is_new(self, kind: str, state: CrashState, promise: Promise) -> bool:
        self.found.considered += 1
        if (state.digest, promise) in self._checked:
            return False
        self._checked.add((state.digest, promise))
        if state.digest not in self.found.digests:
            self.found.digests.add(state.digest)
            self.found.by_life[kind] += 1
        return True

    def _recover(self, life: Life, state: CrashState, promise: Promise, place: str) -> None:
        self.found.recoveries += 1
        try:
            if state.digest % GO_ON_EVERY == 0:
                self.found.recoveries += 1
                check_and_go_on(life, state.files, promise, state.digest)
            else:
                check(life, state.files, promise, state.digest)
        except Misbehaved as wrong:
            self.found.failures.append(Failure(place, str(wrong), wrong.silent))

    def _crash_inside(self, life: Life, state: CrashState, promise: Promise, place: str) -> None:
        for moment, inner in _inside(life, state, promise):
            if self._is_new("inside a recovery", inner, moment.promise):
                inner_place = f"{place}/{moment.call}:{inner.digest:x}"
                self._recover(life, inner, moment.promise, inner_place)


def _thinnings() -> Iterator[Thinning]:
    """First every life coarsely, then densely, then other samples of what is too much to try wholly."""
    yield from (Thinning(stride) for stride in STRIDES)
    yield from (Thinning(1, seed) for seed in itertools.count(1))


def _inside(life: Life, state: CrashState, promise: Promise) -> Iterator[tuple[Moment, CrashState]]:
    """The crash states of the recovery of a crash state."""
    try:
        recording = recovery_recorded(life, PlainDisk(state.files, state.digest), promise)
    except Exception:
        return  # recovering this state fails without a second crash, and is reported as such
    for moment in moments(recording):
        for inner in crash_states(moment, life.pages, Thinning(INSIDE_STRIDE)):
            yield moment, inner


def replay(place: str) -> Failure | None:
    """Build one state again and recover it; the answer says what is wrong with it, None that nothing is."""
    outer, _, inner = place.partition("/")
    name, call, wanted = outer.split(":")
    life = next(each for each in LIVES if each.name == name)
    moment = moments(recorded(life))[int(call)]
    state = _find(life, moment, wanted)
    if inner:
        inner_call, wanted = inner.split(":")
        moment, state = next(
            (each, found)
            for each, found in _inside(life, state, moment.promise)
            if each.call == int(inner_call) and found.digest == int(wanted, 16)
        )
    try:
        check_and_go_on(life, state.files, moment.promise, state.digest)
    except Misbehaved as wrong:
        return Failure(place, str(wrong), wrong.silent)
    return None


def _find(life: Life, moment: Moment, wanted: str) -> CrashState:
    for thinning in itertools.islice(_thinnings(), 100):
        for state in crash_states(moment, life.pages, thinning):
            if state.digest == int(wanted, 16):
                return state
    raise LookupError(f"no crash state {wanted} of {life.name} behind call {moment.call}")
