"""Plain agents over a WebSocket: they ack a step on receipt and report later, each for what is its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh.testing import ManualClock
from tests.client.raw import Raw
from tests.client.serving import ANY_PORT, ServerThread

MIB = 1_048_576


class Room:
    """A node with a clock of its own, an operator, and agents with credentials of their own."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.server = ServerThread(path, clock=self.clock)
        self._open: list[Raw] = []
        self.boss = self.enter(["write", "read"], None)
        self.coder = self.enter(["agent:coder"], "coder")

    def enter(self, scopes: list[str], agent: str | None, **hello: Any) -> Raw:
        said = {**({} if agent is None else {"agent": agent}), **hello}
        raw = Raw(self.server, self.server.token(scopes), hello=said)
        self._open.append(raw)
        return raw

    def begin(self, content: dict[str, Any] | None = None, **fields: Any) -> str:
        """Submit by mail. Returns the task."""
        answer = send(
            self.boss, "task_assign", content or {"agent": "coder"}, **{"from": "manager", **fields}
        )
        assert answer["op"] == "receipts", answer
        return str(answer["receipts"][0]["task"])

    def take(self, by: Raw | None = None, agent: str = "coder") -> tuple[dict[str, Any], str]:
        """Receive a step and ack it. Returns its names, and its token."""
        agent_s = by or self.coder
        (one,) = agent_s.ask(op="receive", mailbox=agent, waitMs=5_000)["deliveries"]
        settled = agent_s.ask(op="settle", acks=[one["token"]])
        assert (settled["stale"], settled["failed"]) == (0, 0)
        return {name: one["message"]["content"][name] for name in ("task", "step")}, one["token"]

    def show(self, task: str) -> dict[str, Any]:
        value: dict[str, Any] = self.boss.ask(op="call", name="find_task", arguments={"task": task})["value"]
        return value

    def statuses(self, task: str) -> list[str]:
        shown = self.show(task)
        return [shown["status"], *[step["status"] for step in shown["steps"]]]

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.boss.ask(op="call", name="deliver_due")

    def close(self) -> None:
        for raw in self._open:
            raw.__exit__(None, None, None)
        self.server.stop()


def send(raw: Raw, type: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"to": "relaymesh", "type": type, "content": content, **fields}
    return raw.ask(op="send", messages=[message])


def refusal(answer: dict[str, Any]) -> str:
    assert answer["op"] == "problem", answer
    assert answer["hint"]
    return f"{answer['code']}: {answer['detail']}"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def test_task_assign_ack_update_complete(room: Room) -> None:
    task = room.begin({"agent": "coder", "input": {"do": "bump"}})
    names, _ = room.take()
    assert (names["task"], room.statuses(task)) == (task, ["RUNNING", "RUNNING"])
    (told,) = send(room.coder, "task_update", {**names, "progress": "half"})["receipts"]
    assert (told["task"], told["targets"], "status" in told) == (task, 0, False)
    assert room.show(task)["steps"][0]["progress"] == "half"
    (told,) = send(room.coder, "task_complete", {**names, "result": {"n": 1}})["receipts"]
    assert (told["task"], told["status"]) == (task, "SUCCESS")
    assert room.show(task)["result"] == {"n": 1}
    assert room.boss.ask(op="call", name="stats")["value"]["mailboxes"].keys() == {"default/coder"}


def test_a_step_may_be_completed_without_an_ack_and_gives_its_credit_back(room: Room) -> None:
    room.coder.tell(op="credit", mailbox="coder", credit=1)
    for _ in range(3):
        task = room.begin()
        (one,) = room.coder.deliveries()
        names = {name: one["message"]["content"][name] for name in ("task", "step")}
        assert send(room.coder, "task_complete", names)["receipts"][0]["status"] == "SUCCESS"
        assert room.show(task)["result"] is None


def test_an_end_is_synced_before_its_receipt(room: Room) -> None:
    core = room.server.served.node.core
    names, _ = (room.begin(), room.take())[1]
    send(room.coder, "task_complete", names)
    assert core.synced == core.written == core.read(lambda kernel: kernel.state.sequence)


