"""Hostile frames and calls over the WebSocket, drawn from the types that the node reads them with."""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect as types
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from relaymesh.kernel.envelope import Envelope
from relaymesh.server.ws import text
from relaymesh.server.ws.calls import CALLS
from relaymesh.wire import frames
from relaymesh.wire.bundles import unbundle
from relaymesh.wire.message import Message
from tests.hostile.report import Report
from tests.hostile.station import PATIENCE_S, Station, lives
from tests.hostile.tree import JSON_VALUES, MSGPACK_VALUES, Bytes, Grow, as_json, as_msgpack, spoil

CLOSES = {1000, 1002, 1003, 1007, 1009, 1013}
"""How a node may end a connection for what a client did; 1011 is a mistake of its own."""
RESET = 1006
"""The node hangs up at once over a text that is no UTF-8. If the client sends on meanwhile, the reset of the
connection may overtake the close frame."""
DEAD = {"INTERNAL", "JOURNAL_POISONED", "CLOSED"}
QUIET = {"credit", "cancel", "goodbye"}
"""Frames that are not answered."""
WAITING = {"send", "publish", "receive"}
PING_REF = 4_000_000_000
ARGUMENTS: dict[type, type] = {frames.OpenMailbox: text.OpenMailbox, frames.Subscribe: text.Subscribe}
"""Arguments that have another form in JSON."""


class Protocol(msgspec.Struct, frozen=True):
    """One of the two ways to write a frame."""

    name: str
    subprotocol: str
    union: Any
    values: tuple[Any, ...]
    write: Callable[[Any], bytes]
    read: Callable[[Any], list[dict[str, Any]]]

    @property
    def binary(self) -> bool:
        return self.name == "websocket-msgpack"


def _read_json(message: Any) -> list[dict[str, Any]]:
    return [msgspec.json.decode(message)]


def _read_msgpack(message: Any) -> list[dict[str, Any]]:
    return [msgspec.msgpack.decode(part) for part in unbundle(message)]


JSON = Protocol("websocket-json", frames.SUBPROTOCOL_JSON, text.ClientFrame, JSON_VALUES, as_json, _read_json)
MSGPACK = Protocol(
    "websocket-msgpack",
    frames.SUBPROTOCOL_MSGPACK,
    frames.ClientFrame,
    MSGPACK_VALUES,
    as_msgpack,
    _read_msgpack,
)


