"""The pytest plugin, as a project that uses RelayMesh meets it: in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.project.tree import ROOT

TESTS = """
import asyncio

import pytest
from relaymesh import Mesh
from relaymesh.testing import AsyncManualMesh, ManualMesh


def test_a_mesh_of_its_own(manual_mesh):
    assert isinstance(manual_mesh, ManualMesh)
    coder = manual_mesh.agent("coder")
    assert coder.peek() == []
    coder.send("coder", 1)


def test_and_another(manual_mesh):
    assert manual_mesh.agent("coder").peek() == []


def test_a_handler_that_fails_fails_it(manual_mesh):
    coder = manual_mesh.agent("coder")

    @coder.handle
    def work(delivery):
        assert delivery.content == 2, "one is not two"

    coder.send("coder", 1)
    manual_mesh.advance()


@pytest.mark.manual_mesh(raise_errors=False, seed=7)
def test_of_failures(manual_mesh):
    coder = manual_mesh.agent("coder", max_retries=0)

    @coder.handle
    def work(delivery):
        raise ValueError

    coder.send("coder", 1)
    manual_mesh.advance()
    assert len(manual_mesh.dead_letters()) == 1


def test_on_a_loop(async_manual_mesh):
    assert isinstance(async_manual_mesh, AsyncManualMesh)

    async def story():
        coder = await async_manual_mesh.agent("coder")
        await coder.send("coder", 1)
        async with await coder.receive(timeout=5) as delivery:
            assert delivery.content == 1

    asyncio.run(story())
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_its_fixtures_work_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_agents.py").write_text(TESTS, encoding="utf-8")
    done = run_pytest(tmp_path, "-p", "relaymesh.pytest_plugin", "-W", "error", "test_agents.py")
    assert "4 passed" in done.stdout, done.stdout
    assert "1 failed" in done.stdout
    assert "FAILED test_agents.py::test_a_handler_that_fails_fails_it" in done.stdout
    assert "AssertionError: one is not two" in done.stdout


def test_it_is_found_by_pytest_without_being_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {
        "relaymesh.pytest_plugin": "relaymesh.pytest_plugin"
    }


def test_a_project_without_a_mesh_in_its_tests_loads_none(tmp_path: Path) -> None:
    """The plugin is loaded into every pytest of an environment: it must cost nothing."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert 'relaymesh.node.node' not in sys.modules\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "-p", "relaymesh.pytest_plugin", "test_other.py")
    assert done.returncode == 0, done.stdout


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.add_marker(pytest.mark.anyio)\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "-p", "relaymesh.pytest_plugin", "-W", "error")
    assert "9 passed" in done.stdout, done.stdout
