"""Too slow, too many, too much: against a real server process whose limits are small."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.security.serving import (
    Serving,
    close_code,
    frame,
    hear,
    opened,
    request,
    say,
    serving,
    upgrade,
)

PROGRAM = Path(__file__).with_name("strict_node.py")
CONNECTIONS = 24
SLOW_SECONDS = 30.0
"""How long a slow one is tolerated by these tests; the server is told 1 or 2 seconds."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(
        tmp_path_factory.mktemp("strict"),
        program=PROGRAM,
        header_seconds=1.0,
        body_seconds=1.0,
        body_rate_min=1024,
        write_seconds=1.0,
        write_buffer_bytes_max=262_144,
        connections_max=CONNECTIONS,
        write_rate=500.0,
        write_burst=1_500.0,
        bulk_rate=0.0,
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _well_after_each(server: Serving) -> Iterator[None]:
    yield
    deadline = time.monotonic() + SLOW_SECONDS
    while not server.is_well():  # while the last connections are being closed it may say 503
        assert time.monotonic() < deadline
        time.sleep(0.05)


def trickle(connection: socket.socket, data: bytes) -> bytes:
    """Send a byte now and then, for ever; what was heard when the server had had enough."""
    connection.settimeout(0.1)
    heard = b""
    deadline = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < deadline:
        try:
            connection.sendall(data)
            part = connection.recv(65_536)
        except TimeoutError:
            continue
        except OSError:
            return heard
        if not part:
            return heard
        heard += part
    pytest.fail(f"tolerated for {SLOW_SECONDS} s")


# -- slow


def test_a_head_that_never_ends_is_cut_off(server: Serving) -> None:
    with server.connect() as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX: ".encode())
        assert trickle(connection, b"a") == b""


def test_a_connection_that_says_nothing_is_closed(server: Serving) -> None:
    with server.connect() as connection:
        connection.settimeout(SLOW_SECONDS)
        assert hear(connection).raw == b""


def test_empty_lines_are_no_request(server: Serving) -> None:
    with server.connect() as connection:
        assert trickle(connection, b"\r\n") == b""


def test_the_second_request_of_a_connection_must_hurry_too(server: Serving) -> None:
    with server.connect() as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert b"HTTP/1.1" not in trickle(connection, b"a")


def test_a_body_that_trickles_is_answered_408(server: Serving) -> None:
    with server.connect() as connection:
        head = request(
            server, "POST", "/v1/messages", "Content-Length: 4000", "Content-Type: application/json"
        )
        connection.sendall(head)
        assert trickle(connection, b" ").startswith(b"HTTP/1.1 408")


def test_chunks_that_trickle_are_answered_408(server: Serving) -> None:
    with server.connect() as connection:
        connection.sendall(request(server, "POST", "/v1/messages", "Transfer-Encoding: chunked"))
        assert trickle(connection, b"1\r\n \r\n").startswith(b"HTTP/1.1 408")


def test_the_body_of_a_refused_request_may_not_trickle_on(server: Serving) -> None:
    with server.connect() as connection:
        head = request(server, "POST", "/v1/messages", "Content-Length: 4000", token=None)
        connection.sendall(head.replace(b"Connection: close\r\n", b""))
        assert trickle(connection, b" ").startswith(b"HTTP/1.1 401")


def test_the_body_of_a_read_may_not_trickle_on(server: Serving) -> None:
    with server.connect() as connection:
        head = request(server, "GET", "/v1/stats", "Content-Length: 4000")
        connection.sendall(head.replace(b"Connection: close\r\n", b""))
        assert trickle(connection, b" ").startswith(b"HTTP/1.1 200")


def test_half_a_handshake_is_cut_off(server: Serving) -> None:
    with server.connect() as connection:
        connection.sendall(upgrade(server)[:-2])
        assert trickle(connection, b"X: y\r\n") == b""


def test_a_websocket_message_in_slow_fragments_is_cut_off(server: Serving) -> None:
    with opened(server, "admin") as connection:
        connection.sendall(frame(2, b"x", fin=False))
        trickle(connection, frame(0, b"x", fin=False))


# -- readers who do not read


def small_window(server: Serving) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(SLOW_SECONDS)
    connection.connect(("127.0.0.1", server.port))
    return connection


def push_until_cut_off(connection: socket.socket, data: bytes) -> None:
    """Send on and on without reading anything. A server that takes it all, or waits for ever, fails."""
    deadline = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < deadline:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return
    pytest.fail("it took it all")


def test_requests_that_do_not_wait_for_their_answers_are_cut_off(server: Serving) -> None:
    """uvicorn alone would keep them all in memory."""
    one = request(server, "GET", "/healthz", token=None).replace(b"Connection: close\r\n", b"")
    with small_window(server) as connection:
        push_until_cut_off(connection, one * 50)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
def test_a_reader_who_does_not_read_its_answer_is_cut_off(server: Serving) -> None:
    with server.client("admin") as client:
        assert client.put("/v1/mailboxes/heap", json={}).status_code == 200
        sent = client.post("/v1/messages", json={"to": "heap", "from": "me", "content": "x" * 10_000_000})
        assert sent.status_code == 202, sent.text
    with small_window(server) as connection:
        connection.sendall(request(server, "GET", "/v1/mailboxes/heap"))
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert is_held(server, connection)
        deadline = time.monotonic() + SLOW_SECONDS
        while is_held(server, connection):
            assert time.monotonic() < deadline, "its answer is still kept for it"
            time.sleep(0.05)


