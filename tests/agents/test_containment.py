"""What an agent starts is ended with it, however it ends; and hostile agents do not hold up others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from relaymesh import agents
from relaymesh.agents.adapter import Done, Failure, Text
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.environment import Blotter
from relaymesh.agents.lines import Lines
from relaymesh.agents.pids_cgroup import PidsCgroup, pids_cgroup_places
from relaymesh.agents.processes import MARK, MARKS_FOUND, look, marks_alive
from relaymesh.agents.script import Script
from relaymesh.agents.strays import below
from relaymesh.agents.sweep import end_left, end_marked
from tests.agents.scripted import BRIEF, MARKS, py, ran, sh, work

STORM = """
import os, time
for _ in range(8):
    if os.fork() == 0: break
else:
    time.sleep(20)
os.setsid()
until = time.monotonic() + 20
while time.monotonic() < until:  # a chain of processes: each forks, and ends
    if os.fork() != 0: os._exit(0)
    os.setsid()
"""


@pytest.fixture
def no_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system where this process may make no cgroup."""
    monkeypatch.setattr("relaymesh.agents.pids_cgroup.pids_cgroup_places", list)


def a_cgroup() -> bool:
    made = PidsCgroup.made(f"probe-{uuid.uuid4().hex}", 5)
    return made is not None and made.removed()


needs_cgroup = pytest.mark.skipif(not a_cgroup(), reason="this process may make no pids cgroup")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def running(pid: int) -> bool:
    found = look(pid)
    return found is not None and not found.ended


# -- finding and ending what a dead supervisor left


def test_what_carries_a_mark_is_found_and_ended_and_nothing_else() -> None:
    mark, other = f"{MARKS}left", f"{MARKS}kept"
    text = "trap '' TERM; (setsid sh -c 'sleep 60 & sleep 60' &) ; sleep 60 & echo; sleep 60"
    environment = dict(os.environ)
    left = subprocess.Popen(
        ["sh", "-c", text], env=environment | {MARK: mark}, stdout=subprocess.PIPE, start_new_session=True
    )
    kept = subprocess.Popen(["sleep", "60"], env=environment | {MARK: other})
    try:
        assert left.stdout is not None
        left.stdout.readline()
        until = time.monotonic() + 10
        while len(marks_alive(mark).get(mark, ())) < 6 and time.monotonic() < until:
            time.sleep(0.01)
        swept = end_marked(mark)
        assert (swept.ended, swept.left) == (6, ())
        assert marks_alive(mark) == {}
        assert marks_alive(other) == {other: [kept.pid]}
        assert end_marked(mark).ended == 0
    finally:
        kept.kill()
        kept.wait()
        left.wait()
        assert left.stdout is not None
        left.stdout.close()


def test_a_successor_ends_all_that_its_predecessor_left_and_removes_its_cgroups() -> None:
    prefix = f"{MARKS}lost-"
    empty, hidden = PidsCgroup.made(f"{prefix}1", None), PidsCgroup.made(f"{prefix}2", None)
    found = [
        subprocess.Popen(["sleep", "60"], env={MARK: f"{prefix}{n}", "PATH": os.defpath}) for n in (3, 4)
    ]
    found.append(subprocess.Popen(["sleep", "60"], env={"PATH": os.defpath}))
    try:
        if hidden is not None:
            hidden.add(found[2].pid)
        kept = f"{prefix}4"
        swept = end_left(prefix, keep=[kept])
        assert swept[f"{prefix}3"].ended == 1
        assert list(marks_alive(prefix)) == [kept]
        if hidden is not None:
            assert empty is not None
            assert swept[f"{prefix}2"].ended == 1
            assert not empty.path.exists()
            assert not hidden.path.exists()
    finally:
        for process in found:
            process.kill()
            process.wait()


# -- without a cgroup


@pytest.mark.usefixtures("no_cgroup")
@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & echo 1",
        "setsid sleep 60 & echo 1",
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 60 & sleep 60' &) ; sleep 0.2; echo 1",
        "env -i sleep 60 & echo 1",
    ],
)
def test_children_that_stay_are_found_by_session_and_mark(tmp_path: Path, script: str) -> None:
    got = ran(sh(script), tmp_path)
    assert got.outcome == Done(b"1")
    assert marks_alive(MARKS) == {}


