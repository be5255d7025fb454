"""The comparison with servers, in small: the same traffic, whole accounts, and nothing left running."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import child
from bench.contents import age, clock
from bench.peers import measure, report, rounds
from bench.peers.__main__ import look_for
from bench.peers.flow import Flow, Shape
from bench.peers.plan import OURS, PEERS, Lengths, chosen
from bench.peers.server import FailedServer, MissingServer, Server, find, free_port

ROOT = Path(__file__).resolve().parents[2]


def shape(**changes: Any) -> Shape:
    return Shape(**{"batch": 100, "size": 200, "seconds": 0.2, "senders": 2, "receivers": 1, **changes})


# -- servers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "layout"),
    [
        ("redis", "two processes"),
        ("nats", "one process"),
        ("nats-synced", "two processes"),
        ("rabbitmq", "one process"),
    ],
)
def test_a_server_is_sent_to_received_from_acked_and_ended(peer: str, layout: str, tmp_path: Path) -> None:
    module = PEERS[peer]
    try:
        measure.module_of(module).program()
        with rounds.started(module, tmp_path / peer) as server:
            found = measure.run(module, server, tmp_path, shape(), layout)
    except MissingServer as missing:
        pytest.skip(str(missing))
    assert "error" not in found, found
    assert found["messages"] > 0
    assert found["messages"] % 100 == 0
    assert found["cpu_us"] == found["client_cpu_us"] + found["server_cpu_us"]
    assert not listens(server.port)
    assert not Path(f"/proc/{server.pid}").exists()
    assert not (tmp_path / peer).exists()


def test_a_server_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    server = Server("echo", ["sh", "-c", "echo out of luck; exit 3"], tmp_path, free_port())
    with pytest.raises(FailedServer, match="exit code 3 while it started: out of luck"):
        server.until_it_listens(10)
    server.stop()


def test_all_processes_of_a_server_end_with_it(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $! > child; kill -9 $$"
    server = Server("sh", ["sh", "-c", script], tmp_path, free_port())
    with pytest.raises(FailedServer):
        server.until_it_listens(10)
    sleeper = int((tmp_path / "child").read_text(encoding="ascii"))
    server.stop()
    deadline = time.monotonic() + 10
    while runs(sleeper) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not runs(sleeper)


def runs(pid: int) -> bool:
    """A process that was killed may stay a zombie until its new parent has looked at it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_missing_server_is_named_with_what_installs_it() -> None:
    with pytest.raises(MissingServer, match=r"no-such-server is not installed: bench/peers/install\.sh"):
        find("no-such-server", "no-such-package")


def test_a_missing_server_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        @staticmethod
        def version() -> str:
            return find("no-such-server", "no-such-package")

        NAME = "Absent"

    monkeypatch.setattr(measure, "module_of", lambda _: Absent)
    present, missing = look_for(["redis"])
    assert present == {}
    assert "not installed" in missing["redis"]
    told = report.plain(made_up(peers={}, missing=missing, results={}))
    assert "Left out\nredis: no-such-server is not installed" in told


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


# -- traffic ----------------------------------------------------------------------------------


def test_processes_share_one_account(tmp_path: Path) -> None:
    producer, consumer = (Flow(tmp_path / "flow", shape(senders=1, seconds=60)) for _ in range(2))
    producer.go()
    sends = producer.sends(0)
    batch = next(sends)
    assert isinstance(batch, list)
    assert [len(body) for body in batch] == [200] * 100
    assert consumer.sent == 0, "a batch counts when the server has answered it"
    next(sends)
    assert consumer.sent == 100
    consumer.count_acked(0, 100)
    assert (producer.acked, producer.finished) == (100, False)
    sends.close()  # type: ignore[attr-defined]
    assert consumer.finished


def test_the_window_closes_on_what_is_not_acked(tmp_path: Path) -> None:
    flow = Flow(tmp_path / "flow", shape(senders=1, seconds=60))
    flow.go()
    sends = flow.sends(0)
    steps = [next(sends) for _ in range(22)]
    assert flow.sent == 2000
    assert isinstance(steps[-1], float)
    flow.count_acked(0, 100)
    assert isinstance(next(sends), list)


