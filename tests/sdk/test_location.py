"""Where a mesh lives when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh import AsyncMesh, InvalidSettings, Mesh, Unreachable
from relaymesh.client import RemoteSettings
from relaymesh.sdk.location import data_directory


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RELAYMESH_URL", "RELAYMESH_HOME", "RELAYMESH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_path_is_where_it_lives(tmp_path: Path) -> None:
    with Mesh(tmp_path / "here") as mesh:
        assert mesh.path == tmp_path / "here"
        assert (tmp_path / "here" / "journal").is_dir()


def test_without_a_path_relaymesh_home_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYMESH_HOME", str(tmp_path / "by-environment"))
    with Mesh() as mesh:
        assert mesh.path == tmp_path / "by-environment"
    assert AsyncMesh().path == tmp_path / "by-environment"


def test_without_either_a_folder_in_the_home_directory(home: Path) -> None:
    with Mesh() as mesh:
        assert mesh.path == home / ".relaymesh"


def test_a_tilde_is_the_home_directory(home: Path) -> None:
    with Mesh("~/mesh") as mesh:
        assert mesh.path == home / "mesh"


@pytest.mark.parametrize("given", ["environment", "argument"])
def test_a_url_is_a_node_elsewhere(given: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9"  # nobody listens there
    if given == "environment":
        monkeypatch.setenv("RELAYMESH_URL", url)
    monkeypatch.setenv("RELAYMESH_TOKEN", "any")
    with pytest.raises(Unreachable, match=url):
        Mesh(url if given == "argument" else None, settings=RemoteSettings(connect_s=0.1))
    assert not (home / ".relaymesh").exists()


def test_a_mesh_in_memory_is_in_memory_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELAYMESH_URL", "http://127.0.0.1:9")
    with Mesh(durability="memory") as mesh:
        assert mesh.path is None


def test_what_needs_a_directory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYMESH_URL", "http://127.0.0.1:9")
    with pytest.raises(InvalidSettings, match="needs a directory") as caught:
        data_directory(None)
    assert "RELAYMESH_URL" in caught.value.hint


def test_a_mesh_in_memory_has_no_place() -> None:
    with Mesh(durability="memory") as mesh:
        assert mesh.path is None
