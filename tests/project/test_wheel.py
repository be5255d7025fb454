"""The wheel that users install: whole without the prover, which stays in the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path

import pytest

from tests.project.tree import ROOT

PROVER = ("enumeration", "planted", "simulation", "simulate", "crashes")
SHIPPED = {
    "relaymesh/py.typed",
    "relaymesh/pytest_plugin.py",
    "relaymesh/testing/mesh.py",
    "relaymesh/testing/torture/checker.py",
    "relaymesh/schemas/message.schema.json",
    "relaymesh/store/sql/",
    "relaymesh/pipeline/log4j2.properties",
    "pyspark_relaymesh/",
}
MANUAL = """
def test_an_hour_of_retries_takes_no_time(manual_mesh):
    from relaymesh import Retry

    planner, coder = manual_mesh.agent("planner"), manual_mesh.agent("coder")
    attempts = []

    @coder.handle
    def work(delivery):
        attempts.append(delivery.attempt)
        if delivery.attempt < 3:
            raise Retry("busy", after=600)

    planner.send("coder", {"do": "bump version"})
    manual_mesh.advance(3600)
    assert attempts == [1, 2, 3]
"""


class Installed:
    """An environment with the wheel in it. What the wheel needs it borrows from the one that runs the tests.

    A path in a .pth file is searched, but .pth files below it are not read: the editable install of this
    repository is not found there.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.bin = folder / "env" / "bin"
        [packages] = (folder / "env").glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-index", "--no-deps", "--ignore-installed", str(wheel)], check=True)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELAYMESH", "PY"))}
        return {**kept, "TMPDIR": str(self.folder)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A program that goes on."""
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("a place"))


def test_the_wheel_has_everything_but_the_prover(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [
        name for name in names if name.startswith(tuple(f"relaymesh/testing/{part}" for part in PROVER))
    ] == []
    assert [part for part in SHIPPED if not any(name.startswith(part) for name in names)] == []
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    prover = {
        name for name in source if name.startswith(tuple(f"relaymesh/testing/{part}" for part in PROVER))
    }
    assert {name for name in names if name.endswith(".py")} == source - prover


def test_what_is_installed_is_the_wheel_and_not_the_repository(installed: Installed) -> None:
    found = installed.run("python", "-c", "import relaymesh; print(relaymesh.__file__)")
    assert Path(found.stdout.strip()).is_relative_to(installed.folder), found.stderr


@pytest.mark.parametrize("part", PROVER)
def test_the_prover_is_not_installed_and_python_names_what_is_missing(
    installed: Installed, part: str
) -> None:
    found = installed.run("python", "-c", f"import relaymesh.testing.{part}")
    assert found.returncode == 1
    assert found.stderr.endswith(f"ModuleNotFoundError: No module named 'relaymesh.testing.{part}'\n")


@pytest.mark.parametrize("part", ["simulate", "planted", "crashes"])
def test_the_prover_runs_from_the_repository(part: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", f"relaymesh.testing.{part}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert f"relaymesh.testing.{part}" in found.stdout


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    found = installed.run("relaymesh", "demo")
    assert (found.returncode, found.stderr) == (0, "")
    assert "render-1 is reclaimed; attempt 2" in found.stdout


def test_a_new_user_has_a_finished_task_within_a_minute(installed: Installed) -> None:
    """From an empty folder: `relaymesh init && relaymesh up`, and the workflow that init wrote."""
    (installed.folder / "new").mkdir()
    began = time.monotonic()
    shell = "cd new && ../env/bin/relaymesh init && exec ../env/bin/relaymesh up"
    with installed.start("sh", "-c", shell) as up:
        try:
            data = installed.folder / "new" / ".relaymesh"
            while not (data / "supervisor" / "keeper.json").exists():
                assert up.poll() is None
                time.sleep(0.05)
            words = ["--dir", str(data), "--input", '{"name": "Ada"}', "--json"]
            while (
                done := installed.run("relaymesh", "workflow", "run", "new/hello.yaml", *words)
            ).returncode:
                assert time.monotonic() - began < 60, done.stderr
            show = ["--dir", str(data), "--json"]
            while "SUCCESS" not in installed.run("relaymesh", "task", "list", *show).stdout:
                assert time.monotonic() - began < 60
            assert time.monotonic() - began < 60
        finally:
            up.terminate()
        assert up.wait(30) == 0


def test_a_test_with_a_manual_mesh_runs_from_the_wheel(installed: Installed) -> None:
    (installed.folder / "test_mine.py").write_text(MANUAL, encoding="utf-8")
    found = installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed" in found.stdout


def test_torture_runs_from_the_wheel(installed: Installed) -> None:
    found = installed.run("relaymesh", "torture", "--minutes", "0.05", "--seed", "8", "--json")
    assert (found.returncode, found.stderr) == (0, "")
    told = json.loads(found.stdout.splitlines()[-1])
    assert (told["verdict"], told["broken"]) == ("passed", [])
    assert told["messages"] > 0