def test_paced_batches_carry_the_moment_they_were_due(tmp_path: Path) -> None:
    flow = Flow(tmp_path / "flow", shape(senders=1, seconds=1.0, rate=1000.0))
    flow.go()
    batches = [step for step in flow.sends(0) if not isinstance(step, float)]
    assert len(batches) == 10
    due = [clock() - age(batch[0], clock()) - flow.began for batch in batches]
    assert due == pytest.approx([number * 0.1 for number in range(10)], abs=0.01)


# -- report -----------------------------------------------------------------------------------


def made_up(**changes: Any) -> dict[str, Any]:
    machine = {
        "at": "2026-01-01",
        "cores": 2,
        "processor": "",
        "memory_bytes": 0,
        "system": "",
        "file_system": "",
        "python": "",
        "load_average": [],
        "packages": {},
    }
    peer = {
        "name": "Redis Streams",
        "version": "7",
        "client": "",
        "synced": True,
        "promise": "",
        "batching": "",
    }
    return {
        "machine": machine,
        "quick": True,
        "took_s": 1,
        "peers": {"redis": peer},
        "missing": {},
        "results": {},
        "trials": {},
        **changes,
    }


def test_rates_are_compared_within_a_round() -> None:
    ours = [{"rate": rate} for rate in (100.0, 900.0, 200.0)]
    theirs: list[dict[str, Any]] = [{"rate": 50.0}, {"error": "it broke"}, {"rate": 50.0}]
    found = made_up(results={"mesh": {"many(1)": ours}, "redis": {"many(1)": theirs}})
    assert report.ratios(found, "mesh", "redis", "many(1)") == [2.0, 4.0]
    assert report.failures(found) == ["Redis Streams, many(1): it broke"]


def test_a_server_that_fails_in_one_round_shifts_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns = iter((None, FailedServer("it did not start"), None))

    @contextlib.contextmanager
    def started(module: str, place: Path) -> Iterator[None]:
        if (failure := next(turns)) is not None:
            raise failure
        yield

    monkeypatch.setattr(rounds, "started", started)
    monkeypatch.setattr(rounds, "shape", lambda *_: None)
    monkeypatch.setattr(measure, "run", lambda *_: {"rate": 50.0})
    monkeypatch.setattr(child, "run", lambda *_: {"rate": 100.0})
    lengths = Lengths(rounds=3, seconds=0.1, trial_s=0.0, latency_s=0.1)
    run = rounds.Rounds({"redis": "redis_streams"}, (1,), lengths, tmp_path, lambda _: None)
    run.run()
    assert ["error" in each for each in run.results["redis"]["many(1)"]] == [False, True, False]


def test_one_server_can_be_chosen() -> None:
    assert chosen(["redis"]) == ["redis"]
    assert chosen(["nats"]) == ["nats", "nats-synced"]
    assert chosen([]) == list(PEERS)
    assert chosen(["kafka"]) == []


# -- the command ------------------------------------------------------------------------------


def test_the_command_prints_tables_keeps_the_json_and_writes_the_page(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "--quick", "--only", "redis", "--batch", "100", "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "bench/results/peers.json").read_text(encoding="utf-8"))
    assert set(OURS) <= kept["results"].keys()
    assert set(kept["peers"]) | set(kept["missing"]) == {"redis"}
    for runs_of in kept["results"].values():
        [latency] = runs_of["latency"]
        assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    assert all(name in done.stdout for name in OURS.values())
    assert not (tmp_path / "bench/results/peers").exists()

    page = tmp_path / "docs/benchmarks-peers.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs/benchmarks-peers.md").read_text(encoding="utf-8"), encoding="utf-8")
    assert run_bench(tmp_path, "--write-docs").returncode == 0
    written = page.read_text(encoding="utf-8")
    assert "| many(100) | RelayMesh, threads |" in written
    assert written.count(report.BEGIN) == written.count(report.END) == 1


def test_the_command_knows_its_servers(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "--only", "kafka")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"no server is called kafka; there are {', '.join(PEERS)}\n"


def run_bench(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.peers", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