@pytest.mark.parametrize("bounded", [True, False])
def test_processes_that_fork_while_they_are_swept_are_ended(
    tmp_path: Path, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not bounded:
        monkeypatch.setattr("relaymesh.agents.pids_cgroup.pids_cgroup_places", list)
    got = ran(py(STORM), tmp_path, Limits(time_s=1.0, grace_s=0.1))
    assert isinstance(got.outcome, Done | Failure)
    assert marks_alive(MARKS) == {}


# -- bounds on processes


@needs_cgroup
def test_a_cgroup_bounds_the_processes_and_holds_what_hides(tmp_path: Path) -> None:
    text = "i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; echo $i"
    limits = Limits(processes_max=20, grace_s=0.1)
    assert isinstance(ran(sh(text), tmp_path, limits).outcome, Failure)
    assert ran(sh(text), tmp_path, Limits(processes_max=50)).outcome == Done(b"40")
    marker = tmp_path / "pid"
    hidden = f"(setsid env -i sh -c 'echo $$ > {marker}; exec sleep 60' &) ; sleep 0.3; echo 1"
    assert ran(sh(hidden), tmp_path).outcome == Done(b"1")
    assert not running(int(marker.read_text()))
    left = [path for place in pids_cgroup_places() for path in place.glob(f"relaymesh-{MARKS}*")]
    assert left == []


@needs_root
@pytest.mark.usefixtures("no_cgroup")
def test_without_a_cgroup_a_user_of_its_own_bounds_the_processes() -> None:
    text = "i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; id -u; echo $i"
    runs = Path("/tmp") / f"relaymesh-test-{uuid.uuid4().hex}"
    try:
        few = ran(sh(text, user="nobody"), runs, Limits(processes_max=20, grace_s=0.1))
        assert isinstance(few.outcome, Failure)
        many = ran(sh(text, user="nobody"), runs, Limits(processes_max=500, grace_s=0.1))
        assert many.outcome == Done(b'"65534\\n60"')
    finally:
        subprocess.run(["rm", "-rf", str(runs)], check=True)
    assert marks_alive(MARKS) == {}


@pytest.mark.usefixtures("no_cgroup")
def test_where_nothing_bounds_processes_the_work_is_refused_or_runs_and_says_so(tmp_path: Path) -> None:
    refused = ran(sh("echo 1"), tmp_path, Limits(processes_max=20)).outcome
    assert isinstance(refused, Failure)
    assert (refused.code, refused.final) == ("fatal", True)
    assert "processes_max needs a pids cgroup" in refused.reason
    got = ran(sh("echo 1"), tmp_path, Limits(processes_max=20, processes_unbounded="run"))
    assert got.outcome == Done(b"1")
    assert isinstance(got.events[0], Text)
    assert got.events[0].text.startswith("not prevented: a fork bomb")


def test_an_unknown_user_is_refused(tmp_path: Path) -> None:
    got = ran(sh("true", user="no-such-user-here"), tmp_path).outcome
    assert isinstance(got, Failure)
    assert (got.code, got.final) == ("fatal", True)


# -- the process table

NAMED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b") Z 1 (", 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not MARKS_FOUND, reason="needs /proc")
def test_a_process_whose_name_looks_like_a_table_is_found_below_its_parent() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "named\n"
        found = look(child.pid)
        assert found is not None
        assert (found.parent, found.ended) == (os.getpid(), False)
        assert child.pid in below(os.getpid())
        assert child.pid not in below(os.getpid(), besides=[child.pid])
    finally:
        child.communicate("")
    assert child.pid not in below(os.getpid())


def test_one_piece_of_code_reads_the_table() -> None:
    folder = Path(agents.__file__).parent
    assert [path.name for path in folder.glob("*.py") if "/stat" in path.read_text()] == ["processes.py"]


# -- orphans

ADOPTS = """
import asyncio, os, subprocess, sys, time
from pathlib import Path
from relaymesh.agents.orphans import adopt_orphans, reap_orphans
from relaymesh.agents.processes import processes
from tests.agents.scripted import ran, sh

assert adopt_orphans()
own = subprocess.Popen(["true"])
ran(sh("(sh -c 'sleep 60 & sleep 60' &) ; (setsid true &) ; sleep 0.2; echo 1"), Path(sys.argv[1]))
time.sleep(0.1)
reap_orphans({own.pid})
print([each.pid for each in processes() if each.parent == os.getpid()] == [own.pid], own.wait())
"""


