"""A node with a mirror: real directories, real damage, and everything receipted is back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from relaymesh import Mesh, MeshSettings
from relaymesh.errors import DirectoryError, DirectoryInUse, InvalidSettings, JournalDamaged
from relaymesh.journal import JournalSettings, MirrorMode, compare, restore_from, verify
from relaymesh.node.disk import RealDisk
from tests.node.inside import node_of

SMALL_SEGMENTS = JournalSettings(segment_bytes_max=4_000, allocate_bytes=8_192)
OWN = ("lock", "mirror", "store.db", "store.db-wal", "store.db-shm")


def _counts(path: Path) -> bool:
    """Neither a file of the directory itself nor a daily report, which is written anew from the journal."""
    return path.name not in OWN and path.parent.name != "reports"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def settings(mirror: Path | None, mode: MirrorMode = "required") -> MeshSettings:
    return MeshSettings(mirror=mirror, mirror_mode=mode, journal=SMALL_SEGMENTS)


def send(mesh: Mesh, ids: range) -> list[str]:
    """Send one by one; answers what was receipted."""
    planner = mesh.agent("planner")
    mesh.agent("coder")
    return [planner.send("coder", {"number": i}, id=f"m{i}").id for i in ids]


def pending(path: Path, settings: MeshSettings | None = None) -> list[str]:
    with Mesh(path, settings=settings) as mesh:
        coder = mesh.agent("coder")
        found = []
        while mesh.stats().mailboxes["default/coder"].pending:
            delivery = coder.receive(timeout=5)
            found.append(delivery.id)
            delivery.ack()
        return found


def tree(root: Path) -> dict[str, bytes]:
    files = (each for each in root.rglob("*") if each.is_file() and _counts(each))
    return {str(each.relative_to(root)): each.read_bytes() for each in files}


def flip(path: Path) -> None:
    """One bit of acknowledged data in the oldest segment is wrong."""
    first = min(path.glob("journal/*.rmj"))
    data = bytearray(first.read_bytes())
    data[300] ^= 8
    first.write_bytes(data)


def refuse(why: str) -> None:
    raise AssertionError(f"nobody should be asked: {why}")


@pytest.mark.parametrize("mode", ["required", "best_effort"])
def test_both_directories_hold_the_same_through_checkpoints_and_restarts(
    data: Path, mirror: Path, mode: MirrorMode
) -> None:
    for start in range(3):
        with Mesh(data, settings=settings(mirror, mode)) as mesh:
            send(mesh, range(start * 40, start * 40 + 40))
            node_of(mesh).checkpoint()
            state = node_of(mesh).mirror_state
            assert state is not None
            assert not state.startswith("lost"), state
        assert tree(data) == tree(mirror)
    assert list(mirror.glob("archive/*.rmj"))
    assert len(list(mirror.glob("checkpoints/*.rmc"))) == 2
    assert verify(RealDisk(mirror)).damage == []
    assert pending(mirror) == [f"m{i}" for i in range(120)], "a mirror opens like any data directory"


def test_a_mesh_without_a_mirror_has_no_mirror_state(data: Path) -> None:
    with Mesh(data) as mesh:
        assert node_of(mesh).mirror_state is None
    with Mesh(durability="memory") as mesh:
        assert node_of(mesh).mirror_state is None


def test_a_later_start_keeps_the_mirror_without_being_told(data: Path, mirror: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        send(mesh, range(3))
    with Mesh(data) as mesh:
        send(mesh, range(3, 6))
        assert node_of(mesh).mirror_state == "in step"
    assert pending(mirror) == [f"m{i}" for i in range(6)]


def test_without_the_note_a_start_keeps_no_mirror(data: Path, mirror: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        send(mesh, range(3))
    (data / "mirror").unlink()
    with Mesh(data) as mesh:
        assert node_of(mesh).mirror_state is None


def test_a_copied_directory_does_not_write_to_the_mirror_of_the_original(
    data: Path, mirror: Path, tmp_path: Path
) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        send(mesh, range(3))
    shutil.copytree(data, tmp_path / "copy")
    before = tree(mirror)
    with Mesh(tmp_path / "copy") as mesh:
        send(mesh, range(3, 6))
        assert node_of(mesh).mirror_state is None
    assert tree(mirror) == before


def test_a_flipped_bit_is_named_and_the_mirror_brings_everything_back(data: Path, mirror: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        receipted = send(mesh, range(50))
    flip(data)
    with pytest.raises(JournalDamaged, match=r"is damaged at offset \d+") as refused:
        Mesh(data, settings=settings(mirror))
    assert (
        f"relaymesh journal restore --from {quote(str(mirror))} --dir {quote(str(data))}"
        in refused.value.hint
    )
    found = compare(RealDisk(data), RealDisk(mirror))
    assert found.whole == "the mirror"
    assert found.differences[0].file == found.primary.damage[0].segment
    done = restore_from(RealDisk(mirror), RealDisk(data), "set-aside", refuse)
    assert done.aside == "set-aside"
    assert (data / "set-aside" / "store.db").exists()
    assert verify(RealDisk(data / "set-aside")).damage, "the damaged files are still there"
    assert pending(data, settings(mirror)) == receipted
    assert tree(mirror) == {name: x for name, x in tree(data).items() if not name.startswith("set-aside")}


def test_when_both_are_damaged_the_refusal_says_so(data: Path, mirror: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        send(mesh, range(50))
    flip(data)
    flip(mirror)
    with pytest.raises(JournalDamaged) as refused:
        Mesh(data, settings=settings(mirror))
    assert "is damaged too" in refused.value.hint
    with pytest.raises(JournalDamaged):
        restore_from(RealDisk(mirror), RealDisk(data), "set-aside", refuse)
    assert not (data / "set-aside").exists()


def test_a_lost_data_directory_is_not_started_empty(data: Path, mirror: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        receipted = send(mesh, range(20))
    shutil.rmtree(data)
    with pytest.raises(JournalDamaged, match="has no journal, but its mirror") as refused:
        Mesh(data, settings=settings(mirror))
    assert "relaymesh journal restore" in refused.value.hint
    restore_from(RealDisk(mirror), RealDisk(data), "set-aside", refuse)
    assert pending(data, settings(mirror)) == receipted


def test_an_old_copy_of_the_data_directory_is_refused(data: Path, mirror: Path, tmp_path: Path) -> None:
    with Mesh(data, settings=settings(mirror)) as mesh:
        send(mesh, range(5))
    shutil.copytree(data, tmp_path / "backup")
    with Mesh(data, settings=settings(mirror)) as mesh:
        receipted = [f"m{i}" for i in range(5)] + send(mesh, range(5, 10))
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "backup", data)
    with pytest.raises(JournalDamaged, match="proves that everything before"):
        Mesh(data, settings=settings(mirror))
    asked: list[str] = []
    restore_from(RealDisk(mirror), RealDisk(data), "set-aside", asked.append)
    assert "lacks" in asked[0]
    assert pending(data, settings(mirror)) == receipted


KILLED = """
import sys
from pathlib import Path
from relaymesh import Mesh, MeshSettings
from relaymesh.journal import JournalSettings
journal = JournalSettings(segment_bytes_max=4_000, allocate_bytes=8_192)
settings = MeshSettings(mirror=sys.argv[2], mirror_mode=sys.argv[3], journal=journal)
mesh = Mesh(sys.argv[1], settings=settings)
planner = mesh.agent("planner")
mesh.agent("coder")
for number in range(100_000):
    print(planner.send("coder", {"number": number}).id, flush=True)
    if number % 50 == 49:
        mesh.checkpoint()
