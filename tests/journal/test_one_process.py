"""One process per directory: a second one is refused, and a forked child cannot write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh.errors import Closed, DirectoryInUse
from relaymesh.journal import read_owner, recover
from relaymesh.node.disk import RealDisk
from relaymesh.testing.disk import MemoryDisk
from tests.journal.small import SMALL

HOLD = """
import sys
from pathlib import Path
from relaymesh.journal import recover
from relaymesh.node.disk import RealDisk
writer = recover(RealDisk(Path(sys.argv[1]))).open_writer(0)
writer.append(b"from the other process", 1, 0)
writer.sync()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid} is using"):
            recover(RealDisk(tmp_path), SMALL)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    recovery = recover(RealDisk(tmp_path), SMALL)
    assert [frame.payload for frame in recovery.frames()] == [b"from the other process"]
    assert recovery.epoch == 2
    assert read_owner(RealDisk(tmp_path)) == {"pid": str(os.getpid())}
    recovery.close()


def test_the_same_process_cannot_open_a_directory_twice(tmp_path: Path) -> None:
    for disk in (RealDisk(tmp_path), MemoryDisk()):
        with recover(disk, SMALL), pytest.raises(DirectoryInUse):
            recover(disk, SMALL)
        recover(disk, SMALL).close()


def in_a_fork(work: str, tmp_path: Path) -> None:
    """Fork by hand: the child answers with its exit status alone, so that pytest stays in the parent."""
    disk = RealDisk(tmp_path)
    writer = recover(disk, SMALL).open_writer(0)
    writer.append(b"parent", 1, 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            getattr(writer, work)(*((b"child", 1, 0) if work == "append" else ()))
            status = 0 if work == "close" else 2
        except Closed:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(DirectoryInUse):
        recover(RealDisk(tmp_path), SMALL)
    writer.append(b"parent again", 1, 0)
    writer.close()
    recovery = recover(disk, SMALL)
    assert [frame.payload for frame in recovery.frames()] == [b"parent", b"parent again"]
    recovery.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("work", ["append", "sync", "close"])
def test_a_forked_child_cannot_write_and_does_not_disturb_its_parent(work: str, tmp_path: Path) -> None:
    in_a_fork(work, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_directory_of_a_dead_parent(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    lock = disk.lock("lock")
    until_end, end = os.pipe()
    ready_end, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(ready, b"1")
        os.read(until_end, 1)
        os._exit(0)
    assert os.read(ready_end, 1) == b"1"
    lock.release()  # closes the parent's descriptor without unlocking, as its death would
    disk.lock("lock").release()
    os.close(end)
    os.waitpid(child, 0)
    for descriptor in (until_end, ready_end, ready):
        os.close(descriptor)


def test_a_simulated_fork_is_noticed_too() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    disk.process = 2
    with pytest.raises(Closed, match="forked"):
        writer.append(b"x", 1, 0)