def test_a_supervisor_that_adopts_orphans_leaves_no_zombie_and_reaps_no_child_of_others(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", ADOPTS, str(tmp_path)]
    got = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert got.stdout.split() == ["True", "0"], got.stderr


# -- hostile agents beside a victim


@pytest.mark.alone
def test_a_victim_goes_on_in_time_beside_hostile_agents(tmp_path: Path) -> None:
    """Judged by the victim: each of its works is done, and none takes seconds."""
    hostile = [
        (sh("yes"), Limits(result_bytes_max=64 << 20, log_bytes_max=1 << 20, grace_s=0.2)),
        (sh("yes >&2"), Limits(time_s=4, log_bytes_max=1 << 20, grace_s=0.2)),
        (sh("trap '' TERM; setsid sleep 60 & while :; do sleep 0.01; done"), Limits(time_s=2, grace_s=0.2)),
        (py(STORM), Limits(time_s=2, grace_s=0.2)),
        (sh('while :; do echo \'{"relaymesh": "progress", "text": "x"}\'; done >&2'), Limits(time_s=3)),
    ]
    seconds: list[float] = []

    async def attacked() -> None:
        async def attack(command: Command, limits: Limits) -> None:
            await Script(command, limits, runs=tmp_path).run(work(), lambda _: None)

        attacks = [asyncio.ensure_future(attack(command, limits)) for command, limits in hostile]
        victim = Script(sh("cat"), BRIEF, runs=tmp_path)
        while not all(each.done() for each in attacks):
            started = time.monotonic()
            outcome = await victim.run(work(json.dumps({"n": len(seconds)}).encode()), lambda _: None)
            seconds.append(time.monotonic() - started)
            assert isinstance(outcome, Done)
        for each in attacks:
            each.result()

    asyncio.run(attacked())
    assert len(seconds) > 5
    assert max(seconds) < 5.0
    assert sorted(seconds)[len(seconds) // 2] < 1.0
    assert marks_alive(MARKS) == {}


# -- small parts


def test_lines_over_the_bound_are_cut_and_counted() -> None:
    lines = Lines(5)
    assert list(lines.feed(b"ab\ncd")) == [b"ab"]
    assert list(lines.feed(b"e\r\n\nlonger than five\nx")) == [
        b"cde",
        b"",
        b"longe",
        b"r tha",
        b"n fiv",
        b"e",
    ]
    assert lines.rest() == b"x"
    assert lines.cut == 1
    assert list(lines.feed(b"y" * 12)) == [b"yyyyy", b"yyyyy"]
    assert lines.rest() == b"yy"


def test_lines_are_skipped_however_the_stream_is_cut() -> None:
    text = b"one\ntwo\n\nthe last\nrest"
    for size in range(1, len(text) + 1):
        lines = Lines(100)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        skipped = [lines.skip(piece, unless=b"form") for piece in pieces]
        assert [line for line in skipped if line][-1] == b"the last"
        assert lines.skip(b" of form 1\n", unless=b"form") is None
        assert list(lines.feed(b" of form 1\n")) == [b"rest of form 1"]
    endless = Lines(5)
    assert [endless.skip(b"yyyy", unless=b"form") for _ in range(9)] == [b""] * 9
    assert len(endless.rest()) == 5


def test_a_secret_is_blotted_out_however_the_stream_is_cut() -> None:
    text = b"before secret-value after secret-valu secret-value"
    for size in range(1, len(text) + 1):
        blotter = Blotter((b"secret-value",))
        out = b"".join(blotter.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert out + blotter.rest() == b"before [secret] after secret-valu [secret]"


def test_the_agents_package_needs_no_mesh() -> None:
    """A supervisor with many agents loads neither a node nor a server for its adapters."""
    program = (
        "import sys, relaymesh.agents.script, relaymesh.agents.worker, relaymesh.agents.python;"
        "sys.exit(any(name.startswith('relaymesh.server') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
