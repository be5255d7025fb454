"""HTTP and WebSocket spoken by hand over a blocking socket, well or badly: no library in between."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.attacks.pace import Tally

PATIENCE_S = 60.0
CHUNK_BYTES = 262_144
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


class Cut(OSError):
    """The node ended the connection, or refused to open it."""


class Connection:
    """One TCP connection."""

    def __init__(self, port: int, tally: Tally) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = port
        self._tally = tally
        self._read = bytearray()

    def send(self, data: bytes) -> None:
        """All of it; counted as it goes, since the node may never read the rest."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._sent(rest) :]

    def send_patiently(self, data: bytes, patience_s: float) -> bool:
        """Send until the node has read nothing for so long; whether all of it went."""
        rest = memoryview(data)
        while rest and self._happens(select.POLLOUT, patience_s) & select.POLLOUT:
            rest = rest[self._sent(rest) :]
        return not rest

    def _sent(self, data: memoryview) -> int:
        count = self._socket.send(data[:CHUNK_BYTES])
        self._tally.bytes += count
        return count

    def flood(self, data: bytes) -> int:
        """Send all of it, and throw away whatever comes meanwhile; answers how many bytes came."""
        rest, came = memoryview(data), 0
        while rest:
            happens = self._happens(select.POLLIN | select.POLLOUT, PATIENCE_S)
            if happens & select.POLLIN:
                got = self._socket.recv(CHUNK_BYTES)
                if not got:
                    raise Cut("the node closed the connection")
                came += len(got)
            if happens & select.POLLOUT:
                rest = rest[self._sent(rest) :]
            if not happens & (select.POLLIN | select.POLLOUT):
                raise Cut("the node neither reads nor writes")
        return came

    def is_open(self) -> bool:
        """Whether the node still holds the connection; what it said is thrown away."""
        try:
            return not self._happens(select.POLLIN, 0) or bool(self._socket.recv(CHUNK_BYTES))
        except OSError:
            return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def _happens(self, what: int, wait_s: float) -> int:
        waiting = select.poll()
        waiting.register(self._socket, what)
        return sum(event for _, event in waiting.poll(wait_s * 1000))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes:
        while len(self._read) < count:
            self._more()
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    def _until(self, mark: bytes) -> bytes:
        while (at := self._read.find(mark)) < 0:
            self._more()
        return self._exactly(at + len(mark))

    def _more(self) -> None:
        got = self._socket.recv(CHUNK_BYTES)
        if not got:
            raise Cut("the node closed the connection")
        self._read += got


class Http(Connection):
    """Requests one after the other."""

    def __init__(self, port: int, token: str, tally: Tally) -> None:
        super().__init__(port, tally)
        self._token = token

    def head(self, method: str, path: str, length: int | None = None) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: Bearer {self._token}",
        ]
        if length is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the answer. One that comes before the body was sent is read all the same."""
        try:
            self.send(self.head(method, path, None if body is None else len(body)) + (body or b""))
        except (BrokenPipeError, ConnectionResetError):
            pass
        head = self._until(b"\r\n\r\n").decode("latin-1").lower().split("\r\n")
        length = [int(line.split(":")[1]) for line in head if line.startswith("content-length:")]
        return int(head[0].split()[1]), self._exactly(length[0] if length else 0)


class WebSocket(Connection):
    """The protocol `relaymesh.v1.msgpack`, greeted with `hello` unless that is left out."""

    def __init__(self, port: int, token: str, tally: Tally, *, hello: bool = True) -> None:
        super().__init__(port, tally)
        self.send(
            (
                f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                "Sec-WebSocket-Protocol: relaymesh.v1.msgpack\r\n"
                f"Authorization: Bearer {token}\r\n\r\n"
            ).encode()
        )
        if b" 101 " not in self._until(b"\r\n\r\n").split(b"\r\n")[0]:
            self.close()
            raise Cut("the WebSocket was refused")
        self._ref = 0
        self._answered = 0
        if hello:
            self.tell({"op": "hello", "protocol": "1.1", "bundles": True})
            self.message()

    def tell(self, frame: Any) -> None:
        self.send(framed(msgspec.msgpack.encode(frame)))

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The node's answer to one frame; others that come before it are thrown away."""
        self._ref += 1
        self.tell({"op": op, "ref": self._ref, **fields})
        while True:
            answer = msgspec.msgpack.decode(self.message())
            for frame in answer if isinstance(answer, list) else [answer]:
                if frame.get("ref") == self._ref:
                    found: dict[str, Any] = frame
                    return found

    def answers(self, count: int) -> None:
        """Wait for so many more frames of the node."""
        self._answered -= count
        while self._answered < 0:
            answer = msgspec.msgpack.decode(self.message())
            self._answered += len(answer) if isinstance(answer, list) else 1

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("call", name=name, arguments=arguments)

    def message(self) -> bytes:
        """The next message of the node, which never sends one in fragments."""
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self._exactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._exactly(8))
            data = self._exactly(length)
            if first & 0x0F == CLOSE:
                raise Cut(f"the node closed the WebSocket: {data[2:].decode(errors='replace')}")
            if first & 0x0F == PING:
                self.send(framed(data, PONG))
            elif first & 0x0F != PONG:
                return data


def frame_head(length: int, opcode: int = BINARY, *, last: bool = True) -> bytes:
    """The head of a client's frame. Its mask is zero: the bytes behind it are sent as they are."""
    first = (0x80 if last else 0) | opcode
    if length < 126:
        return struct.pack("!BB4x", first, 0x80 | length)
    if length < 65_536:
        return struct.pack("!BBH4x", first, 0x80 | 126, length)
    return struct.pack("!BBQ4x", first, 0x80 | 127, length)


def framed(data: bytes, opcode: int = BINARY) -> bytes:
    return frame_head(len(data), opcode) + data


def heard_of(connections: Iterable[Connection]) -> set[Connection]:
    """Those on which something has happened: the node said something, or ended them."""
    by_descriptor = {each.fileno(): each for each in connections}
    waiting = select.poll()
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    return {by_descriptor[descriptor] for descriptor, _ in waiting.poll(0)}
