"""The server as a process: killed, restarted, asked to stop once and twice, and left by its disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from relaymesh.server.address import read_address
from tests.server.processes import CHILD, PATIENCE_S, Process, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

RSS_MAX_KB = 100_000


def send(process: Process, *ids: str) -> None:
    messages = [{"from": "planner", "to": "coder", "content": {"id": id}, "id": id} for id in ids]
    process.post("/v1/messages", messages)


def received(process: Process, most: int = 100) -> list[str]:
    answer = process.post("/v1/mailboxes/coder/receive", {"max": most})
    return [each["message"]["id"] for each in answer["deliveries"]]


def ask_to_fail(directory: Path) -> None:
    (directory / "fail").touch()


def hold_a_request(process: Process) -> socket.socket:
    """A request whose body never ends."""
    parts = urlsplit(process.url)
    assert parts.hostname is not None
    line = socket.create_connection((parts.hostname, parts.port or 0), PATIENCE_S)
    token = process.client.headers["authorization"]
    head = f"POST /v1/settle HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: {token}\r\n"
    line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert process.client.get("/healthz").is_success  # it was read before this one was
    return line


def test_after_a_kill_everything_receipted_is_there_and_the_stale_address_is_ignored(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as process:
        process.client.put("/v1/mailboxes/coder")
        send(process, "a", "b", "c")
        assert received(process, 1) == ["a"]
        found = read_address(data)
        assert found is not None
        assert (found.url, found.pid) == (process.url, process.popen.pid)
        process.signal(signal.SIGKILL)
        process.wait()
        assert (data / "server" / "address.json").exists()
        assert read_address(data) is None
    with running(data) as process:
        assert received(process) == ["b", "c"]
        assert process.client.get("/v1/node").json()["epoch"] == 2
        again = process.post(
            "/v1/messages", {"from": "planner", "to": "coder", "content": {"id": "a"}, "id": "a"}
        )
        assert again["duplicate"]


def test_a_stop_ends_polls_exits_with_0_and_leaves_no_address(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as process, ThreadPoolExecutor(1) as threads:
        process.client.put("/v1/mailboxes/coder")
        process.client.put("/v1/mailboxes/idle")
        send(process, "a", "b")
        poll = threads.submit(process.post, "/v1/mailboxes/idle/receive", {"waitMs": 60_000})
        while "relaymesh_web_polls 1" not in process.client.get("/metrics").text:
            pass
        assert process.stop() == 0
        assert poll.result(PATIENCE_S)["deliveries"] == []
        assert not (data / "server" / "address.json").exists()
        assert not (data / "server" / "local.token").exists()
        assert "recovery point: everything before sequence" in process.said
    with running(data) as process:
        assert received(process) == ["a", "b"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_remote_holder_keeps_its_token_across_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with running(data) as process:
        process.client.put("/v1/mailboxes/coder")
        send(process, "a")
        [delivery] = process.post("/v1/mailboxes/coder/receive", {})["deliveries"]
        process.signal(number)
        process.wait()
    with running(data) as process:
        assert received(process) == []
        [result] = process.post("/v1/settle", {"acks": [delivery["token"]]})["results"]
        assert result["outcome"] == "acked"


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path, ignored_hangup: None) -> None:
    """`nohup relaymesh serve &`, and then the terminal is closed."""
    data = tmp_path / "data"
    with running(data) as process:
        process.client.put("/v1/mailboxes/coder")
        process.signal(signal.SIGHUP)
        send(process, "a")
        assert process.stop() == 0
        assert "SIGHUP" not in process.said
    with running(data) as process:
        assert received(process) == ["a"]


@pytest.mark.usefixtures("default_signals")
def test_a_hangup_stops_it_in_order(tmp_path: Path) -> None:
    with running(tmp_path / "data") as process:
        process.signal(signal.SIGHUP)
        assert process.wait() == 0
        assert "SIGHUP: stopping within" in process.said


@pytest.mark.usefixtures("default_signals")
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--graceful-timeout", "3000") as process:
        process.client.put("/v1/mailboxes/coder")
        send(process, "a")
        line = hold_a_request(process)
        process.signal(signal.SIGTERM)
        while "stopping within" not in process.said:
            assert process.popen.poll() is None
        process.signal(signal.SIGINT)
        assert process.wait() == 1
        line.close()
        assert "cut short" in process.said
    with running(data) as process:
        assert received(process) == ["a"]


def test_a_client_that_never_ends_keeps_a_stop_from_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--graceful-timeout", "5") as process:
        line = hold_a_request(process)
        assert process.stop() == 0
        line.close()
        assert "1 connections did not end in time" in process.said
        assert "recovery point" in process.said
        assert not (data / "server" / "address.json").exists()


def test_a_journal_that_fails_is_503_and_ends_the_process_with_an_error(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as process:
        process.client.put("/v1/mailboxes/coder")
        send(process, "a")
        ask_to_fail(data)
        answer = process.client.post("/v1/messages", json={"from": "planner", "to": "coder", "content": 1})
        assert (answer.status_code, answer.json()["code"]) == (503, "JOURNAL_POISONED")
        assert process.wait() == 1
        assert "JOURNAL_POISONED" in process.said
        assert not (data / "server" / "address.json").exists()
    (data / "fail").unlink()
    with running(data) as process:
        assert "a" in received(process)


def test_a_second_server_on_the_same_directory_says_where_the_first_one_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as process:
        second = subprocess.run(
            [sys.executable, str(CHILD), "serve", "--port", "0", "--dir", str(data)],
            capture_output=True,
            timeout=PATIENCE_S,
            env={**os.environ, "FAIL_FILE": str(data / "fail")},
            check=False,
        )
        assert second.returncode == 5
        assert process.url in second.stderr.decode()
        assert process.client.get("/healthz").is_success


def test_what_cannot_be_served_is_refused_with_exit_code_2(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(CHILD), "serve", "--dir", str(tmp_path / "data"), "--host", "0.0.0.0"],
        capture_output=True,
        timeout=PATIENCE_S,
        env={**os.environ, "FAIL_FILE": str(tmp_path / "fail")},
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert "--tls-cert" in ran.stderr.decode()


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = subprocess.run(
            [
                sys.executable,
                str(CHILD),
                "dev",
                "--port",
                str(taken.getsockname()[1]),
                "--dir",
                str(tmp_path),
            ],
            capture_output=True,
            timeout=PATIENCE_S,
            env={**os.environ, "FAIL_FILE": str(tmp_path / "fail")},
            check=False,
        )
    assert ran.returncode == 2
    assert "--port" in ran.stderr.decode()


@pytest.mark.usefixtures("default_signals")
def test_dev_says_where_everything_is_and_stops_with_0_on_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(CHILD), "dev", "--port", "0", "--dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FAIL_FILE": str(tmp_path / "fail")},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "curl" not in lines[-1]:
            lines.append(process.stdout.readline().decode())
            assert lines[-1], process.communicate(timeout=PATIENCE_S)
        said = "".join(lines)
        for word in ("API      http://127.0.0.1:", "/docs", str(tmp_path / "data"), "local.token"):
            assert word in said
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_an_idle_node_needs_less_than_100_mb(tmp_path: Path) -> None:
    with running(tmp_path / "data") as process:
        process.client.put("/v1/mailboxes/coder")
        send(process, "a")
        status = Path(f"/proc/{process.popen.pid}/status").read_text()
        [resident] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
        assert resident < RSS_MAX_KB
