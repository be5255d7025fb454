"""A conversation with a node over a WebSocket, frame by frame, in both protocols.

The clock stands still, message ids are given, and nothing is drawn by lot: every byte of an answer is known
beforehand but the session's id. `python -m tests.wire.recorded.conversation` writes the two recordings anew.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.testing import ManualClock
from relaymesh.wire import frames
from tests.client.serving import ServerThread

HERE = Path(__file__).parent
PATIENCE_S = 60.0
FIRST_TOKEN = 1 << 40 | 1
"""Of the first lease in the first epoch."""


def binary_frames() -> list[bytes]:
    """What the client says in `relaymesh.v1.msgpack`, in this order."""
    plain = MailboxSettings(backoff_jitter=0.0)
    once = MailboxSettings(backoff_jitter=0.0, delivery_semantics="at_most_once")
    first = FIRST_TOKEN
    said: list[frames.Asking] = [
        frames.Hello(frames.PROTOCOL),
        _call(1, "open_mailbox", frames.OpenMailbox("worker", plain)),
        _call(2, "open_mailbox", frames.OpenMailbox("once", once)),
        _call(3, "subscribe", frames.Subscribe("order.*", "audit", plain)),
        frames.Send(4, [("worker", _letters("a", 8))]),
        frames.Receive(5, "worker", 5, 0),
        frames.Receive(6, "worker", 100, 0),
        frames.Settle(7, acks=[first, first + 1, 77]),
        frames.Settle(8, nacks=[frames.NackItem(first + 2, reason="no", delay_ms=0)]),
        frames.Receive(9, "worker", 1, 0),
        frames.Settle(10, extends=[(first + 3, 60_000), (99, 1)]),
        frames.Send(11, [("worker", _letters("k", 3, key="red") + _letters("l", 2, task="t1"))]),
        frames.Receive(12, "worker", 10, 0),
        frames.Send(13, [("once", _letters("o", 3))]),
        frames.Receive(14, "once", 2, 0),
        frames.Receive(15, "once", 2, 0),
        frames.Publish(16, "order.made", _letters("p", 3)),
        frames.Publish(17, "order.paid", _letters("q", 2)),
        frames.Receive(18, "order.*:audit", 3, 0),
        frames.Receive(19, "order.*:audit", 3, 0),
        frames.Send(20, [("worker", _letters("w", 3) + _letters("z", 1, delay_ms=5_000))]),
        _call(21, "peek", frames.Peek("worker", 100)),
        _call(22, "peek", frames.Peek("order.*:audit", 2)),
        frames.Send(23, [("worker", _letters("solo", 1, priority=1, correlation_id="c1"))]),
        frames.Receive(24, "worker", 1, 0),
        frames.Reply(25, first + 10, [("worker", _letters("reply", 1))]),
        frames.Settle(26, drops=[first + 5], releases=[first + 6, first + 7]),
        frames.Receive(27, "worker", 10, 0),
    ]
    return [frames.encode(frame) for frame in said]


def text_frames() -> list[bytes]:
    """The same in `relaymesh.v1.json`."""
    plain = {"backoffJitter": 0}
    lease = "0.1.{}".format
    worker, audit = "worker", "order.*:audit"
    said: list[dict[str, object]] = [
        {"op": "hello", "protocol": frames.PROTOCOL},
        _asked(1, "open_mailbox", mailbox=worker, settings=plain),
        _asked(2, "open_mailbox", mailbox="once", settings={**plain, "deliverySemantics": "at_most_once"}),
        _asked(3, "subscribe", pattern="order.*", name="audit", settings=plain),
        {"op": "send", "ref": 4, "messages": _messages("a", 8, to=worker)},
        {"op": "receive", "ref": 5, "mailbox": worker, "max": 5},
        {"op": "receive", "ref": 6, "mailbox": worker, "max": 100},
        {"op": "settle", "ref": 7, "acks": [lease(1), lease(2), "0.1.77"]},
        {"op": "settle", "ref": 8, "nacks": [{"token": lease(3), "reason": "no", "delayMs": 0}]},
        {"op": "receive", "ref": 9, "mailbox": worker, "max": 1},
        {"op": "settle", "ref": 10, "extends": [{"token": lease(4), "ms": 60_000}]},
        {"op": "send", "ref": 11, "messages": _messages("k", 3, to=worker, metadata={"orderingKey": "red"})},
        {"op": "receive", "ref": 12, "mailbox": worker, "max": 10},
        {"op": "send", "ref": 13, "messages": _messages("o", 3, to="once")},
        {"op": "receive", "ref": 14, "mailbox": "once", "max": 2},
        {"op": "publish", "ref": 16, "topic": "order.made", "messages": _messages("p", 3)},
        {"op": "publish", "ref": 17, "topic": "order.paid", "messages": _messages("q", 2)},
        {"op": "receive", "ref": 18, "mailbox": audit, "max": 4},
        {"op": "send", "ref": 20, "messages": _messages("w", 3, to=worker)},
        _asked(21, "peek", mailbox=worker, limit=100),
        {"op": "receive", "ref": 27, "mailbox": worker, "max": 10},
    ]
    return [json.dumps(frame).encode() for frame in said]


def _letters(prefix: str, count: int, **fields: object) -> list[Envelope]:
    return [
        Envelope(f"{prefix}-{n}", "default/lead", b'{"n":%d}' % n, **fields)  # type: ignore[arg-type]
        for n in range(count)
    ]


def _messages(prefix: str, count: int, **fields: object) -> list[dict[str, object]]:
    return [{"id": f"{prefix}-{n}", "from": "lead", "content": n, **fields} for n in range(count)]


def _call(ref: int, name: str, arguments: frames.Arguments) -> frames.Call:
    return frames.Call(ref, name, msgspec.Raw(frames.encode(arguments)))


def _asked(ref: int, call: str, **arguments: object) -> dict[str, object]:
    return {"op": "call", "ref": ref, "name": call, "arguments": arguments}


def converse(path: Path, subprotocol: str, said: Iterable[bytes]) -> list[bytes]:
    """Say each frame to a new node, and wait for its answer. Answers what the node said, in order."""
    server = ServerThread(path, clock=ManualClock())
    try:
        with connect(
            server.url.replace("http", "ws") + frames.PATH,
            additional_headers={"Authorization": f"Bearer {server.token()}"},
            subprotocols=[Subprotocol(subprotocol)],
            compression=None,
            max_size=None,
        ) as socket:
            return [_answer(socket, frame, subprotocol) for frame in said]
    finally:
        server.stop()


def _answer(socket: ClientConnection, frame: bytes, subprotocol: str) -> bytes:
    socket.send(frame if subprotocol == frames.SUBPROTOCOL_MSGPACK else frame.decode())
    answer = socket.recv(timeout=PATIENCE_S)
    return answer.encode() if isinstance(answer, str) else answer


RECORDINGS = {
    frames.SUBPROTOCOL_MSGPACK: (HERE / "msgpack.txt", binary_frames),
    frames.SUBPROTOCOL_JSON: (HERE / "json.txt", text_frames),
}


def read(path: Path) -> list[tuple[bytes, bytes]]:
    """What was said, and what was answered."""
    lines = path.read_bytes().splitlines()
    if path.name == "msgpack.txt":
        lines = [base64.b64decode(line) for line in lines]
    return list(zip(lines[::2], lines[1::2], strict=True))


def write(path: Path, said: Iterable[bytes], answers: Iterable[bytes]) -> None:
    lines = [line for pair in zip(said, answers, strict=True) for line in pair]
    if path.name == "msgpack.txt":
        lines = [base64.b64encode(line) for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def main() -> None:
    for subprotocol, (path, script) in RECORDINGS.items():
        with tempfile.TemporaryDirectory() as directory:
            said = script()
            write(path, said, converse(Path(directory), subprotocol, said))


if __name__ == "__main__":
    main()
