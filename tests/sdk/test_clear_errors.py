"""Mistakes of a first day: each is said where it is made, with what to write in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, InvalidSettings, InvalidValue, Mesh, MeshSettings
from relaymesh.errors import DirectoryError
from relaymesh.testing import ManualMesh

TWINS: tuple[Any, ...] = (Mesh, AsyncMesh)


@pytest.fixture(params=TWINS)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("workers", [(0, 0), (0, 4), (4, 2), (-1, -1)])
def test_workers_that_could_run_nothing(kind: Any, workers: Any) -> None:
    with pytest.raises(InvalidSettings, match="workers") as caught:
        kind(durability="memory", workers=workers)
    assert "workers=(4, 8)" in caught.value.hint


def test_a_file_in_place_of_a_directory(kind: Any, tmp_path: Path) -> None:
    file = tmp_path / "mesh.db"
    file.write_text("mine")
    with pytest.raises(InvalidSettings, match="is a file") as caught:
        kind(file)
    assert "directory" in caught.value.hint
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "options", [{"durability": "memory"}, {"settings": MeshSettings(durability="memory")}]
)
def test_a_directory_for_a_mesh_that_keeps_nothing(kind: Any, tmp_path: Path, options: Any) -> None:
    with pytest.raises(InvalidSettings, match="memory") as caught:
        kind(tmp_path / "data", **options)
    assert "leave out the path" in caught.value.hint
    assert not (tmp_path / "data").exists()


def test_a_name_longer_than_any_file_has() -> None:
    with pytest.raises(DirectoryError, match="too long"):
        Mesh("x" * 5_000)


def test_so_it_is_for_a_mesh_with_a_clock_to_move(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="memory"):
        ManualMesh(tmp_path, durability="memory")


def test_a_handler_that_is_none() -> None:
    with Mesh(durability="memory") as mesh:
        with pytest.raises(InvalidValue, match="handler") as caught:
            mesh.agent("coder").handle(None)  # type: ignore[call-overload]
        assert "@agent.handle" in caught.value.hint


def test_on_without_a_topic(kind: Any) -> None:
    def handler(delivery: Any) -> None:
        raise AssertionError(delivery)

    with pytest.raises(InvalidValue, match="needs a topic") as caught:
        kind(durability="memory").on(handler)
    assert '@mesh.on("order.created")' in caught.value.hint