def is_held(server: Serving, connection: socket.socket) -> bool:
    """Whether the server's process still has its end of the connection, as the kernel tells."""
    ends = f":{server.port:04X}", f":{connection.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
            return fields[9] != "0"  # the inode: there is none without a process
    return False


def test_pings_whose_pongs_nobody_reads_are_cut_off(server: Serving) -> None:
    with small_window(server) as connection:
        connection.sendall(upgrade(server, token="admin"))
        assert connection.recv(12) == b"HTTP/1.1 101"
        push_until_cut_off(connection, frame(9, b"x" * 125) * 500)


def test_a_flood_of_pings_is_read_more_slowly_and_others_are_served(server: Serving) -> None:
    with opened(server, "ro") as connection, server.client("rw") as other:
        assert other.put("/v1/mailboxes/calm", json={}).status_code == 200
        flood = threading.Thread(target=_flood, args=(connection, frame(9) * 50_000), daemon=True)
        flood.start()
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            sent = other.post("/v1/messages", json={"to": "calm", "from": "me", "content": 1})
            assert sent.status_code == 202
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.0
        assert flood.is_alive()  # 50,000 pings at 500 a second: it is not through yet
        connection.shutdown(socket.SHUT_RDWR)  # a thread that sends keeps a closed socket open
        flood.join(SLOW_SECONDS)


def _flood(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        for _ in range(200):
            connection.sendall(data)


def test_unfinished_messages_stop_their_own_credential_alone(server: Serving) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(server, "ro")) for _ in range(8)]
        for connection in held:
            connection.settimeout(SLOW_SECONDS)
            with contextlib.suppress(OSError):
                connection.sendall(frame(2, b"x" * 15_000_000, length=16_000_000))
        codes = {close_code(connection) for connection in held}  # the others are slow: they are cut off
        assert 1013 in codes
        with server.client("rw") as other:
            assert other.put("/v1/mailboxes/calm", json={}).status_code == 200


# -- too many


def test_more_connections_than_allowed_are_told_so_and_closed(server: Serving) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(server, "admin")) for _ in range(CONNECTIONS // 2)]
        held += [stack.enter_context(opened(server, "rw")) for _ in range(CONNECTIONS // 2)]
        refused = say(server, request(server, "GET", "/healthz", token=None))
        assert refused.status == 503
        assert b"retry-after" in refused.head
        assert refused.body["code"] == "TOO_MANY_CONNECTIONS"
        assert say(server, upgrade(server)).status == 503
        held[0].close()
        deadline = time.monotonic() + SLOW_SECONDS
        while say(server, request(server, "GET", "/healthz", token=None)).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_connections_without_a_token_make_room_for_those_with_one(server: Serving) -> None:
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(opened(server, "admin"))
        half_open = [stack.enter_context(server.connect()) for _ in range(3 * CONNECTIONS)]
        for connection in half_open:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /v1/stats HTTP/1.1\r\nHost:")
        for _ in range(5):
            assert say(server, request(server)).status == 200
        known.sendall(frame(9, b"still here"))
        assert known.recv(2) == bytes([0x8A, 10])


def test_one_credential_never_has_all_connections(server: Serving) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS // 2):
            stack.enter_context(opened(server, "planner"))
        refused = say(server, upgrade(server, token="planner"))
        assert refused.status == 503
        assert refused.body["code"] == "TOO_MANY_CONNECTIONS"
        assert say(server, request(server)).status == 200


def test_writes_beyond_the_rate_are_answered_429_and_others_go_on(server: Serving) -> None:
    with server.client("planner") as planner, server.client("rw") as other:
        statuses = []
        for _ in range(60):
            answer = planner.post("/v1/messages", json={"to": "nobody", "content": "x" * 1_000_000})
            statuses.append(answer.status_code)
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["code"] == "RATE_LIMITED"
                assert answer.json()["retryable"] is True
        assert 429 in statuses
        assert statuses[0] == 404
        assert planner.get("/v1/stats").status_code == 200  # reads are not counted
        assert other.put("/v1/mailboxes/coder", json={}).status_code == 200
        metrics = other.get("/metrics").text
    [counted] = re.findall(r"^relaymesh_\w*write_rate_limited\w* (\S+)$", metrics, re.MULTILINE)
    assert float(counted) >= statuses.count(429)


# -- descriptors


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_running_out_of_descriptors_neither_spins_nor_stops_the_journal(tmp_path: Path) -> None:
    with serving(tmp_path / "few", program=PROGRAM, descriptors=160, header_seconds=60.0) as few:
        with few.client("rw") as client, contextlib.ExitStack() as stack:
            assert client.put("/v1/mailboxes/coder", json={}).status_code == 200
            for _ in range(300):
                stack.enter_context(few.connect())
            before = cpu_seconds(few.pid)
            time.sleep(1.0)
            assert cpu_seconds(few.pid) - before < 0.5
            sent = client.post("/v1/messages", json={"to": "coder", "from": "planner", "content": 1})
            assert sent.status_code == 202, sent.text
            assert descriptors(few.pid) < 160
        deadline = time.monotonic() + SLOW_SECONDS
        while not few.is_well():
            assert time.monotonic() < deadline


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
