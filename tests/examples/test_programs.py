"""Programs that are written with the names of the documents alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.tree import ROOT

EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def environment(home: Path) -> dict[str, str]:
    """A reader's shell: the project's own commands first on PATH."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RELAYMESH_", "PYTEST_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def run(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_question_asked_before_a_kill_of_the_node_is_answered_after_it(tmp_path: Path) -> None:
    done = run([str(EXAMPLES / "ask_across_a_restart.py"), str(tmp_path / "data")], tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert told == ["node", "asked", "the node was killed", "node", "answered"]
    assert done.stdout.endswith("answered: green\n")


def test_a_worker_app_passes_its_own_tests(tmp_path: Path) -> None:
    plugin = ["-p", "relaymesh.pytest_plugin", "-p", "no:cacheprovider"]
    done = run(["-m", "pytest", *plugin, "-W", "error", str(EXAMPLES / "worker")], tmp_path)
    assert "5 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_every_name_of_relaymesh_that_a_program_uses_is_in_the_documents(path: Path) -> None:
    program = path.read_text(encoding="utf-8")
    said = "\n".join(page.read_text(encoding="utf-8") for page in DOCUMENTS)
    imported = re.findall(r"^from relaymesh\S* import (.+)$", program, re.MULTILINE)
    called = re.findall(r"\b(?:mesh|manual_mesh|shop|manager|planner|coder|delivery|letter)\.(\w+)", program)
    names = {name.strip() for line in imported for name in line.split(",")} | set(called)
    assert [name for name in names if not re.search(rf"\b{name}\b", said)] == []