class Client:
    """Frames of one run. A connection that the node ends is opened again."""

    def __init__(self, station: Station, report: Report, rng: random.Random, protocol: Protocol) -> None:
        self._station = station
        self._report = report
        self._rng = rng
        self._protocol = protocol
        self._grow = Grow(rng, self._known)
        self._frames: dict[str, types.StructType] = {}
        for kind in get_args(protocol.union):
            info = types.type_info(kind)
            assert isinstance(info, types.StructType)
            self._frames[str(info.tag)] = info
        self.names = [f"frame {tag}" for tag in self._frames] + [f"call {name}" for name in CALLS]
        self._message = types.type_info(Message)
        self._socket: ClientConnection | None = None
        self._opened: Any = None
        self._served: Any = None
        self._ref = 0

    def _known(self, name: str) -> Any:
        if name in ("token", "ack", "drop", "release"):
            tokens: list[Any] = (
                self._station.tokens() if self._protocol.binary else self._station.deliveries()
            )
            return self._rng.choice(tokens) if tokens else (1 if self._protocol.binary else "0.1.1")
        if name == "extend" and self._protocol.binary:
            return [self._known("token"), 1_000]
        if name == "letter":
            return list(self._rng.choice(self._station.letters() or [("default/a1", 1)]))
        if name == "group":
            envelope = types.type_info(Envelope)
            return ["default/a1", [self._grow.typed(envelope)]]
        if name in ("message", "envelope") and not self._protocol.binary:
            return {**self._grow.typed(self._message), "from": "a1", "to": "a1"}
        if name == "id" and self._rng.random() < 0.9:
            self._ref += 1
            return f"made-{self._ref}"
        return None

    # -- one frame

    def one(self) -> None:
        name = self._chosen()
        kind, _, which = name.partition(" ")
        tag = "call" if kind == "call" else which
        frame = self._grow.typed(self._frames[tag])
        self._ref += 1
        if "ref" in [each.encode_name for each in self._frames[tag].fields]:
            frame["ref"] = self._ref
        if tag == "call":
            frame["name"] = which if kind == "call" else self._rng.choice(list(CALLS))
            frame["arguments"] = self._arguments(frame["name"])
        if tag == "publish" and not self._protocol.binary:
            frame["messages"] = [{**each, "to": None} for each in frame.get("messages") or ()]
        hostile = self._rng.random() < 0.75
        if hostile and tag == "call" and self._rng.random() < 0.9:
            frame["arguments"] = spoil(frame["arguments"], self._rng, self._protocol.values)
        elif hostile:
            frame = spoil(frame, self._rng, self._protocol.values, spare=frozenset({"op"}))
        self._tell(name, tag, frame, int(hostile))

    def _chosen(self) -> str:
        missing = [name for name in self.names if not self._report.calls[name]]
        if missing and self._rng.random() < 0.3:
            return self._rng.choice(missing)
        weights = [
            8 if name in ("frame settle", "frame send") else 0.3 if name in RARE else 1 for name in self.names
        ]
        return self._rng.choices(self.names, weights)[0]

    def _arguments(self, name: str) -> Any:
        kind: type = CALLS[name].arguments
        if not self._protocol.binary:
            kind = ARGUMENTS.get(kind, kind)
        return self._grow.typed(types.type_info(kind))

    def _tell(self, name: str, tag: str, frame: Any, hostile: int) -> None:
        try:
            data = self._protocol.write(frame)
        except (OverflowError, UnicodeEncodeError, ValueError, TypeError, RecursionError):
            return  # no client can write it
        self._station.line = f"{self._protocol.name}: {data[:1200]!r}"
        refused = self._exchange(name, tag, frame, data)
        self._report.called(name, refused=refused, hostile=hostile)

    def _exchange(self, name: str, tag: str, frame: Any, data: bytes) -> bool:
        """Send, and read until it is answered; whether it was refused."""
        try:
            socket = self._connected(greet=tag != "hello" or self._rng.random() < 0.3)
            socket.send(
                data if self._protocol.binary else _text(data), text=None if self._protocol.binary else True
            )
            return self._answer(socket, name, tag, frame)
        except ConnectionClosed as closed:
            self._drop()
            code = closed.rcvd.code if closed.rcvd is not None else 1006
            if code not in CLOSES and not (code == RESET and self._is_no_text(data)):
                self._station.surprise(name, f"the connection ended with {code}", str(closed.rcvd))
            return True
        except TimeoutError:
            self._drop()
            self._station.surprise(name, "no answer", f"within {PATIENCE_S} s")
            return True
        except (OSError, WebSocketException) as error:
            self._drop()
            self._station.surprise(name, "the connection broke", f"{type(error).__name__}: {error}")
            return True

    def _is_no_text(self, data: bytes) -> bool:
        if self._protocol.binary:
            return False
        try:
            data.decode()
        except UnicodeDecodeError:
            return True
        return False

    def _answer(self, socket: ClientConnection, name: str, tag: str, frame: Any) -> bool:
        if tag == "hello":
            refused = self._judge(name, self._next(socket))
            self._drop()
            return refused
        ref = frame.get("ref") if isinstance(frame, dict) else None
        answered = tag in QUIET or not isinstance(ref, int) or isinstance(ref, (bool, Bytes))
        self._ref += 1
        ping = PING_REF + self._ref
        if tag == "receive" and not answered:
            socket.send(*self._written({"op": "cancel", "ref": ref}))
        socket.send(*self._written({"op": "ping", "ref": ping}))
        alive = refused = False
        while not (alive and answered):
            patience = 1.0 if alive and tag in WAITING else PATIENCE_S
            try:
                messages = self._protocol.read(socket.recv(timeout=patience))
            except TimeoutError:
                if not (alive and tag in WAITING):
                    raise
                self._drop()  # it waits for room, or for mail, as it asked to
                return False
            for said in messages:
                alive = alive or said.get("ref") == ping
                answered = answered or said.get("ref") == ref
                refused = self._judge(name, said) or refused
        return refused

    def _judge(self, name: str, said: dict[str, Any]) -> bool:
        """Whether a frame of the node is a refusal; a bad one is a surprise."""
        if said.get("op") != "problem":
            return False
        if not said.get("hint"):
            self._station.surprise(name, f"{said.get('code')} has no hint", str(said)[:500])
        if said.get("code") in DEAD:
            self._station.surprise(name, f"{said['code']}", str(said)[:500])
        return True

    # -- the connection

    def _connected(self, *, greet: bool) -> ClientConnection:
        if self._socket is not None and self._served is self._station.server and greet:
            return self._socket
        self._drop()
        self._served = self._station.server
        self._opened = connect(
            self._served.url.replace("http", "ws") + frames.PATH,
            additional_headers={"Authorization": f"Bearer {self._station.token}"},
            subprotocols=[Subprotocol(self._protocol.subprotocol)],
            compression=None,
            open_timeout=PATIENCE_S,
            close_timeout=1,
            ping_interval=None,
            max_size=None,
        )
        self._socket = self._opened.__enter__()
        if greet:
            self._socket.send(*self._written({"op": "hello", "protocol": frames.PROTOCOL}))
            self._next(self._socket)
        return self._socket

    def _written(self, frame: dict[str, Any]) -> tuple[Any]:
        data = self._protocol.write(frame)
        return (data if self._protocol.binary else data.decode(),)

    def _next(self, socket: ClientConnection) -> dict[str, Any]:
        return self._protocol.read(socket.recv(timeout=PATIENCE_S))[0]

    def _drop(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(Exception):
                self._opened.__exit__(None, None, None)
        self._socket = None


RARE = {"call checkpoint", "frame hello", "frame goodbye"}


def _text(data: bytes) -> bytes:
    """A text message may hold bytes that are no UTF-8: the library is told to send them all the same."""
    return data


def _run(protocol: Protocol, calls: int, seed: int) -> Report:
    logging.getLogger("relaymesh").setLevel(logging.CRITICAL)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        report = Report(protocol.name, seed, [])
        station = Station(Path(folder), report, rng)
        client = Client(station, report, rng, protocol)
        try:
            report.calls.update(dict.fromkeys(client.names, 0))
            lives(station, calls, client.one)
        finally:
            client._drop()
            station.stop()
        return report


def run_json(calls: int, seed: int) -> Report:
    """A run over `relaymesh.v1.json`."""
    return _run(JSON, calls, seed)


def run_msgpack(calls: int, seed: int) -> Report:
    """A run over `relaymesh.v1.msgpack`."""
    return _run(MSGPACK, calls, seed)
