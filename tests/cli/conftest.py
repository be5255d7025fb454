"""A directory with a mesh in it, and commands on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import Cli, fill


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RELAYMESH_HOME", "RELAYMESH_URL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands on a directory without a mesh."""
    return Cli(tmp_path / "mesh", capsys)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled")
    fill(path)
    return path


@pytest.fixture
def cli(empty: Cli, filled: Path) -> Cli:
    """Commands on a mesh with some of everything."""
    shutil.copytree(filled, empty.path)
    return empty
