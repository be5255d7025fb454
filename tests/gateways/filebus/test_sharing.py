"""A bus directory is its owner's alone, unless it is given to a group of users."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from relaymesh.cli.main import main
from relaymesh.gateways.filebus.directory import make_bus
from relaymesh.gateways.filebus.tree import PRIVATE as OWN
from relaymesh.gateways.filebus.tree import Tree

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")

GROUP = 12_345


def modes_in(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*")}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> object:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_a_bus_is_its_owners_alone(tmp_path: Path) -> None:
    make_bus(tmp_path / "bus", ["coder"])
    assert {mode for name, mode in modes_in(tmp_path).items() if name != "bus/bus.json"} == {0o700}
    assert modes_in(tmp_path)["bus/bus.json"] == 0o600


@pytest.mark.usefixtures("_umask")
@pytest.mark.skipif(os.name != "nt" and os.geteuid() != 0, reason="only root may give to any group")
def test_a_bus_may_be_given_to_a_group(tmp_path: Path) -> None:
    bus = tmp_path / "bus"
    assert main(["bus", "init", str(bus), "--agent", "coder", "--group", str(GROUP)]) == 0
    tree = Tree(bus)
    tree.tiers["normal" if "normal" in tree.tiers else next(iter(tree.tiers))].write("a", b"1")
    tree.private.write("own", b"1")
    tree.close()
    for path in [bus, *bus.rglob("*")]:
        seen, own = path.lstat(), OWN in path.parts
        mode = stat.S_IMODE(seen.st_mode)
        if own:
            assert mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
            continue
        assert seen.st_gid == GROUP, path
        assert mode == (0o2770 if path.is_dir() else 0o660), path


def test_a_group_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bus", "init", str(tmp_path / "bus"), "--agent", "coder", "--group", "no-such-group"]) == 2
    assert "no-such-group" in capsys.readouterr().err
    assert not (tmp_path / "bus").exists()