"""


def killed_after(data: Path, mirror: Path, lines: int, mode: str = "required") -> list[str]:
    """What a process was receipted before it was killed."""
    command = [sys.executable, "-c", KILLED, str(data), str(mirror), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        receipted = [process.stdout.readline().strip() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        receipted += [line.strip() for line in process.stdout if line.endswith("\n")]
    return receipted


@pytest.mark.parametrize("lines", [1, 60, 175])
def test_a_killed_process_leaves_everything_in_either_directory(data: Path, mirror: Path, lines: int) -> None:
    receipted = killed_after(data, mirror, lines)
    shutil.copytree(mirror, mirror.with_name("copy"))
    alone = pending(mirror.with_name("copy"))
    assert alone[: len(receipted)] == receipted
    both = pending(data, settings(mirror))
    assert both[: len(receipted)] == receipted
    assert tree(data) == tree(mirror)


def test_a_mirror_is_held_by_one_process(data: Path, mirror: Path, tmp_path: Path) -> None:
    with Mesh(data, settings=settings(mirror)):
        with pytest.raises(DirectoryInUse, match=f"the mirror .* is in use: process {os.getpid()}"):
            Mesh(tmp_path / "other", settings=settings(mirror))
        with pytest.raises(DirectoryInUse):
            Mesh(mirror)
        with pytest.raises(DirectoryInUse):
            restore_from(RealDisk(mirror), RealDisk(tmp_path / "new"), "set-aside", refuse)
        with Mesh(tmp_path / "third", settings=settings(mirror, "best_effort")) as third:
            assert f"process {os.getpid()} is using" in str(node_of(third).mirror_state)


def test_a_mirror_that_cannot_be_made_stops_a_required_start_only(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    mirror = tmp_path / "file" / "mirror"
    with pytest.raises(DirectoryError, match="cannot be used"):
        Mesh(data, settings=settings(mirror))
    with Mesh(data, settings=settings(mirror, "best_effort")) as mesh:
        assert send(mesh, range(3))
        assert str(node_of(mesh).mirror_state).startswith("lost: ")


@pytest.mark.parametrize("place", [".", "inside", "journal/deeper", ".."])
def test_directories_that_lie_in_each_other_are_refused(data: Path, place: str) -> None:
    with pytest.raises(InvalidSettings, match="lies inside the other"):
        Mesh(data, settings=settings(data / place))


def test_settings_are_checked_on_construction(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="mirror_mode"):
        MeshSettings(mirror=tmp_path, mirror_mode="sometimes")  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="mirror is empty"):
        MeshSettings(mirror="")
    with pytest.raises(InvalidSettings, match="no journal to mirror"):
        MeshSettings(mirror=tmp_path, durability="memory")
    with pytest.raises(InvalidSettings, match="mirror_queue_bytes"):
        MeshSettings(mirror_queue_bytes=0)


def test_segments_the_data_directory_dropped_alone_are_dropped_by_age(data: Path, mirror: Path) -> None:
    """A mirror that was away while retention ran still has them: they go when they are old enough."""
    with Mesh(data, settings=settings(mirror)) as mesh:
        for part in range(3):
            send(mesh, range(part * 40, part * 40 + 40))
            node_of(mesh).checkpoint()
    oldest = min(data.glob("archive/*.rmj"))
    oldest.unlink()
    with Mesh(data, settings=settings(mirror)) as mesh:
        node_of(mesh).checkpoint()
        assert (mirror / "archive" / oldest.name).exists(), "not older than a week"
        object.__setattr__(node_of(mesh).settings, "archive_days", -1)
        node_of(mesh).checkpoint()
        assert not (mirror / "archive" / oldest.name).exists()
    assert tree(data) == tree(mirror)
