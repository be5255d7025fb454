"""What happens at the wrong time."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relaymesh.kernel.entry import Lease
from relaymesh.kernel.pending import DELAYED
from relaymesh.kernel.state import State
from relaymesh.kernel.timers import DueTimes, LeaseClock
from relaymesh.node.clock import Clock, MeshTime, SuspendGuard
from relaymesh.testing.planted.bug import Original, at, plant

EARLY_MS = 25


@plant(at(DueTimes, "pop_due"), broken="a delayed message is delivered 25 ms early")
def early_delayed_delivery(original: Original, due: DueTimes, now: int) -> Iterator[Any]:
    found: Iterator[Any] = original(due, now + EARLY_MS)
    return found


@plant(at(LeaseClock, "pop_expired"), broken="a lease ends 25 ms early")
def lease_cut_short(original: Original, clock: LeaseClock, now: int) -> list[Lease]:
    expired: list[Lease] = original(clock, now + EARLY_MS)
    return expired


@plant(at(State, "go_live"), broken="a start delivers what was delayed")
def delay_forgotten_at_start(original: Original, state: State) -> None:
    for mailbox in state.mailboxes.values():
        for entry in mailbox.entries.values():
            if entry.state == DELAYED and entry.ready_at == entry.due_at:
                entry.ready_at = entry.due_at = state.now
    original(state)


@plant(at(MeshTime, "now"), broken="delays and leases run by the wall clock, which may jump")
def wall_clock_trusted(original: Original, mesh_time: MeshTime) -> int:
    return mesh_time._clock.wall_ms()


@plant(
    at(MeshTime, "__init__"), broken="after a start with a clock set back, time stands still", first_seed=24
)
def time_back_at_start(
    original: Original, mesh_time: MeshTime, clock: Clock, last_record_ms: int = 0
) -> None:
    original(mesh_time, clock, 0)


@plant(at(SuspendGuard, "look"), broken="holders that were asleep with the machine lose their leases at once")
def no_round_after_suspend(original: Original, guard: SuspendGuard) -> None:
    pass
