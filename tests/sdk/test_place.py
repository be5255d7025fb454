"""Where a mesh lives when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh import AsyncMesh, InvalidSettings, Mesh


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RELAYMESH_URL", "RELAYMESH_HOME"):
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
def test_a_url_is_for_later_and_says_so(given: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://localhost:8080"
    if given == "environment":
        monkeypatch.setenv("RELAYMESH_URL", url)
    with pytest.raises(InvalidSettings, match="remote mesh") as caught:
        Mesh(url if given == "argument" else None)
    assert "RELAYMESH_URL" in caught.value.hint
    assert not (home / ".relaymesh").exists()


def test_a_mesh_in_memory_has_no_place() -> None:
    with Mesh(durability="memory") as mesh:
        assert mesh.path is None
