"""A real process on a real directory, whose system calls fail, wait or kill it at a chosen moment (strace).

The child says what it was promised, line by line; whatever becomes of it, a start without faults has all
of that.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from relaymesh import Mesh
from tests.node.injected_child import SENDS, SMALL

pytestmark = pytest.mark.slow

FIRST_SEGMENT = "journal/000000000001-00000000000000000001.rmj"


@functools.cache
def strace_trouble() -> str:
    """Why system calls cannot be injected here; empty when they can."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not installed"
    probe = ["strace", "-f", "-qq", "-e", "inject=fsync:error=EIO", "true"]
    tried = subprocess.run(probe, capture_output=True, text=True, timeout=20, check=False)
    return "" if tried.returncode == 0 else f"strace does not work here: {tried.stderr.strip()[:100]}"


@pytest.fixture(autouse=True)
def _strace() -> None:
    if strace_trouble():
        pytest.skip(strace_trouble())


@dataclass
class Ended:
    """How a child ended and what it had said."""

    code: int
    lines: list[list[str]]
    injected: int
    took_s: float
    errors: str

    def said(self, word: str) -> list[str]:
        return [line[1] for line in self.lines if line[0] == word and len(line) > 1]

    @property
    def kept(self) -> set[str]:
        """What must be there still."""
        return set(self.said("receipt")) - set(self.said("acking"))


def run_child(place: Path, inject: str, *, within: str = "", tag: str = "m") -> Ended:
    log = place.with_suffix(".strace")
    only = ["-P", str(place / within)] if within else []
    call = inject.partition(":")[0]
    command = ["strace", "-f", "-qq", "-o", str(log), *only, "-e", f"trace={call}", "-e", f"inject={inject}"]
    began = time.monotonic()
    child = subprocess.run(
        [*command, sys.executable, "-m", "tests.node.injected_child", str(place), tag],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    lines = [line.split() for line in child.stdout.splitlines()]
    injected = log.read_text().count("INJECTED") + log.read_text().count("DELAYED")
    return Ended(child.returncode, lines, injected, time.monotonic() - began, child.stderr)


def everything_promised_is_there(place: Path, *ended: Ended) -> None:
    """A start without faults: nothing receipted is lost, nothing acked comes back, and the mesh works."""
    with Mesh(place, settings=SMALL) as mesh:
        there = {entry.envelope.id for entry in mesh.agent("coder").peek(limit=1000)}
        for each in ended:
            assert each.kept <= there, f"lost {sorted(each.kept - there)}"
            assert not there & set(each.said("acked"))
        assert mesh.agent("planner").send("coder", 1, id="after").id == "after"


def poisoned(ended: Ended) -> None:
    assert ended.injected, "the fault never struck"
    assert (ended.code, ended.said("failed")) == (3, ["JOURNAL_POISONED"]), ended


@pytest.mark.parametrize("nth", [3, 6])
def test_a_failed_sync_of_the_journal_poisons_it(tmp_path: Path, nth: int) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, f"fdatasync:error=EIO:when={nth}", within=FIRST_SEGMENT)
    poisoned(ended)
    everything_promised_is_there(place, ended)


@pytest.mark.parametrize(("error", "nth"), [("ENOSPC", 4), ("EIO", 6)])
def test_a_failed_write_to_the_journal_poisons_it(tmp_path: Path, error: str, nth: int) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, f"pwrite64:error={error}:when={nth}+", within=FIRST_SEGMENT)
    poisoned(ended)
    everything_promised_is_there(place, ended)


def test_without_room_for_the_next_step_sends_are_refused_and_acks_go_on(tmp_path: Path) -> None:
    place = tmp_path / "mesh"
    first = run_child(place, "fdatasync:delay_enter=1:when=1", tag="a")
    ended = run_child(place, "fallocate:error=ENOSPC:when=1+", tag="b")
    assert ended.injected
    assert ended.code == 0, ended
    assert "DISK_FLOOR" in ended.said("refused")
    assert ended.said("acked") == ["a2", "a3"]
    first.lines = [line for line in first.lines if line[-1] not in ("a2", "a3")]
    everything_promised_is_there(place, first, ended)


@pytest.mark.parametrize("nth", [1, 3, 5])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_name_that_cannot_be_made_durable_stops_the_node(tmp_path: Path, call: str, nth: int) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, f"{call}:error=EIO:when={nth}")
    assert ended.injected, "the fault never struck"
    assert ended.code == 3, ended
    assert "Traceback" not in ended.errors
    everything_promised_is_there(place, ended)


@pytest.mark.parametrize(
    "inject", ["fdatasync:error=EIO:when=1", "pwrite64:error=ENOSPC:when=1+", "rename:error=ENOSPC:when=2"]
)
def test_a_start_that_fails_loses_nothing_and_the_next_one_works(tmp_path: Path, inject: str) -> None:
    place = tmp_path / "mesh"
    first = run_child(place, "fdatasync:delay_enter=1:when=1", tag="a")
    assert first.code == 0, first
    ended = run_child(place, inject, tag="b")
    assert ended.injected, "the fault never struck"
    assert (ended.code, ended.kept) == (3, set()), ended
    everything_promised_is_there(place, first, ended)


@pytest.mark.parametrize("inject", ["fdatasync:error=EIO:when=3", "pwrite64:error=ENOSPC:when=6+"])
def test_a_store_that_cannot_be_made_is_an_error_of_ours_too(tmp_path: Path, inject: str) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, inject)
    assert (ended.injected > 0, ended.code, ended.lines) == (True, 3, [["failed", "MESH_ERROR"]]), ended
    everything_promised_is_there(place, ended)


def test_a_slow_disk_only_takes_longer(tmp_path: Path) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, "fdatasync:delay_enter=30000", within=FIRST_SEGMENT)
    assert ended.code == 0, ended
    assert len(ended.said("receipt")) == SENDS
    assert ended.took_s > 0.03 * ended.injected > 0.1
    everything_promised_is_there(place, ended)


@pytest.mark.parametrize(
    ("call", "nth"), [("fdatasync", 5), ("fdatasync", 12), ("pwrite64", 60), ("rename", 3), ("fsync", 5)]
)
def test_a_kill_at_a_system_call_loses_nothing_receipted(tmp_path: Path, call: str, nth: int) -> None:
    place = tmp_path / "mesh"
    ended = run_child(place, f"{call}:signal=KILL:when={nth}")
    assert ended.code in (-9, 137), ended
    assert ["done"] not in ended.lines
    everything_promised_is_there(place, ended)
