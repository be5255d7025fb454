"""Messages of several frames, between a node and clients that know them or do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from relaymesh import AsyncMesh, Mesh
from relaymesh.wire import frames
from relaymesh.wire.bundles import bundle, unbundle
from relaymesh.wire.envelope import build_envelope
from relaymesh.wire.frames import decode_client, decode_node, encode
from tests.client.raw import PATIENCE_S, Raw
from tests.client.serving import ServerThread

CALLS = 20


class Binary(Raw):
    """A client that speaks MessagePack by hand."""

    def __init__(self, server: ServerThread, token: str, *, bundles: bool, resume: str | None = None) -> None:
        super().__init__(server, token, subprotocol=frames.SUBPROTOCOL_MSGPACK)
        self.socket.send(encode(frames.Hello(frames.PROTOCOL, resume=resume, bundles=bundles)))
        (self.hello_answer,) = self.message()

    def message(self) -> list[Any]:
        """The frames of the next message."""
        data = self.socket.recv(timeout=PATIENCE_S, decode=False)
        return [decode_node(part) for part in unbundle(data)]

    def answers(self, count: int) -> list[list[Any]]:
        """Messages, until they have had so many frames."""
        messages: list[list[Any]] = []
        while sum(map(len, messages)) < count:
            messages.append(self.message())
        return messages


PINGS = bundle([encode(frames.Ping(ref)) for ref in range(1, CALLS + 1)])


@pytest.fixture
def token(server: ServerThread) -> str:
    return server.token(["write", "read"])


def test_all_frames_of_a_message_are_answered_in_one_message(server: ServerThread, token: str) -> None:
    with Binary(server, token, bundles=True) as client:
        assert client.hello_answer.bundles
        client.socket.send(PINGS)
        (answers,) = client.answers(CALLS)
        assert [answer.ref for answer in answers] == list(range(1, CALLS + 1))


def test_a_client_that_reads_no_bundles_gets_none(server: ServerThread, token: str) -> None:
    with Binary(server, token, bundles=False) as client:
        assert not client.hello_answer.bundles
        client.socket.send(PINGS)
        assert [len(message) for message in client.answers(CALLS)] == [1] * CALLS


def test_a_question_that_comes_again_in_another_bundle_is_answered_as_before(
    server: ServerThread, token: str
) -> None:
    opened = encode(frames.Call(1, "open_mailbox", msgspec.Raw(encode(frames.OpenMailbox("planner")))))
    sent = encode(frames.Send(2, [("planner", [build_envelope("planner", {"n": 1}, id="same")])]))
    with Binary(server, token, bundles=True) as client:
        client.socket.send(opened)
        client.message()
        client.socket.send(bundle([encode(frames.Ping(9)), sent]))
        first = next(answer for message in client.answers(2) for answer in message if answer.ref == 2)
    with Binary(server, token, bundles=True, resume=client.hello_answer.session) as client:
        assert client.hello_answer.resumed
        client.socket.send(bundle([sent, encode(frames.Ping(10))]))
        again = next(answer for message in client.answers(2) for answer in message if answer.ref == 2)
    assert again == first
    assert not again.receipts[0][1], "done again, it would be a duplicate"


def test_a_bundle_with_one_unreadable_frame_ends_the_connection_before_any_is_begun(
    server: ServerThread, token: str
) -> None:
    with Binary(server, token, bundles=True) as client:
        client.socket.send(bundle([encode(frames.Ping(1)), b"\x81\xa2op\xa6no"]))
        assert client.closed()[0] == 1007


def test_a_mistyped_frame_in_a_bundle_stops_none_of_the_others(server: ServerThread, token: str) -> None:
    with Binary(server, token, bundles=True) as client:
        wrong = msgspec.msgpack.encode({"op": "ping", "ref": 2, "reff": 3})
        client.socket.send(bundle([encode(frames.Ping(1)), wrong, encode(frames.Ping(3))]))
        answers = {answer.ref: answer for message in client.answers(3) for answer in message}
        assert [type(answers[ref]) for ref in (1, 2, 3)] == [frames.Pong, frames.Problem, frames.Pong]


@pytest.mark.parametrize("first", [b"\x90", bundle([encode(frames.Ping(1)), encode(frames.Ping(2))])])
def test_a_bundle_without_hello_is_no_beginning(server: ServerThread, token: str, first: bytes) -> None:
    with Raw(server, token, subprotocol=frames.SUBPROTOCOL_MSGPACK) as client:
        client.socket.send(first)
        assert client.closed()[0] == 1002


def test_what_follows_hello_in_its_bundle_is_done(server: ServerThread, token: str) -> None:
    with Raw(server, token, subprotocol=frames.SUBPROTOCOL_MSGPACK) as client:
        client.socket.send(bundle([encode(frames.Hello(frames.PROTOCOL)), encode(frames.Ping(7))]))
        answers = [decode_node(client.socket.recv(timeout=PATIENCE_S, decode=False)) for _ in range(2)]
        assert isinstance(answers[0], frames.Welcome)
        assert answers[1].ref == 7


def test_what_follows_goodbye_in_its_bundle_is_not_begun(server: ServerThread, token: str) -> None:
    opened = encode(frames.Call(1, "open_mailbox", msgspec.Raw(encode(frames.OpenMailbox("late")))))
    with Binary(server, token, bundles=True) as client:
        client.socket.send(bundle([encode(frames.Goodbye()), opened]))
        assert client.closed()[0] == 1000
    with Mesh(server.url, token=token) as mesh:
        assert "default/late" not in mesh.stats().mailboxes


class Node:
    """A node that knows nothing but calls, and counts the messages that they come in."""

    def __init__(self, *, bundles: bool) -> None:
        self._bundles = bundles
        self.messages: list[int] = []

    async def answer(self, connection: ServerConnection) -> None:
        await connection.recv()
        welcome = frames.Welcome("0" * 32, "1.1", 1, 30_000, "default", 1_000, 100_000, bundles=self._bundles)
        await connection.send(encode(welcome))
        async for message in connection:
            assert isinstance(message, bytes)
            asked = [decode_client(part) for part in unbundle(message)]
            self.messages.append(len(asked))
            for frame in asked:
                if isinstance(frame, frames.Call):
                    await connection.send(encode(frames.Result(frame.ref)))
                else:
                    await connection.close()


@asynccontextmanager
async def mesh_of(node: Node) -> AsyncIterator[AsyncMesh]:
    protocol = Subprotocol(frames.SUBPROTOCOL_MSGPACK)
    async with serve(node.answer, "127.0.0.1", 0, subprotocols=[protocol]) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncMesh(f"http://127.0.0.1:{port}", token="t") as mesh:
            yield mesh


async def _ask_at_once(node: Node) -> None:
    async with mesh_of(node) as mesh:
        await asyncio.gather(*[mesh.agent(f"agent-{n}") for n in range(CALLS)])


def test_what_is_asked_in_one_turn_leaves_as_one_message() -> None:
    node = Node(bundles=True)
    asyncio.run(_ask_at_once(node))
    assert max(node.messages) == CALLS


def test_a_node_that_reads_no_bundles_gets_none() -> None:
    node = Node(bundles=False)
    asyncio.run(_ask_at_once(node))
    assert set(node.messages) == {1}
    assert len(node.messages) >= CALLS
