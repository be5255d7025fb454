"""The power goes at any call of either disk, or a call fails: nothing promised is lost in either."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from relaymesh.errors import JournalDamaged, MeshError
from relaymesh.journal import (
    restore_from,
    verify,
)
from relaymesh.journal.lockstep import Syncing
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from tests.journal.mirrored import (
    CRASHES,
    LOCK_TEXTS,
    Pair,
    agreed,
    damaged_pair,
)
from tests.journal.small import Ledger, state_of

pytestmark = pytest.mark.slow


def cut_short(struck: str, new_pair: Callable[[], Pair]) -> Iterator[Pair]:
    """One life after the other, each cut at one call of that disk later, until one comes to its end."""
    cuts, done = 0, False
    while not done:
        pair = new_pair()
        getattr(pair, struck).cut_power_after(cuts)
        try:
            pair.life()
            done = True
        except PowerLost:
            pass
        yield pair
        cuts += 1


@pytest.mark.parametrize("syncing", ["mirror first", "primary first"])
@pytest.mark.parametrize("struck", ["primary", "mirror"])
def test_power_lost_at_any_call_of_either_disk_loses_nothing_in_either(struck: str, syncing: Syncing) -> None:
    cuts = 0
    for pair in cut_short(struck, lambda: Pair(syncing=syncing)):
        for keep, seed in CRASHES:
            after = pair.crash(keep, seed)
            after.check_mirror_alone()
            after.start()
            after.fill(1)
            after.check_same()
            assert verify(after.primary).damage == verify(after.mirror).damage == []
        cuts += 1
    assert cuts > 80


@pytest.mark.parametrize("struck", ["primary", "mirror"])
def test_power_lost_at_any_call_of_a_recovery_loses_nothing_in_either(struck: str) -> None:
    for cut in range(3, 90, 9):
        pair = Pair()
        pair.primary.cut_power_after(cut)
        with pytest.raises(PowerLost):
            pair.life()
        dead = pair.crash(Keep.TORN, cut)
        step, done = 0, False
        while not done:
            again = Pair(MemoryDisk(dead.primary.files()), MemoryDisk(dead.mirror.files()))
            again.ledger = Ledger(list(dead.ledger.tried), dead.ledger.promised)
            getattr(again, struck).cut_power_after(step)
            try:
                again.start()
                done = True
            except PowerLost:
                pass
            for keep in (Keep.NOTHING, Keep.EVERYTHING, Keep.SUBSET):
                after = again.crash(keep, step)
                after.check_mirror_alone()
                after.start()
                after.check_same()
            step += 1
        assert step > 5


def test_power_lost_while_a_new_mirror_is_filled_never_makes_a_mirror_that_lies() -> None:
    ledger, files = Ledger(), MemoryDisk()
    writer = ledger.start(files)
    for _ in range(12):
        ledger.append(writer)
    ledger.checkpoint(files, writer)
    writer.close()
    ledger.promised = len(ledger.tried)
    refused = step = 0
    done = False
    while not done:
        pair = Pair(MemoryDisk(files.files()))
        pair.ledger = Ledger(list(ledger.tried), ledger.promised)
        pair.mirror.cut_power_after(step)
        try:
            pair.start()
            done = True
        except PowerLost:
            pass
        after = pair.crash(Keep.SUBSET, step)
        copy = MemoryDisk(after.mirror.files())
        if copy.exists("incomplete"):
            refused += 1
            with pytest.raises(JournalDamaged, match="not complete"):
                state_of(copy)
        else:
            assert state_of(copy) in ([], ledger.tried), "all of it, or a mirror that has not begun"
        after.start()
        after.check_same()
        step += 1
    assert refused > 10


def test_every_nth_failing_call_of_a_required_mirror_loses_nothing() -> None:
    """Once and for good, EIO and a full disk, in a life that goes on in a new process."""
    for call in ("write_at", "sync", "create", "rename", "sync_folder", "remove", "allocate", "truncate"):
        for error in (errno.EIO, errno.ENOSPC):
            nth, struck = 1, True
            while struck:
                pair = Pair()
                fault = Fault(call, nth=nth, error=error)
                pair.mirror.faults.append(fault)
                try:
                    pair.life()
                except (MeshError, OSError):
                    pass
                struck = fault.nth <= 0
                pair.mirror.faults.clear()
                after = pair.crash(Keep.NOTHING, nth)
                after.check_mirror_alone()
                after.start()
                after.fill(1)
                after.check_same()
                nth += 3


def test_power_lost_at_any_call_of_a_best_effort_pair_loses_nothing_of_the_primary() -> None:
    for struck in ("primary", "mirror"):
        cuts = 0
        for pair in cut_short(struck, lambda: Pair(mode="best_effort")):
            for keep, seed in CRASHES:
                after = pair.crash(keep, seed)
                after.start()
                after.fill(1)
                assert after.writer.mirror_state == "in step"
                after.check_same()
                after.check_mirror_alone()
            cuts += 1
        assert cuts > 80


def test_power_lost_in_a_restart_leaves_a_best_effort_mirror_usable() -> None:
    pair = Pair(mode="best_effort")
    pair.life()
    files = pair.primary.files(), pair.mirror.files()
    for struck in ("primary", "mirror"):
        step, done = 0, False
        while not done:
            again = Pair(MemoryDisk(files[0]), MemoryDisk(files[1]), mode="best_effort")
            again.ledger = Ledger(list(pair.ledger.tried), pair.ledger.promised)
            getattr(again, struck).cut_power_after(step)
            try:
                again.start()
                done = True
            except PowerLost:
                pass
            again.crash(Keep.SUBSET, step).check_mirror_alone()
            step += 1
        assert step > 5


def test_a_restore_cut_off_at_any_call_is_no_journal_and_ends_when_it_is_run_again() -> None:
    step, done, unfinished = 0, False, 0
    while not done:
        pair = damaged_pair()
        before = {data.rstrip(b"\0") for data in pair.primary.files().values()}
        pair.primary.cut_power_after(step)
        try:
            restore_from(pair.mirror, pair.primary, "first", agreed)
            done = True
        except PowerLost:
            pass
        after = pair.crash(Keep.SUBSET, step)
        try:
            state = state_of(MemoryDisk(after.primary.files()))
        except JournalDamaged:
            unfinished += after.primary.exists("incomplete")
            restore_from(after.mirror, after.primary, "second", agreed)
        else:
            assert state == pair.ledger.tried, "neither the damaged directory nor the whole mirror"
        there = {data.rstrip(b"\0") for data in after.primary.files().values()}
        assert before <= {*there, *LOCK_TEXTS}, "a file of the damaged directory is gone"
        after.start()
        after.check_same()
        step += 1
    assert unfinished > 20
