"""What RelayMesh makes is its owner's alone, whatever the umask; what it did not make stays as it is."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaymesh import Mesh, modes
from relaymesh.errors import DirectoryError, DirectoryInUse
from relaymesh.journal.layout import is_own_name, take_lock
from relaymesh.node.disk import RealDisk, RealLock
from relaymesh.node.settings import MeshSettings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")

UMASKS = (0o000, 0o022, 0o077)
NOBODY = 65534

LIFE = """
import os, sys, time
from pathlib import Path
os.umask(int(sys.argv[2], 8))
place = Path(sys.argv[1])
from relaymesh import Mesh
from relaymesh.journal import JournalSettings
from relaymesh.journal.consumers import write_consumer
from relaymesh.node.disk import RealDisk
from relaymesh.node.settings import MeshSettings

settings = MeshSettings(mirror=place / "other" / "mirror", journal=JournalSettings(segment_bytes_max=1 << 20))
for life in range(2):
    with Mesh(place / "above" / "data", settings=settings) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for number in range(8):
            planner.send("coder", "x" * 500_000)
            coder.receive(timeout=5).ack()
        mesh.checkpoint()
        mesh.checkpoint()
        write_consumer(RealDisk(place / "above" / "data"), "shipper", 1)
"""
SERVED = """
import sys, os
from pathlib import Path
os.umask(int(sys.argv[2], 8))
from relaymesh.cli.main import main
place = Path(sys.argv[1])
data, bus = str(place / "above" / "data"), str(place / "buses" / "bus")
sys.path.insert(0, {root!r})
from tests.client.serving import ServerThread
import httpx

assert main(["token", "create", "--role", "rw", "--dir", data]) == 0
server = ServerThread(Path(data))
headers = {{"authorization": "Bearer " + server.token()}}
httpx.put(server.url + "/v1/mailboxes/coder", headers=headers).raise_for_status()
message = {{"from": "planner", "to": "coder", "content": 1}}
httpx.post(server.url + "/v1/messages", headers=headers, json=message).raise_for_status()
server.served.tokens.make_local()
from relaymesh.server.address import NodeAddress, write_address
write_address(Path(data), NodeAddress(url=server.url, pid=os.getpid(), started="", protocol="1.1"))
server.stop()
assert main(["bus", "init", bus, "--agent", "coder", "--dir", data]) == 0
from relaymesh import Mesh
from relaymesh.gateways.filebus import BusSettings, FileBus
with Mesh(data) as mesh:
    gateway = FileBus(mesh._session, Path(bus), ["coder"], BusSettings())
    for _ in range(5):
        gateway.turn()
    gateway.close()