def test_heartbeats_on_the_socket_keep_what_was_taken_and_silence_gives_it_back(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    for _ in range(10):
        room.later(80)
        assert room.coder.ask(op="heartbeat")["op"] == "ack"
    assert room.statuses(task) == ["RUNNING", "RUNNING"]
    room.later(89.999)
    assert room.statuses(task) == ["RUNNING", "RUNNING"]
    room.later(0.001)
    assert room.statuses(task) == ["RUNNING", "ABANDONED"]
    (told,) = send(room.coder, "task_update", names)["receipts"]
    assert "lease of the step is over" in told["notes"][0]
    again, _ = room.take()
    assert again == names
    assert send(room.coder, "task_complete", names)["receipts"][0]["status"] == "SUCCESS"


def test_a_heartbeat_of_another_agent_keeps_nothing(room: Room) -> None:
    task = room.begin()
    room.take()
    stranger = room.enter(["agent:critic"], "critic")
    room.later(80)
    stranger.ask(op="heartbeat")
    assert refusal(stranger.ask(op="heartbeat", agents=["coder"])).startswith("UNAUTHORIZED")
    room.later(10)
    assert room.statuses(task) == ["RUNNING", "ABANDONED"]


def test_what_was_taken_outlives_its_connection(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    room.coder.tell(op="goodbye")
    assert room.coder.closed()[0] == 1000
    room.later(80)
    assert room.statuses(task) == ["RUNNING", "RUNNING"]
    back = room.enter(["agent:coder"], "coder")
    assert send(back, "task_complete", names)["receipts"][0]["status"] == "SUCCESS"


def test_a_token_still_settles_what_was_taken(room: Room) -> None:
    for ending in ("finishes", "fails", "nacks", "releases"):
        room.begin()
        _, token = room.take()
        given: Any = [token] if ending == "releases" else [{"token": token}]
        answer = room.coder.ask(op="settle", **{ending: given})
        assert (answer["stale"], answer["failed"]) == (0, 0), ending


def test_an_agent_that_settles_says_so_in_its_hello_or_its_register(room: Room) -> None:
    said = room.enter(["agent:sure"], "sure", settles=True)
    task = room.begin({"agent": "sure"})
    room.take(said, "sure")
    assert room.statuses(task) == ["SUCCESS", "SUCCESS"]
    room.coder.ask(op="call", name="register", arguments={"agent": "coder", "settles": True})
    task = room.begin()
    room.take()
    assert room.statuses(task) == ["SUCCESS", "SUCCESS"]


def test_a_mailbox_of_no_registered_agent_is_settled_by_an_ack(room: Room) -> None:
    room.boss.ask(op="call", name="open_mailbox", arguments={"mailbox": "box"})
    task = room.begin({"agent": "box"})
    room.take(room.boss, "box")
    assert room.statuses(task) == ["SUCCESS", "SUCCESS"]


# -- what is refused


def test_a_stranger_ends_no_step_of_another(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    stranger = room.enter(["agent:critic"], "critic")
    for type in ("task_update", "task_complete", "task_failed"):
        assert "is not a step of default/critic" in refusal(send(stranger, type, names))
        assert refusal(send(stranger, type, names, **{"from": "coder"})).startswith("UNAUTHORIZED")
    other = Raw(room.server, room.server.token(["write"], namespace="other"))
    assert refusal(send(other, "task_complete", names, **{"from": "coder"})).startswith("TASK_NOT_FOUND")
    assert refusal(
        send(other, "task_complete", names, to="default/relaymesh", **{"from": "coder"})
    ).startswith("UNAUTHORIZED")
    other.__exit__(None, None, None)
    assert room.statuses(task) == ["RUNNING", "RUNNING"]


def test_a_step_ends_once(room: Room) -> None:
    task = room.begin()
    names, token = room.take()
    assert send(room.coder, "task_complete", {**names, "result": 1})["op"] == "receipts"
    for type in ("task_update", "task_complete", "task_failed"):
        assert refusal(send(room.coder, type, names)) == f"TASK_ENDED: task {task} has ended: SUCCESS"
    assert room.coder.ask(op="settle", finishes=[{"token": token, "result": 2}])["stale"] == 1
    assert room.show(task)["result"] == 1


def test_after_a_cancel(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    room.boss.ask(op="call", name="cancel_task", arguments={"task": task, "hard": True})
    assert refusal(send(room.coder, "task_complete", names)).endswith("has ended: CANCELLED")
    task = room.begin()
    names, _ = room.take()
    room.boss.ask(op="call", name="cancel_task", arguments={"task": task})
    assert send(room.coder, "task_complete", names)["receipts"][0]["status"] == "CANCELLED"


def test_a_step_that_no_holder_has(room: Room) -> None:
    steps = {"one": {"agent": "coder"}, "two": {"agent": "coder", "needs": ["one"]}}
    task = room.begin({"workflow": {"workflow": "w", "steps": steps}})
    for name in ("one", "two"):
        said = refusal(send(room.coder, "task_complete", {"task": task, "step": name}))
        assert said == f"LEASE_LOST: step {name} of task {task} is PENDING: no holder has it"
    said = refusal(send(room.coder, "task_complete", {"task": task, "step": "three"}))
    assert said == f"TASK_NOT_FOUND: task {task} has no step three"


def test_a_result_that_is_too_large_leaves_the_step_as_it_was(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    for size in (10 * MIB, 11 * MIB, 12 * MIB):
        said = refusal(send(room.coder, "task_complete", {**names, "result": "x" * size}))
        assert said.startswith("PAYLOAD_TOO_LARGE"), said
    assert room.statuses(task) == ["RUNNING", "RUNNING"]
    assert send(room.coder, "task_complete", {**names, "result": "x" * (9 * MIB)})["op"] == "receipts"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"result": 1}, "missing required field `task`"),
        ({"task": "a\x00b", "step": "do"}, "content.task"),
        ({"task": "$", "step": "d\no"}, "content.step"),
        ({"task": "$", "step": "do", "attempt": 10**30}, "content.attempt"),
        ({"task": "$", "step": "do", "attempt": 7}, "attempt 7"),
        (["task"], "content of task_complete"),
        (None, "content of task_complete"),
    ],
)
def test_bad_content_is_refused_by_its_field(room: Room, content: Any, said: str) -> None:
    task = room.begin()
    room.take()
    if isinstance(content, dict) and content.get("task") == "$":
        content = {**content, "task": task}
    assert said in refusal(send(room.coder, "task_complete", content))
    assert room.statuses(task) == ["RUNNING", "RUNNING"]


def test_nan_is_no_result(room: Room) -> None:
    room.begin()
    names, _ = room.take()
    text = json.dumps({"to": "relaymesh", "type": "task_complete", "content": {**names, "result": 0}})
    room.coder.socket.send(f'{{"op":"send","ref":77,"messages":[{text.replace(": 0}", ": NaN}")}]}}')
    answer = room.coder.next()
    assert (answer["op"], answer["code"]) == ("problem", "INVALID_MESSAGE")


def test_an_order_is_sent_alone_and_at_once(room: Room) -> None:
    room.begin()
    names, token = room.take()
    order = {"to": "relaymesh", "type": "task_complete", "content": names}
    mail = {"to": "coder", "content": 1}
    for messages in ([order, mail], [mail, order], [order, order]):
        said = refusal(room.coder.ask(op="send", messages=messages))
        assert "is in a batch" in said
    assert "delayMs" in refusal(room.coder.ask(op="send", messages=[{**order, "delayMs": 5}]))
    answer = room.coder.ask(op="settle", replies=[{"token": token, "messages": [order]}])
    assert answer["results"][0]["outcome"] == "refused"
    assert "cannot be a reply" in answer["results"][0]["detail"]
    assert refusal(send(room.coder, "message", "hello")).startswith("UNKNOWN_RECIPIENT")
    (told,) = room.coder.ask(op="send", messages=[{**order, "metadata": {"requiresAck": True}}])["receipts"]
    assert told["notes"] == ["requiresAck: this receipt is the answer, and no ack is sent"]


def test_only_a_manager_whose_credential_may_submit_assigns(room: Room) -> None:
    content = {"agent": "coder"}
    assert "task_assign goes from manager" in refusal(send(room.coder, "task_assign", content))
    weak = room.enter(["agent:manager"], "manager")
    assert "needs the scope 'write'" in refusal(send(weak, "task_assign", content))
    lead = room.enter(["agent:manager", "write"], "manager")
    assert send(lead, "task_assign", content)["op"] == "receipts"
    for wrong in ({}, {"agent": "coder", "workflow": {}}):
        assert "one of `workflow` and `agent`" in refusal(send(lead, "task_assign", wrong))
    assert refusal(send(lead, "task_assign", {"agent": "no such"})).startswith("INVALID_PLAN")
    assert refusal(send(lead, "task_assign", {"workflow": []})).startswith("INVALID_PLAN")


def test_the_id_of_the_message_is_the_key_of_its_task(room: Room) -> None:
    first = room.begin(id="once")
    assert room.begin(id="once") == first
    again = send(room.boss, "task_assign", {"agent": "coder"}, id="once", **{"from": "manager"})
    assert again["receipts"][0]["duplicate"] is True
    other = send(room.boss, "task_assign", {"agent": "coder", "input": 2}, id="once", **{"from": "manager"})
    assert refusal(other).startswith("CONFLICT")
    assert room.begin() != room.begin(), "messages without an id are new ones"


def test_a_submit_by_mail_looks_into_the_store_for_what_memory_forgot(room: Room) -> None:
    first = room.begin(id="once")
    names, _ = room.take()
    send(room.coder, "task_complete", {**names, "result": 1})
    node = room.server.served.node
    node.catch_up(10)
    node.core.read(lambda kernel: kernel.state.board.forget(kernel.state.sequence, room.server.served.now))
    assert room.begin(id="once") == first
    assert room.begin() != first


# -- over HTTP


def test_the_same_over_http(room: Room) -> None:
    task = room.begin()
    room.take()
    headers = {"authorization": f"Bearer {room.server.token(['agent:coder'])}"}
    with httpx.Client(base_url=room.server.url, headers=headers, timeout=60) as http:

        def post(content: str, type: str = "task_complete") -> tuple[int, Any]:
            body = f'{{"to":"relaymesh","type":"{type}","content":{content}}}'
            answer = http.post("/v1/messages", content=body, headers={"content-type": "application/json"})
            return answer.status_code, answer.json().get("code")

        step = f'"task":"{task}","step":"do"'
        assert post(f'{{{step},"result":"\\ud800"}}') == (400, "INVALID_MESSAGE")
        assert post(f'{{{step},"result":NaN}}') == (400, "INVALID_MESSAGE")
        assert post(f'{{{step},"result":1,"result":2}}') == (400, "INVALID_MESSAGE")
        assert post('{"task":"t","step":"do"}') == (404, "TASK_NOT_FOUND")
        assert post(f'{{{step},"result":"{"x" * 11 * MIB}"}}') == (413, "PAYLOAD_TOO_LARGE")
        assert room.statuses(task) == ["RUNNING", "RUNNING"]
        assert post(f'{{{step},"progress":"a"}}', "task_update") == (202, None)
        assert post(f'{{{step},"result":[1.50]}}') == (202, None)
        assert post(f"{{{step}}}") == (409, "TASK_ENDED")
    assert room.show(task)["result"] == [1.5]


def test_a_storm_of_updates_is_charged_as_messages_are(tmp_path: Path) -> None:
    security = replace(ANY_PORT.security, write_rate=5, write_burst=20)
    server = ServerThread(tmp_path, settings=replace(ANY_PORT, security=security))
    headers = {"authorization": f"Bearer {server.token(['agent:coder'])}"}
    update = {"to": "relaymesh", "type": "task_update", "content": {"task": "t", "step": "do"}}
    try:
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
            codes = [http.post("/v1/messages", json=update).json()["code"] for _ in range(40)]
    finally:
        server.stop()
    assert set(codes[:10]) == {"TASK_NOT_FOUND"}
    assert "RATE_LIMITED" in codes
