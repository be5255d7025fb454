"""A clone works in any directory, here one with spaces in its path, and for a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project.tree import ROOT, project_files

SOME_TESTS = [
    "tests/cli/test_journal.py",
    "tests/sdk/test_location.py",
    "tests/gateways/filebus/test_hostile_files.py",
]
TESTS_OF_USERS = [
    *SOME_TESTS,
    "tests/journal/test_one_process.py",
    "tests/node/test_modes.py",
    "tests/server/test_process.py::test_a_stop_ends_polls_exits_with_0_and_leaves_no_address",
    "tests/server/test_process.py::test_a_second_signal_ends_it_at_once",
    "tests/server/test_process.py::test_a_second_server_on_the_same_directory_says_where_the_first_one_is",
    "tests/server/security/test_tokens.py",
    "tests/server/security/test_writing.py",
]
"""Locks, modes of files, sockets, signals, tokens: what differs between users. `make elsewhere` runs all."""
ORDINARY_USER = "nobody"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the project, with the environment of this one."""
    place = tmp_path_factory.mktemp("anywhere") / "a place" / "relay mesh"
    copy_project(place)
    (place / ".venv").symlink_to(sys.prefix)
    return place


@pytest.fixture
def clone_of_another_user() -> Iterator[Path]:
    """The files of the project, owned by an ordinary user."""
    above = Path(tempfile.mkdtemp(prefix="relaymesh-"))
    try:
        place = above / "of another user"
        copy_project(place)
        user = pwd.getpwnam(ORDINARY_USER)
        for path in (above, place, *place.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)
        yield place
    finally:
        shutil.rmtree(above)


def copy_project(place: Path) -> None:
    for file in project_files():
        copy = place / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    (place / "tmp of it").mkdir()


def run(clone: Path, *command: str, packages: str = "", **options: Any) -> str:
    """What it printed. Code is taken from the clone, and temporary files lie in it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAYMESH")}
    paths = [str(clone / "src"), packages] if packages else [str(clone / "src")]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(clone / "tmp of it")}
    ran: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def run_pytest(clone: Path, python: str, tests: list[str], **options: Any) -> str:
    base = f"--basetemp={clone / 'data of tests'}"
    return run(clone, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", base, *tests, **options)


def python_for_any_user(packages: str) -> str | None:
    """An interpreter of this version that an ordinary user may start, with the packages of this one."""
    own = os.path.realpath(sys.executable)
    for python in (own, shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")):
        if python is None:
            continue
        try:
            subprocess.run(
                [python, "-c", "import pytest, msgspec"],
                user=ORDINARY_USER,
                env={"PYTHONPATH": packages},
                cwd="/",
                capture_output=True,
                timeout=30,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


def test_make_runs_what_is_in_the_clone(clone: Path) -> None:
    assert "make proof" in run(clone, "make")
    demo = run(clone, "make", "--old-file=.venv/.runtime", "run")
    assert f"rm -r {clone}" in demo.replace("'", "")


def test_some_tests_pass_there(clone: Path) -> None:
    look = run(clone, sys.executable, "-c", "import relaymesh; print(relaymesh.__file__)")
    assert Path(look.strip()).is_relative_to(clone)
    assert " passed" in run_pytest(clone, sys.executable, SOME_TESTS)


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is not root: every test shows it")
def test_some_tests_pass_for_a_user_who_is_not_root(clone_of_another_user: Path) -> None:
    packages = sysconfig.get_path("purelib")
    python = python_for_any_user(packages)
    if python is None:
        pytest.skip("other users may not read this interpreter or its packages")
    user = pwd.getpwnam(ORDINARY_USER)
    told = run_pytest(
        clone_of_another_user,
        python,
        TESTS_OF_USERS,
        packages=packages,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    )
    assert " passed" in told
