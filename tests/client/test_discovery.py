"""A second process with the same path finds the node that runs there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh import AsyncMesh, DirectoryInUse, Mesh
from tests.client.node_process import NodeProcess


def test_a_path_that_is_served_is_used_through_its_node(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "mesh")
    try:
        with Mesh(tmp_path / "mesh") as mesh:
            coder = mesh.agent("coder")
            coder.send("coder", "from another process")
            with coder.receive(timeout=60) as delivery:
                assert delivery.content == "from another process"
            assert mesh.path is None
    finally:
        node.stop()
    with Mesh(tmp_path / "mesh") as mesh:
        assert mesh.path == tmp_path / "mesh", "nobody serves it any more"
        assert mesh.stats().mailboxes["default/coder"].acked == 1


def test_it_is_found_again_after_a_kill(tmp_path: Path) -> None:
    """A node that starts anew has another token for its own user."""
    node = NodeProcess(tmp_path / "mesh")
    try:
        with Mesh(tmp_path / "mesh") as mesh:
            coder = mesh.agent("coder")
            coder.send("coder", 1)
            token = node.token
            node.kill()
            node = NodeProcess(tmp_path / "mesh")  # on another port, too
            assert node.token != token
            assert coder.receive(timeout=60).content == 1
    finally:
        node.stop()


async def test_so_does_an_awaited_mesh(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "mesh")
    try:
        async with AsyncMesh(tmp_path / "mesh") as mesh:
            coder = await mesh.agent("coder")
            await coder.send("coder", 1)
            assert (await coder.receive(timeout=60)).content == 1
        with pytest.raises(DirectoryInUse, match="settings of its own"):
            await AsyncMesh(tmp_path / "mesh", durability="synced").open()
    finally:
        node.stop()


def test_a_path_that_is_open_but_not_served_says_how_to_share_it(tmp_path: Path) -> None:
    with Mesh(tmp_path / "mesh"):
        code = (
            "import sys\nfrom relaymesh import DirectoryInUse, Mesh\n"
            "try:\n    Mesh(sys.argv[1])\nexcept DirectoryInUse as error:\n    print(error.hint)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "mesh")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "relaymesh serve" in done.stdout
