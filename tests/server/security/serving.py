"""A real server process, and ways to be rude to it byte by byte."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from relaymesh.server.security.tokens import TokenFile

START_SECONDS = 60.0
ANSWER_SECONDS = 30.0
SUBPROTOCOL = "relaymesh.v1.msgpack"


@dataclass(frozen=True)
class Serving:
    """A running server: where it is, who it is, and what it left in its folder."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    tokens: dict[str, str] = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """As a power cut would."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        return self.directory / "server"

    def bearer(self, name: str = "rw") -> str:
        return f"Authorization: Bearer {self.tokens[name]}"

    def client(self, name: str = "rw") -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.tokens[name]}"},
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_bytes().splitlines()]

    def is_well(self) -> bool:
        return httpx.get(f"{self.url}/healthz", timeout=ANSWER_SECONDS, trust_env=False).status_code == 200


def make_tokens(directory: Path) -> dict[str, str]:
    """A token of each kind, by name."""
    file = TokenFile(directory / "server")
    tokens = {
        "rw": file.create(["read", "write"])[1],
        "ro": file.create(["read"])[1],
        "admin": file.create(["admin"], namespace="*")[1],
        "coder": file.create(["agent:coder"], label="coder")[1],
        "planner": file.create(["agent:planner"], label="planner")[1],
        "team": file.create(["read", "write"], namespace="team")[1],
    }
    revoked, tokens["revoked"] = file.create(["admin"], namespace="*")
    file.revoke(revoked.id)
    tokens["expired"] = file.create(["admin"], namespace="*", lifetime_ms=1)[1]
    return tokens


@contextmanager
def serving(directory: Path, *words: str, program: Path | None = None, **limits: Any) -> Iterator[Serving]:
    """`relaymesh serve`, or `program` with its settings as JSON, as a process of its own."""
    tokens = make_tokens(directory)
    log = directory / "log.txt"
    address = directory / "server" / "address.json"
    address.unlink(missing_ok=True)
    if program is None:
        command = [sys.executable, "-m", "relaymesh.cli.main", "serve", "--port", "0", *words]
        command += ["--dir", str(directory)]
    else:
        command = [sys.executable, str(program), str(directory), json.dumps(limits)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RELAYMESH_")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not address.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        port = int(msgspec.json.decode(address.read_bytes())["url"].rpartition(":")[2])
        yield Serving(directory, port, process, log, tokens)
        assert process.poll() in (None, -signal.SIGKILL), log.read_text()
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


# -- speaking HTTP by hand


@dataclass(frozen=True)
class Heard:
    """What came back before the server closed; status 0 when it closed without a word."""

    raw: bytes

    @property
    def status(self) -> int:
        words = self.raw.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/1") else 0

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.raw.split(b"HTTP/1.1 ")[1:]]

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0].lower()

    @property
    def body(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])


def request(
    server: Serving,
    method: str = "GET",
    path: str = "/v1/stats",
    *headers: str,
    host: str | None = "",
    token: str | None = "rw",
    body: bytes | str = b"",
    length: bool = True,
) -> bytes:
    """A request as bytes. By default it is a good one that asks for the connection to be closed."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host or f'127.0.0.1:{server.port}'}")
    if token is not None:
        lines.append(server.bearer(token))
    lines += ["Connection: close", *headers]
    if data and length:
        lines.append(f"Content-Length: {len(data)}")
    if data and not any(header.lower().startswith("content-type") for header in headers):
        lines.append("Content-Type: application/json")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def say(server: Serving, data: bytes, *, seconds: float = ANSWER_SECONDS) -> Heard:
    """Send bytes and hear what comes until the server closes. A server that never closes fails."""
    with server.connect() as connection:
        connection.settimeout(seconds)
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had heard enough
        return hear(connection)


def hear(connection: socket.socket) -> Heard:
    heard = b""
    while True:
        try:
            part = connection.recv(65_536)
        except ConnectionResetError:
            return Heard(heard)
        if not part:
            return Heard(heard)
        heard += part


# -- speaking WebSocket by hand


def upgrade(
    server: Serving,
    *headers: str,
    path: str = "/v1/ws",
    host: str | None = "",
    token: str | None = "rw",
    version: str = "13",
    key: str | None = None,
    subprotocol: str = SUBPROTOCOL,
) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"]
    if host is not None:
        lines.append(f"Host: {host or f'127.0.0.1:{server.port}'}")
    if token is not None:
        lines.append(server.bearer(token))
    if key is None:
        key = base64.b64encode(os.urandom(16)).decode()
    if key:
        lines.append(f"Sec-WebSocket-Key: {key}")
    if version:
        lines.append(f"Sec-WebSocket-Version: {version}")
    if subprotocol:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n"


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, masked: bool = True, rsv: int = 0, length: int = -1
) -> bytes:
    """One frame; `length` lies about how long it is."""
    size = len(data) if length < 0 else length
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask | size])
    elif size < 65_536:
        head = bytes([first, mask | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, mask | 127]) + size.to_bytes(8, "big")
    return head + (b"\0\0\0\0" if masked else b"") + data


def opened(server: Serving, token: str = "rw") -> socket.socket:
    """A WebSocket after its handshake."""
    connection = server.connect()
    connection.sendall(upgrade(server, token=token))
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(1)
        assert part, head
        head += part
    assert head.startswith(b"HTTP/1.1 101"), head
    return connection


def close_code(connection: socket.socket) -> int:
    """The code of the close frame the server sends; 0 when it hangs up without one."""
    stream = connection.makefile("rb")
    try:
        while head := stream.read(2):
            size = head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
            data = stream.read(size)
            if head[0] & 0x0F == 8:
                return int.from_bytes(data[:2], "big")
    except (ConnectionResetError, IndexError):
        pass
    return 0
