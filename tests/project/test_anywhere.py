"""A clone works wherever it is: here in a directory with spaces in its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.tree import ROOT, project_files

SOME_TESTS = [
    "tests/cli/test_journal.py",
    "tests/sdk/test_location.py",
    "tests/gateways/filebus/test_hostile_files.py",
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the project, with the environment of this one."""
    place = tmp_path_factory.mktemp("anywhere") / "a place" / "relay mesh"
    for file in project_files():
        copy = place / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    (place / ".venv").symlink_to(sys.prefix)
    (place / "tmp of it").mkdir()
    return place


def run(clone: Path, *command: str) -> str:
    """What it printed. Code is taken from the clone, and temporary files lie in it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAYMESH")}
    environment |= {"PYTHONPATH": str(clone / "src"), "TMPDIR": str(clone / "tmp of it")}
    ran = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_make_runs_what_is_in_the_clone(clone: Path) -> None:
    assert "make proof" in run(clone, "make")
    demo = run(clone, "make", "--old-file=.venv/.runtime", "run")
    assert f"rm -r {clone}" in demo.replace("'", "")


def test_some_tests_pass_there(clone: Path) -> None:
    look = run(clone, sys.executable, "-c", "import relaymesh; print(relaymesh.__file__)")
    assert Path(look.strip()).is_relative_to(clone)
    base = f"--basetemp={clone / 'data of tests'}"
    told = run(clone, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", base, *SOME_TESTS)
    assert " passed" in told
