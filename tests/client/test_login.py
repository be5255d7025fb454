"""A WebSocket that brings its credential in `hello`: a browser cannot send the header Authorization."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from relaymesh.server.address import server_folder
from relaymesh.server.ws import login
from tests.client.raw import Raw
from tests.client.serving import ServerThread

PATIENCE_S = 60.0
JSON = "relaymesh.v1.json"


@contextmanager
def opened(server: ServerThread, subprotocol: str = JSON, **headers: str) -> Iterator[ClientConnection]:
    """A connection without a credential."""
    with connect(
        server.url.replace("http", "ws") + "/v1/ws",
        additional_headers=headers,
        subprotocols=[Subprotocol(subprotocol)],
        compression=None,
    ) as socket:
        yield socket


def ask(socket: ClientConnection, **frame: Any) -> Any:
    socket.send(json.dumps(frame))
    return json.loads(socket.recv(PATIENCE_S))


def hello(socket: ClientConnection, **fields: Any) -> Any:
    return ask(socket, op="hello", protocol="1.1", **fields)


def closed(socket: ClientConnection) -> int:
    try:
        while True:
            socket.recv(timeout=PATIENCE_S)
    except ConnectionClosed:
        frame = socket.protocol.close_rcvd
        return frame.code if frame is not None else 1006


def test_a_token_in_hello_is_as_good_as_one_in_the_header(server: ServerThread) -> None:
    with Raw(server, server.token()) as admin:
        admin.ask(op="call", name="open_mailbox", arguments={"mailbox": "coder"})
    with opened(server) as socket:
        assert hello(socket, token=server.token(["agent:coder"]))["op"] == "welcome"
        sent = ask(socket, op="send", ref=1, messages=[{"to": "coder", "content": 1}])
        assert sent["op"] == "receipts"
        got = ask(socket, op="receive", ref=2, mailbox="coder")["deliveries"]
        assert got[0]["message"]["from"] == "default/coder"
        assert ask(socket, op="receive", ref=3, mailbox="planner")["code"] == "UNAUTHORIZED"


def test_messagepack_takes_it_too(server: ServerThread) -> None:
    with opened(server, "relaymesh.v1.msgpack") as socket:
        frame = {"op": "hello", "protocol": "1.1", "token": server.token(["read"])}
        socket.send(msgspec.msgpack.encode(frame))
        assert msgspec.msgpack.decode(socket.recv(PATIENCE_S, decode=False))["op"] == "welcome"


@pytest.mark.parametrize("fields", [{}, {"token": "rm_wrong"}, {"token": ""}, {"token": None}])
def test_without_a_valid_token_nothing_is_done(server: ServerThread, fields: dict[str, Any]) -> None:
    with opened(server) as socket:
        problem = hello(socket, **fields)
        assert (problem["op"], problem["code"]) == ("problem", "UNAUTHORIZED")
        assert "token" in problem["hint"]
        assert closed(socket) == 4401
    assert not server.served.node.core.read(lambda kernel: kernel.state.mailboxes)


@pytest.mark.parametrize("frame", ['{"op":"ping","ref":1}', "nonsense", '{"op":"hello","protocol":7}'])
def test_what_is_no_hello_ends_it(server: ServerThread, frame: str) -> None:
    with opened(server) as socket:
        socket.send(frame)
        assert closed(socket) in (1002, 4401)


def test_a_hello_that_never_comes_is_not_waited_for(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "LOGIN_S", 0.05)
    with opened(server) as socket:
        assert closed(socket) == 4401


@pytest.mark.parametrize("how", ["one message", "fragments", "pings"])
def test_no_more_than_a_hello_is_read_before_the_credential(server: ServerThread, how: str) -> None:
    with opened(server) as socket:
        try:
            if how == "one message":
                socket.send(json.dumps({"op": "hello", "protocol": "1.1", "token": "x" * 200_000}))
            elif how == "fragments":
                socket.send("x" * 50_000 for _ in range(4))
            else:
                for n in range(2_000):
                    socket.ping(f"{n:0100}")
        except ConnectionClosed:
            pass
        assert closed(socket) in (1009, 1006)


def test_one_connection_has_one_credential(server: ServerThread) -> None:
    with Raw(server, server.token(["read"]), hello={"token": server.token()}) as client:
        assert (client.welcome["op"], client.welcome["code"]) == ("problem", "INVALID_MESSAGE")
        assert client.closed()[0] == 1002


def test_a_web_page_of_another_site_is_refused_as_before(server: ServerThread) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, Origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403


def test_a_wrong_header_is_refused_before_the_hello(server: ServerThread) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, Authorization="Bearer rm_wrong"):
        pass
    assert refused.value.response.status_code == 401


def test_a_revoked_token_ends_the_connection_it_opened(server: ServerThread) -> None:
    secret = server.token(["read"])
    with opened(server) as socket:
        assert hello(socket, token=secret)["op"] == "welcome"
        server.tokens.revoke(server.tokens.read()[-1].id)
        assert closed(socket) == 4401


def test_a_connection_counts_for_its_credential_from_the_hello_on(server: ServerThread) -> None:
    with opened(server) as socket:
        assert hello(socket, token=server.token(["read"]))["op"] == "welcome"
        assert [each.account is not None for each in server.connections._open] == [True]


def test_the_audit_knows_who_it_was_and_nothing_shows_the_token(
    server: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, wrong = server.token(["read"]), "rm_aaaaaaaa_wrongwrongwrongwrongwrongwrong"
    with opened(server) as socket:
        assert hello(socket, token=secret)["op"] == "welcome"
    with opened(server) as socket:
        assert wrong not in json.dumps(hello(socket, token=wrong))
    token_id = server.tokens.read()[-1].id
    server.stop()
    text = (server_folder(server._path) / "audit.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    events = [(line["event"], line.get("token", "")) for line in lines]
    assert ("ws.opened", token_id) in events
    assert ("auth.refused", "") in events
    assert [event for event, _ in events].count("ws.opened") == 1
    for hidden in (secret, wrong):
        assert hidden not in text
        assert hidden not in caplog.text
