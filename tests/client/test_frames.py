"""The WebSocket protocol, frame by frame, as a client in another language speaks it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from relaymesh import Mesh
from relaymesh.server.address import server_folder
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.ws import outbox
from relaymesh.testing import ManualClock
from tests.client.raw import Raw
from tests.client.serving import ANY_PORT, ServerThread


@pytest.fixture
def token(server: ServerThread) -> str:
    return server.token(["write", "read"])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(server: ServerThread, token: str) -> Any:
    with Raw(server, token) as raw:
        for name in ("planner", "coder"):
            assert raw.ask(op="call", name="open_mailbox", arguments={"mailbox": name})["op"] == "result"
        yield raw


def send(client: Raw, count: int, **fields: Any) -> list[dict[str, Any]]:
    messages = [{"from": "planner", "to": "coder", "content": n, **fields} for n in range(count)]
    answer = client.ask(op="send", messages=messages)
    assert answer["op"] == "receipts", answer
    receipts: list[dict[str, Any]] = answer["receipts"]
    return receipts


def tokens(deliveries: list[dict[str, Any]]) -> list[str]:
    return [each["token"] for each in deliveries]


def test_a_welcome_says_what_a_client_needs_to_know(client: Raw) -> None:
    welcome = client.welcome
    assert welcome["op"] == "welcome"
    assert welcome["heartbeatMs"] == 30_000
    assert welcome["namespace"] == "default"
    assert welcome["payloadBytesMax"] == 10_485_760
    assert len(welcome["session"]) == 32


def test_messages_go_out_and_come_back_and_are_settled_in_batches(client: Raw) -> None:
    assert len(send(client, 3)) == 3
    got = client.ask(op="receive", mailbox="coder", max=10)["deliveries"]
    assert [each["message"]["content"] for each in got] == [0, 1, 2]
    first, second, third = tokens(got)
    nacks = [{"token": third, "reason": "no", "retryable": False}]
    settled = client.ask(op="settle", acks=[first, second, "0.1.999"], nacks=nacks)
    assert [each["outcome"] for each in settled["results"]] == ["acked", "acked", "lease_lost", "dead_letter"]
    assert (settled["stale"], settled["failed"]) == (1, 1)
    letters = client.ask(op="call", name="dead_letters")["value"]
    assert [each["message"]["content"] for each in letters] == [2]


def test_a_delivery_of_a_subscription_names_the_topic_it_was_published_to(client: Raw) -> None:
    arguments = {"pattern": "order.*", "name": "billing", "settings": {}}
    answer = client.ask(op="call", name="subscribe", arguments=arguments)
    assert answer["op"] == "result", answer
    message = {"from": "planner", "content": 1}
    for topic in ("order.created", "order.paid"):
        assert client.ask(op="publish", topic=topic, messages=[message])["op"] == "receipts"
    got = client.ask(op="receive", mailbox="order.*:billing", max=10)["deliveries"]
    assert [each["topic"] for each in got] == ["default/order.created", "default/order.paid"]
    send(client, 1)
    assert client.ask(op="receive", mailbox="coder")["deliveries"][0].get("topic") is None


def test_a_receive_that_is_cancelled_is_answered_with_nothing(client: Raw) -> None:
    client.tell(op="receive", ref=100, mailbox="coder", waitMs=None)
    client.tell(op="cancel", ref=100)
    answer = client.next()
    assert (answer["ref"], answer["deliveries"]) == (100, [])
    send(client, 1)
    assert client.ask(op="receive", mailbox="coder")["deliveries"][0]["attempt"] == 1


def test_an_answer_that_waits_already_is_received_by_its_correlation_id(client: Raw) -> None:
    send(client, 3)
    send(client, 1, metadata={"correlationId": "q-1"}, type="answer")
    for wait_ms in ({}, {"waitMs": 60_000}):
        got = client.ask(op="receive", mailbox="coder", correlationId="q-1", **wait_ms)
        assert [each["message"]["type"] for each in got["deliveries"]] == ["answer"]
        client.ask(op="settle", releases=tokens(got["deliveries"]))
    got = client.ask(op="receive", mailbox="coder", max=10)
    assert len(got["deliveries"]) == 4


def test_never_more_is_unsettled_than_the_credit(client: Raw) -> None:
    send(client, 10)
    client.tell(op="credit", mailbox="coder", credit=3)
    out = client.deliveries()
    while len(out) < 3:
        out += client.deliveries()
    assert client.nothing_comes()
    client.ask(op="settle", acks=tokens(out[:2]))
    more = client.deliveries()
    while len(more) < 2:
        more += client.deliveries()
    assert len(more) == 2
    assert client.nothing_comes()
    client.tell(op="credit", mailbox="coder", credit=0)
    client.ask(op="settle", acks=tokens([out[2], *more]))
    assert client.nothing_comes(), "no credit, no deliveries"


def test_a_lease_that_ran_out_gives_its_credit_back(client: Raw) -> None:
    settings = {"leaseMs": 50, "backoffMsBase": 0, "breaker": False}
    client.ask(op="call", name="open_mailbox", arguments={"mailbox": "coder", "settings": settings})
    send(client, 1)
    client.tell(op="credit", mailbox="coder", credit=1)
    assert client.deliveries()[0]["attempt"] == 1
    assert client.deliveries()[0]["attempt"] == 2


def test_a_reader_that_does_not_read_is_closed(
    server: ServerThread, token: str, client: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_BYTES_MAX", 200_000)
    with Mesh(server.url, token=token) as mesh:
        planner = mesh.agent("planner")
        for _ in range(20):
            planner.send_many([{"to": "coder", "content": b"x" * 1_000_000} for _ in range(5)])
    client.tell(op="credit", mailbox="coder", credit=1000)
    assert client.closed()[0] in (1013, 1006)
    assert server.served.node.core.failure is None


def test_a_session_is_resumed_and_what_was_not_held_goes_back(server: ServerThread, token: str) -> None:
    with Raw(server, token) as first:
        first.ask(op="call", name="open_mailbox", arguments={"mailbox": "coder"})
        messages = [{"from": "coder", "to": "coder", "content": n} for n in range(2)]
        first.ask(op="send", messages=messages)
        got = first.ask(op="receive", mailbox="coder", max=2)["deliveries"]
        session = first.welcome["session"]
    with Raw(server, token, hello={"resume": session, "held": tokens(got[:1])}) as again:
        assert again.welcome["resumed"]
        came = again.ask(op="receive", mailbox="coder", max=2)["deliveries"]
        assert [(each["message"]["content"], each["attempt"]) for each in came] == [(1, 1)]
    other = server.token(["write", "read"])
    with Raw(server, other, hello={"resume": session, "held": []}) as stranger:
        assert not stranger.welcome.get("resumed"), "a session is its credential's alone"


def test_a_client_that_comes_back_while_its_old_connection_hangs_loses_nothing(
    server: ServerThread, token: str
) -> None:
    with Raw(server, token) as hanging:
        hanging.ask(op="call", name="open_mailbox", arguments={"mailbox": "coder"})
        hanging.tell(op="receive", ref=50, mailbox="coder", waitMs=None)
        hanging.ask(op="ping")
        with Raw(server, token, hello={"resume": hanging.welcome["session"], "held": []}) as again:
            again.ask(op="send", messages=[{"from": "coder", "to": "coder", "content": 1}])
            got = again.ask(op="receive", mailbox="coder")["deliveries"]
            assert [each["attempt"] for each in got] == [1], "the old connection's receive takes nothing"
        assert hanging.closed()[0] == 1000


def test_every_write_is_in_the_audit_log(server: ServerThread, client: Raw) -> None:
    send(client, 2)
    client.ask(op="call", name="stats")
    assert client.ask(op="call", name="checkpoint")["code"] == "UNAUTHORIZED"
    server.stop()
    lines = [json.loads(line) for line in _audit(server).read_text(encoding="utf-8").splitlines()]
    writes = [(line["route"], line["status"]) for line in lines if line.get("event") == "ws.write"]
    opened = [("/v1/ws open_mailbox", 200)] * 2
    assert writes == [*opened, ("/v1/ws send", 200), ("/v1/ws checkpoint", 403)]


def _audit(server: ServerThread) -> Path:
    return server_folder(server._path) / "audit.jsonl"


def test_an_agent_joins_with_its_hello_and_is_heard_of(server: ServerThread, token: str) -> None:
    with Raw(server, token, hello={"agent": "coder"}) as client:
        assert client.ask(op="heartbeat")["op"] == "ack"
        assert client.ask(op="ping")["op"] == "pong"
        assert server.served.roster.registration("default/coder") is not None
        assert server.served.roster.state("default/coder", server.served.now) == "online"


@pytest.mark.parametrize("scopes", [["write"], ["agent:planner", "agent:critic"], ["admin"]])
def test_a_client_that_said_hello_as_an_agent_sends_as_it(
    server: ServerThread, client: Raw, scopes: list[str]
) -> None:
    with Raw(server, server.token(scopes), hello={"agent": "planner"}) as planner:
        assert planner.ask(op="send", messages=[{"to": "coder", "content": 1}])["op"] == "receipts"
        client.ask(op="call", name="subscribe", arguments={"pattern": "news", "name": "coder"})
        assert planner.ask(op="publish", topic="news", messages=[{"content": 2}])["op"] == "receipts"
    [sent] = client.ask(op="receive", mailbox="coder")["deliveries"]
    [published] = client.ask(op="receive", mailbox="news:coder")["deliveries"]
    assert [each["message"]["from"] for each in (sent, published)] == ["default/planner"] * 2


def test_a_reply_without_from_comes_from_the_agent_whose_mail_it_answers(client: Raw) -> None:
    send(client, 1)
    [got] = client.ask(op="receive", mailbox="coder")["deliveries"]
    reply = {"token": got["token"], "messages": [{"to": "planner", "content": "done"}]}
    [result] = client.ask(op="settle", replies=[reply])["results"]
    assert result["outcome"] == "replied", result
    [answer] = client.ask(op="receive", mailbox="planner")["deliveries"]
    assert answer["message"]["from"] == "default/coder"


def test_without_hello_or_a_single_agent_the_sender_must_be_named(client: Raw) -> None:
    answer = client.ask(op="send", messages=[{"to": "coder", "content": 1}])
    assert (answer["code"], answer["detail"]) == ("INVALID_MESSAGE", "`from` is missing")
    assert "hello" in answer["hint"]


def test_a_register_is_answered_by_handshake_ack_with_the_terms(server: ServerThread, client: Raw) -> None:
    arguments = {"agent": "coder", "role": "developer", "capabilities": ["python"], "protocolVersion": "1.0"}
    ack = client.ask(op="call", name="register", arguments=arguments)["value"]
    assert (ack["type"], ack["name"], ack["protocolVersion"]) == ("handshake.ack", "coder", "1.0")
    assert (ack["role"], ack["capabilities"], ack["state"]) == ("developer", ["python"], "online")
    assert (ack["heartbeatIntervalMs"], ack["heartbeatTimeoutMs"]) == (30_000, 90_000)
    refused = client.ask(op="call", name="register", arguments={"agent": "coder", "protocolVersion": "2.0"})
    assert (refused["code"], refused["hint"]) == ("INVALID_MESSAGE", "this node speaks 1.0, 1.1")
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token()}"}) as http:
        body = {"name": "coder", "role": "developer", "capabilities": ["python"], "protocolVersion": "1.0"}
        again = http.post("/v1/agents", json=body).json()
    changing = {"registeredAt", "lastHeardAt"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in ack.items() if k not in changing
    }, "HTTP and WebSocket give the same answer"


def test_an_agent_that_says_goodbye_is_offline_at_once(server: ServerThread, token: str) -> None:
    with Raw(server, token, hello={"agent": "coder"}) as client, Raw(server, token) as other:
        other.ask(op="call", name="register", arguments={"agent": "planner"})
        client.tell(op="goodbye")
        assert client.closed()[0] == 1000
        assert state(server, "coder") == "offline"
        assert state(server, "planner") == "online", "it said nothing"


def test_a_goodbye_on_one_connection_leaves_the_agent_of_another_online(
    server: ServerThread, token: str
) -> None:
    with Raw(server, token, hello={"agent": "coder"}), Raw(server, token, hello={"agent": "coder"}) as second:
        second.tell(op="goodbye")
        assert second.closed()[0] == 1000
        assert state(server, "coder") == "online"


@pytest.mark.parametrize("how", ["receive", "credit", "subscription", "send"])
def test_a_client_that_only_receives_or_sends_is_there(tmp_path: Path, clock: ManualClock, how: str) -> None:
    with ServerThread(tmp_path / "presence", clock=clock) as server, Raw(server, server.token()) as client:
        client.ask(op="call", name="register", arguments={"agent": "coder"})
        clock.advance(91)
        assert state(server, "coder") == "offline"
        mailbox = "coder"
        if how == "subscription":
            client.ask(op="call", name="subscribe", arguments={"pattern": "news", "name": "coder"})
            mailbox = "news:coder"
        if how == "send":
            client.ask(op="send", messages=[{"from": "coder", "to": "coder", "content": 1}])
        elif how == "credit":
            client.tell(op="credit", mailbox=mailbox, credit=1)
            client.ask(op="ping")
        else:
            client.ask(op="receive", mailbox=mailbox)
        assert state(server, "coder") == "online"
        clock.advance(91)
        assert client.ask(op="heartbeat")["op"] == "ack"
        assert state(server, "coder") == "online", "a heartbeat is for all who act here"


def test_a_heartbeat_may_name_agents_and_only_those_of_the_credential(
    tmp_path: Path, clock: ManualClock
) -> None:
    with ServerThread(tmp_path / "presence", clock=clock) as server, Raw(server, server.token()) as admin:
        for name in ("coder", "planner"):
            admin.ask(op="call", name="register", arguments={"agent": name})
        clock.advance(91)
        with Raw(server, server.token(["agent:coder"])) as client:
            assert client.ask(op="heartbeat", agents=["coder"])["op"] == "ack"
            assert client.ask(op="heartbeat", agents=["planner"])["code"] == "UNAUTHORIZED"
            assert (state(server, "coder"), state(server, "planner")) == ("online", "offline")


def test_the_welcome_names_the_heartbeat_that_is_configured(tmp_path: Path) -> None:
    often = ReliabilityConfig(heartbeat_interval=5_000, heartbeat_timeout=15_000)
    settings = replace(ANY_PORT, reliability=often)
    with ServerThread(tmp_path / "often", settings=settings) as server, Raw(server, server.token()) as client:
        assert client.welcome["heartbeatMs"] == 5_000


def state(server: ServerThread, agent: str) -> str:
    return server.served.roster.state(f"default/{agent}", server.served.now)


def test_a_problem_names_its_code_and_the_way_out(client: Raw) -> None:
    answer = client.ask(op="send", messages=[{"from": "planner", "to": "nobody", "content": 1}])
    assert (answer["op"], answer["code"]) == ("problem", "UNKNOWN_RECIPIENT")
    assert answer["hint"]
    assert client.ask(op="call", name="fly")["code"] == "NOT_FOUND"
    assert client.ask(op="call", name="checkpoint")["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize(("frame", "code"), [(b"\x80", 1003), ('{"op":"hello","protocol":"1.1"}', 1002)])
def test_a_frame_that_makes_no_sense_ends_the_connection(client: Raw, frame: Any, code: int) -> None:
    client.socket.send(frame)
    assert client.closed()[0] == code


@pytest.mark.parametrize(
    ("frame", "ref", "detail", "hint"),
    [
        ("[1, 2]", None, "Expected `object`, got `array`", "asyncapi.json"),
        ('{"ref":7}', 7, "missing required field `op`", "receive"),
        ('{"op":"recieve","ref":7,"mailbox":"coder"}', 7, "recieve", "`receive`"),
        ('{"op":"send","ref":"one","messages":[]}', None, "Expected `int`, got `str`", "asyncapi.json"),
        ('{"op":"receive","ref":7}', 7, "missing required field `mailbox`", "mailbox"),
        ('{"op":"receive","ref":7,"mailbox":3}', 7, "Expected `str`, got `int` - at `$.mailbox`", ""),
        ('{"op":"receive","ref":7,"mailbox":"coder","wait_ms":5}', 7, "`wait_ms`", "`waitMs`"),
        ('{"op":"settle","ref":7,"nacks":[{"token":"0.1.1","delayms":5}]}', 7, "`delayms`", "asyncapi.json"),
        ('{"op":"credit","mailbox":"coder","credits":5}', None, "`credits`", "`credit`"),
        ('{"op":"call","ref":7,"name":"stats","args":{}}', 7, "`args`", "arguments"),
        ('{"op":"ping","ref":7,"' + "x" * 100_000 + '":1}', 7, "unknown field `xxx", "ref"),
    ],
)
def test_a_mistyped_frame_is_answered_and_the_connection_goes_on(
    client: Raw, frame: str, ref: int | None, detail: str, hint: str
) -> None:
    client.socket.send(frame)
    problem = client.next()
    assert (problem["op"], problem["code"], problem.get("ref")) == ("problem", "INVALID_MESSAGE", ref)
    assert detail in problem["detail"]
    assert hint in problem["hint"]
    assert len(problem["detail"]) < 400
    assert len(send(client, 1)) == 1


@pytest.mark.parametrize(
    "frame", ["not JSON", '{"op":"settle","ref":7,"acks":' + "[" * 100_000, '{"ref":NaN}']
)
def test_a_frame_that_is_no_json_is_told_so_and_ends_the_connection(client: Raw, frame: str) -> None:
    """A problem without a ref would leave its sender waiting for an answer."""
    client.socket.send(frame)
    problem = client.next()
    assert (problem["op"], problem["code"], problem.get("ref")) == ("problem", "INVALID_MESSAGE", None)
    assert client.closed()[0] == 1007


def test_a_mistyped_frame_in_messagepack_is_answered_too(server: ServerThread, token: str) -> None:
    with Raw(server, token, subprotocol="relaymesh.v1.msgpack") as client:
        client.socket.send(msgspec.msgpack.encode({"op": "hello", "protocol": "1.1"}))
        assert msgspec.msgpack.decode(client.socket.recv(60, decode=False))["op"] == "welcome"
        for frame, detail in [
            ({"op": "receive", "ref": 7, "mailbox": "coder", "wait_ms": 5}, "`wait_ms`"),
            ({"op": "receive", "ref": 7, "mailbox": 3}, "Expected `str`"),
            ({"op": "fly", "ref": 7}, "fly"),
        ]:
            client.socket.send(msgspec.msgpack.encode(frame))
            problem = msgspec.msgpack.decode(client.socket.recv(60, decode=False))
            assert (problem["op"], problem["code"], problem["ref"]) == ("problem", "INVALID_MESSAGE", 7)
            assert detail in problem["detail"]
        client.socket.send(b"\x82\xa2op\xa4ping\x90\x01")
        assert client.closed()[0] == 1007, "what is no MessagePack ends it: nothing says where it goes on"


def test_a_list_that_says_it_is_longer_than_its_frame_ends_the_connection(
    server: ServerThread, token: str
) -> None:
    """Its `ref` cannot be read behind the list, so no answer could name it: the sender must not wait."""
    with Raw(server, token, subprotocol="relaymesh.v1.msgpack") as client:
        client.socket.send(msgspec.msgpack.encode({"op": "hello", "protocol": "1.1"}))
        assert msgspec.msgpack.decode(client.socket.recv(60, decode=False))["op"] == "welcome"
        client.socket.send(b"\x83\xa2op\xa6settle\xa4acks\xdd\xff\xff\xff\xff\xa3ref\x07")
        problem = msgspec.msgpack.decode(client.socket.recv(60, decode=False))
        assert (problem["op"], problem.get("ref")) == ("problem", None)
        assert client.closed()[0] == 1007


def test_a_hello_with_an_unknown_field_is_told_which(server: ServerThread, token: str) -> None:
    with Raw(server, token, hello={"agnet": "coder"}) as client:
        assert client.welcome["op"] == "problem"
        assert "`agnet`" in client.welcome["detail"]
        assert "`agent`" in client.welcome["hint"]
        assert client.closed()[0] == 1002


def test_another_version_is_told_so(server: ServerThread, token: str) -> None:
    with Raw(server, token, hello={"protocol": "2.0"}) as client:
        assert client.welcome["code"] == "INVALID_SETTINGS"
        assert client.closed()[0] == 1002


@pytest.mark.parametrize(
    ("path", "subprotocols", "status", "named"),
    [
        ("/v1/ws", None, 400, "relaymesh.v1.json"),
        ("/v1/ws", ["relaymesh.v9.xml"], 400, "relaymesh.v1.json"),
        ("/v1/websocket", ["relaymesh.v1.json"], 404, "/v1/ws"),
    ],
)
def test_a_websocket_that_is_not_spoken_here_is_told_what_is(
    server: ServerThread, token: str, path: str, subprotocols: Any, status: int, named: str
) -> None:
    url = server.url.replace("http", "ws") + path
    headers = {"Authorization": f"Bearer {token}"}
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=headers, subprotocols=subprotocols).__enter__()
    response = refused.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert named in json.loads(response.body)["hint"]


def test_a_node_that_stops_says_so_first(server: ServerThread, client: Raw) -> None:
    server.stop()
    assert client.next()["op"] == "going_away"
    assert client.closed()[0] == 1012
