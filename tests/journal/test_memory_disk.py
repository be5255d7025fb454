"""The simulated disk forgets what was not synced, and only that."""

from __future__ import annotations

import errno

import pytest

from relaymesh.testing.disk import Fault, Keep, MemoryDisk, MemoryFile, PowerLost


def opened(disk: MemoryDisk, name: str = "a") -> MemoryFile:
    file = disk.open(name, create=True)
    disk.sync_folder("")
    return file


def test_a_crash_loses_unsynced_bytes_and_keeps_synced_ones() -> None:
    disk = MemoryDisk()
    file = opened(disk)
    file.write_at(b"kept", 0)
    file.sync()
    file.write_at(b"lost", 4)
    assert disk.crash().files() == {"a": b"kept"}
    assert disk.crash(Keep.EVERYTHING).files() == {"a": b"keptlost"}


def test_a_crash_loses_unsynced_names_even_of_synced_files() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    file.write_at(b"x", 0)
    file.sync()
    assert disk.crash().files() == {}
    assert disk.crash(Keep.EVERYTHING).files() == {"a": b"x"}


def test_a_crash_undoes_unsynced_renames_and_removals() -> None:
    disk = MemoryDisk({"a": b"1", "b": b"2"})
    disk.rename("a", "c")
    disk.remove("b")
    assert disk.crash().files() == {"a": b"1", "b": b"2"}
    disk = MemoryDisk({"a": b"1", "b": b"2"})
    disk.rename("a", "c")
    disk.remove("b")
    disk.sync_folder("")
    assert disk.crash().files() == {"c": b"1"}


def test_an_unsynced_folder_takes_its_files_along() -> None:
    disk = MemoryDisk()
    disk.make_folder("f")
    file = disk.open("f/a", create=True)
    file.sync()
    disk.sync_folder("f")
    assert disk.crash().files() == {}


def test_every_way_to_crash_is_the_same_for_the_same_seed() -> None:
    for keep in Keep:
        outcomes = []
        for _ in range(2):
            disk = MemoryDisk()
            file = opened(disk)
            for at in range(0, 5000, 700):
                file.write_at(b"z" * 700, at)
            outcomes.append(disk.crash(keep, seed=5).files())
        assert outcomes[0] == outcomes[1]


def test_unsynced_writes_survive_out_of_order_in_some_crash() -> None:
    disk = MemoryDisk()
    file = opened(disk)
    file.write_at(b"a" * 512, 0)
    file.write_at(b"b" * 512, 512)
    found = {disk.crash(Keep.SUBSET, seed=seed).files()["a"] for seed in range(30)}
    assert bytes(512) + b"b" * 512 in found
    assert b"a" * 512 in found


def test_a_torn_write_may_end_at_any_byte() -> None:
    disk = MemoryDisk()
    opened(disk).write_at(b"abcd", 0)
    found = {disk.crash(Keep.TORN, seed=seed).files()["a"] for seed in range(60)}
    assert found == {b"", b"a", b"ab", b"abc", b"abcd"}


def test_the_power_goes_after_that_many_changes() -> None:
    disk = MemoryDisk()
    disk.cut_power_after(2)
    file = disk.open("a", create=True)
    file.write_at(b"x", 0)
    with pytest.raises(PowerLost):
        file.sync()
    with pytest.raises(PowerLost):
        disk.list("")


def test_a_crashed_disk_is_off() -> None:
    disk = MemoryDisk()
    disk.crash()
    with pytest.raises(PowerLost):
        disk.list("")


def test_faults_strike_the_nth_call_once_or_from_then_on() -> None:
    disk = MemoryDisk()
    file = opened(disk)
    disk.faults.append(Fault("write_at", nth=2, error=errno.ENOSPC, keep_bytes=1))
    file.write_at(b"1", 0)
    with pytest.raises(OSError, match="space"):
        file.write_at(b"23", 1)
    file.write_at(b"4", 3)
    assert file.read_at(0, 10) == b"12\x004"
    disk.faults.append(Fault("sync", lasting=True))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    assert disk.calls["sync"] == 2


def test_a_failed_sync_loses_what_it_should_have_kept() -> None:
    disk = MemoryDisk()
    file = opened(disk)
    file.write_at(b"x", 0)
    disk.faults.append(Fault("sync"))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()  # "succeeds", as on Linux
    assert file.read_at(0, 1) == b"x"
    assert disk.crash().files() == {"a": b""}


def test_a_kill_keeps_the_page_cache_but_makes_nothing_durable() -> None:
    disk = MemoryDisk()
    file = opened(disk)
    disk.lock("lock")
    file.write_at(b"x", 0)
    disk = disk.kill()
    disk.lock("lock")
    assert disk.files()["a"] == b"x"
    assert disk.crash().files()["a"] == b""