assert main(["store", "rebuild", "--dir", data]) == 0
assert main(["doctor", "--dir", data]) in (0, 1)
"""


def run(code: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), *words], check=True, timeout=120)


def everything_in(root: Path) -> Iterator[tuple[str, int]]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder) / name
            yield str(path.relative_to(root)), stat.S_IMODE(path.lstat().st_mode) & 0o777


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_everything_that_a_life_leaves_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    run(LIFE, str(tmp_path), f"{umask:o}")
    run(SERVED.format(root=str(Path(__file__).parents[2])), str(tmp_path), f"{umask:o}")
    seen = dict(everything_in(tmp_path))
    data = {
        name.removeprefix("above/data/").partition("/")[0] for name in seen if name.startswith("above/data/")
    }
    assert data >= {
        "lock",
        "epoch",
        "mark",
        "mirror",
        "journal",
        "archive",
        "checkpoints",
        "consumers",
        "store.db",
    }
    assert {"server", "store.db"} <= data
    for name in ("other/mirror/journal", "buses/bus/bus.json", "above/data/server/audit.jsonl"):
        assert name in seen
    assert any(name.startswith("above/data/archive/") for name in seen)
    wrong = {
        name: oct(mode)
        for name, mode in seen.items()
        if mode != (modes.PRIVATE.folder if (tmp_path / name).is_dir() else modes.PRIVATE.file)
    }
    assert wrong == {}


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_sqlite_s_own_files_are_private_while_the_store_is_open(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Mesh(tmp_path / "data") as mesh:
            mesh.agent("coder").send("coder", 1)
            found = {path.name: mode_of(path) for path in (tmp_path / "data").glob("store.db*")}
    finally:
        os.umask(before)
    assert found == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm"], 0o600)


# -- directories of earlier versions


def opened_up(path: Path) -> None:
    """As an earlier version left it at umask 0."""
    for folder, folders, files in os.walk(path):
        for name in folders:
            (Path(folder) / name).chmod(0o777)
        for name in files:
            (Path(folder) / name).chmod(0o666)
    path.chmod(0o777)


def test_an_old_directory_is_tightened_at_the_next_start(tmp_path: Path) -> None:
    data, mirror = tmp_path / "data", tmp_path / "mirror"
    with Mesh(data, settings=MeshSettings(mirror=mirror)) as mesh:
        mesh.agent("coder").send("coder", 1)
        mesh.checkpoint()
    opened_up(data)
    opened_up(mirror)
    above = mode_of(tmp_path)
    with Mesh(data) as mesh:
        assert mesh.agent("coder").receive(timeout=5).content == 1
    for root in (data, mirror):
        assert mode_of(root) == 0o700
        assert {mode & 0o077 for _, mode in everything_in(root)} == {0}
    assert mode_of(tmp_path) == above


def test_a_strangers_file_and_what_a_link_leads_to_are_left_alone(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    with Mesh(data):
        pass
    outside.mkdir()
    outside.chmod(0o755)
    (outside / "file").touch()
    (outside / "file").chmod(0o644)
    strangers = [data / "notes.txt", data / "journal" / "notes.txt", data / "journal.bak"]
    for path in strangers:
        path.touch()
        path.chmod(0o644)
    (data / "consumers").symlink_to(outside, target_is_directory=True)
    (data / "checkpoints" / f"{1:020d}.rmc.new").symlink_to(outside / "file")
    data.chmod(0o755)
    (data / "journal").chmod(0o755)
    (data / "mark").chmod(0o644)
    with Mesh(data):
        pass
    assert [mode_of(path) for path in strangers] == [0o644] * 3
    assert mode_of(outside) == 0o755
    assert mode_of(outside / "file") == 0o644
    assert mode_of(data / "journal") == 0o700
    assert mode_of(data / "mark") == 0o600
    assert mode_of(data) == 0o755  # a stranger's file lies there: it is not ours alone


def test_a_directory_that_others_may_write_to_and_use_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").touch()
    (tmp_path / "data").chmod(0o777)
    with caplog.at_level(logging.WARNING, "relaymesh"), Mesh(tmp_path / "data"):
        pass
    assert "has mode 0777" in caplog.text


def test_a_file_system_that_refuses_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Mesh(tmp_path / "data"):
        pass
    opened_up(tmp_path / "data")

    def refuse(_descriptor: int, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with caplog.at_level(logging.WARNING, "relaymesh"), Mesh(tmp_path / "data") as mesh:
        mesh.agent("coder").send("coder", 1)
    assert "the file system refuses to change its mode" in caplog.text


def test_every_name_of_a_data_directory_is_known_as_its_own(tmp_path: Path) -> None:
    run(LIFE, str(tmp_path), "22")
    names = [
        name for name, _ in everything_in(tmp_path / "above" / "data") if not name.startswith("store.db")
    ]
    assert [name for name in names if not is_own_name(name)] == []
    for stranger in ("notes.txt", "journal/notes.txt", "journal.bak", "../lock", "lock/x", "archive/x.rmj"):
        assert not is_own_name(stranger)


# -- another user


needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)
AS_NOBODY = f"""
import fcntl, json, os, sys
os.setgid({NOBODY}); os.setgroups([]); os.setuid({NOBODY})
told = {{}}
for name in ("", "lock", "mark", "store.db", "journal", "server"):
    try:
        os.close(os.open(os.path.join(sys.argv[1], name), os.O_RDONLY))
        told[name] = "opened"
    except PermissionError:
        told[name] = "refused"
try:
    fcntl.flock(os.open(os.path.join(sys.argv[1], "lock"), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    told["flock"] = "locked"
except PermissionError:
    told["flock"] = "refused"
print(json.dumps(told))
"""


@needs_root
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_another_user_can_neither_read_nor_lock(tmp_path: Path, umask: int) -> None:
    for above in (tmp_path, *tmp_path.parents):
        if above != Path("/") and not mode_of(above) & 0o001:
            above.chmod(mode_of(above) | 0o011)  # it must be the data directory that stops them
    before = os.umask(umask)
    try:
        with Mesh(tmp_path / "data") as mesh:
            mesh.agent("coder").send("coder", "secret")
    finally:
        os.umask(before)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", AS_NOBODY, str(tmp_path / "data")],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert set(json.loads(ran.stdout).values()) == {"refused"}
    with Mesh(tmp_path / "data") as mesh:
        assert mesh.agent("coder").receive(timeout=5).content == "secret"


def test_a_lock_that_cannot_be_explained_says_where_to_look(tmp_path: Path) -> None:
    with Mesh(tmp_path / "data"):
        pass
    lock = RealLock(tmp_path / "data" / "lock")
    lock.note(b"")
    try:
        with pytest.raises(DirectoryInUse, match="fuser -v lock") as refused:
            Mesh(tmp_path / "data")
        assert "another process is using" in refused.value.message
        with pytest.raises(DirectoryInUse, match="fuser -v lock"):
            take_lock(RealDisk(tmp_path / "data"))
    finally:
        lock.release()


@needs_root
def test_a_directory_of_somebody_else_says_whose_it_is_to_ask(tmp_path: Path) -> None:
    with Mesh(tmp_path / "data"):
        pass

    class Refusing(RealDisk):
        def lock(self, name: str) -> RealLock:
            raise PermissionError(13, "Permission denied", name)

    with pytest.raises(DirectoryError, match="ls -ld"):
        take_lock(Refusing(tmp_path / "data"))
