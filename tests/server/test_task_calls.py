"""Answers, signals, usage and budgets over HTTP, by mail and over the text protocol: who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh.kernel.tasks.commands import Submit
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from relaymesh.node.node import Node
from tests.server.protocol.test_reported import Room, refusal, send
from tests.server.serving import Api, serving

ALONE = {"workflow": "alone", "steps": {"one": {"agent": "coder"}}}


def begin_waiting(node: Node, wait: WaitPlan, name: str = "ask") -> str:
    """A task of one step that waits."""
    mailbox = "default/coder" if wait.kind == "ask" else ""
    plan = Plan(name="waits", steps=(StepPlan(name=name, mailbox=mailbox, wait=wait, input=b'"Shall it?"'),))
    id = node.new_ids(1)[0]
    return node.tasks.submit(Submit(id, plan, b"null", id, b"", "default/relaymesh")).task


async def waiting(api: Api, wait: WaitPlan) -> str:
    return await asyncio.to_thread(begin_waiting, api.served.node, wait)


async def shown(api: Api, task: str) -> dict[str, Any]:
    body: dict[str, Any] = (await api.admin.get(f"/v1/tasks/{task}")).json()
    return body


# -- over HTTP


async def test_the_agent_of_the_credential_answers_and_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "critic")
        task = await waiting(api, WaitPlan(kind="ask", options=("yes", "né")))
        path = f"/v1/tasks/{task}/steps/ask/answer"
        assert (await shown(api, task))["steps"][0]["waiting"] == "answer of coder"
        refused = await api.agent("critic").post(path, json={"value": "yes"})
        assert (refused.status_code, refused.json()["code"]) == (403, "UNAUTHORIZED")
        refused = await api.agent("critic").post(path, json={"value": "yes", "from": "coder"})
        assert refused.status_code == 403
        refused = await api.client(["write"]).post(path, json={"value": "yes"})
        assert (refused.status_code, "from" in refused.json()["detail"]) == (400, True)
        assert (await api.client(["read"]).post(path, json={"value": "yes"})).status_code == 403
        for body in ({}, {"value": "no"}, {"value": "x" * 70_000}, {"value": 1, "form": "coder"}):
            assert (await api.agent("coder").post(path, json=body)).status_code in (400, 413)
        headers = {"content-type": "application/json"}
        answer = await api.agent("coder").post(path, content=b'{"value": "n\\u00e9"}', headers=headers)
        assert (answer.status_code, answer.json()["task"]) == (200, task)
        assert (await shown(api, task))["result"] == "né"
        assert await api.receive("coder") == []


async def test_a_task_of_another_namespace_is_not_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        task = await waiting(api, WaitPlan(kind="ask"))
        other = api.client(["admin"], "other")
        for path, body in (
            ("steps/ask/answer", {"value": 1, "from": "coder"}),
            ("signals", {"name": "go"}),
            ("budget", {"tokens": 5}),
        ):
            assert (await other.post(f"/v1/tasks/{task}/{path}", json=body)).status_code == 404
            assert (await other.post(f"/v1/tasks/none/{path}", json=body)).status_code == 404
        assert (await shown(api, task))["status"] == "RUNNING"


async def test_a_signal_needs_write_and_counts_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        task = await waiting(api, WaitPlan(kind="signal", signal="go"))
        path = f"/v1/tasks/{task}/signals"
        assert (await api.agent("coder").post(path, json={"name": "go"})).status_code == 403
        for body in (
            {},
            {"name": ""},
            {"name": 5},
            {"name": "go", "id": "x" * 200},
            {"name": "go", "extra": 1},
        ):
            assert (await api.admin.post(path, json=body)).status_code == 400
        for duplicate in (False, True):
            answer = await api.admin.post(path, json={"name": "other", "value": 1, "id": "s"})
            assert answer.json() == {"task": task, "id": "s", "duplicate": duplicate}
        answer = await api.admin.post(path, json={"name": "go", "value": {"n": 1}})
        assert (answer.status_code, bool(answer.json()["id"])) == (200, True)
        assert (await shown(api, task))["result"] == {"n": 1}


async def test_usage_and_budget_are_dollars_and_tokens(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        task = (await api.admin.post("/v1/tasks", json={"workflow": ALONE})).json()["task"]
        path = f"/v1/tasks/{task}/budget"
        for body in ({"costUsd": -1}, {"costUsd": "5"}, {"costUsd": 1e-7}, {"tokens": 1.5}, {"tokens": -1}):
            assert (await api.admin.post(path, json=body)).status_code == 400, body
        answer = await api.admin.post(path, json={"costUsd": 0.29, "tokens": 5_000})
        assert answer.json() == {"task": task, "status": "PENDING"}
        [delivery] = await api.receive("coder")
        token = delivery["token"]
        reported = {"token": token, "usage": {"costUsd": 0.1, "tokens": 7}}
        assert (await api.settle(reports=[reported]))[0]["outcome"] == "reported"
        bad = [{"costUsd": -1}, {"tokens": "7"}, {"cost": 1}]
        for usage in bad:
            refused = await api.admin.post("/v1/settle", json={"reports": [{"token": token, "usage": usage}]})
            assert refused.status_code == 400
        told = await shown(api, task)
        assert (told["costUsd"], told["tokens"], told["costUsdMax"], told["tokensMax"]) == (
            0.1,
            7,
            0.29,
            5_000,
        )
        await api.settle(finishes=[{"token": token, "result": 1, "usage": {"costUsd": 0.29}}])
        told = await shown(api, task)
        assert (told["status"], told["costUsd"], told["tokens"]) == ("SUCCESS", 0.29, 7)


async def test_a_submit_over_http_names_who_hears_of_the_task(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "boss")
        body = {"workflow": ALONE, "owner": "boss", "replyTo": "coder", "notify": ["failed"]}
        task = (await api.admin.post("/v1/tasks", json=body)).json()["task"]
        held = api.served.node.core.read(lambda kernel: kernel.state.board.tasks[task])
        assert (held.owner, held.reply_to, held.notify) == ("default/boss", "default/coder", ("failed",))
        for bad in ({"notify": ["budget"]}, {"notify": "failed"}, {"replyTo": 5}, {"replyTo": "stranger"}):
            refused = await api.admin.post("/v1/tasks", json={**body, "key": "k", **bad})
            assert refused.status_code == 400, refused.text


# -- by mail, and over the text protocol


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def test_an_answer_by_mail_names_the_question_or_the_step(room: Room) -> None:
    node = room.server.node
    for with_id in (True, False):
        task = begin_waiting(node, WaitPlan(kind="ask"))
        (one,) = room.coder.ask(op="receive", mailbox="coder", waitMs=5_000)["deliveries"]
        asked = one["message"]
        assert (asked["type"], asked["content"]["question"]) == ("question", "Shall it?")
        if with_id:
            answer = send(room.coder, "answer", {"task": 1}, metadata={"correlationId": asked["id"]})
        else:
            content = {"task": task, "step": "ask", "answer": {"task": 1}}
            answer = send(room.coder, "answer", content)
        assert answer["op"] == "receipts", answer
        (told,) = answer["receipts"]
        assert (told["task"], told["targets"]) == (task, 0)
        assert room.show(task)["result"] == {"task": 1}
    assert room.boss.ask(op="call", name="stats")["value"]["mailboxes"].keys() == {"default/coder"}


def test_an_answer_by_mail_that_answers_nothing_is_refused(room: Room) -> None:
    task = begin_waiting(room.server.node, WaitPlan(kind="ask"))
    critic = room.enter(["agent:critic"], "critic")
    (one,) = room.coder.ask(op="receive", mailbox="coder", waitMs=5_000)["deliveries"]
    id = one["message"]["id"]
    assert "INVALID_MESSAGE" in refusal(send(room.coder, "answer", "yes"))
    assert "no step waits" in refusal(
        send(room.coder, "answer", "yes", metadata={"correlationId": "no-such"})
    )
    assert "no step waits" in refusal(send(critic, "answer", "yes", metadata={"correlationId": id}))
    named = {"task": task, "step": "ask", "answer": "yes"}
    assert "UNAUTHORIZED" in refusal(send(critic, "answer", named))
    assert "NOT_FOUND" in refusal(send(room.coder, "answer", {**named, "step": "other"}))
    assert "NOT_FOUND" in refusal(send(room.coder, "answer", {**named, "task": "none"}))
    assert send(room.coder, "answer", named)["receipts"][0]["task"] == task
    assert room.show(task)["result"] == "yes"


def test_calls_of_the_text_protocol_answer_signal_and_set_budgets(room: Room) -> None:
    def call(raw: Any, called: str, **arguments: Any) -> Any:
        return raw.ask(op="call", name=called, arguments=arguments)

    node = room.server.node
    task = begin_waiting(node, WaitPlan(kind="ask"))
    room.coder.tell(op="credit", mailbox="coder", credit=1)
    room.coder.deliveries()
    assert call(room.coder, "answer_step", task=task, step="ask", value="né")["op"] == "result"
    assert room.show(task)["result"] == "né"
    begin_waiting(node, WaitPlan(kind="ask"))
    assert len(room.coder.deliveries()) == 1  # its credit came back
    task = begin_waiting(node, WaitPlan(kind="signal", signal="go"))
    assert "UNAUTHORIZED" in refusal(call(room.coder, "signal_task", task=task, name="go"))
    assert call(room.boss, "set_budget", task=task, costUsd=2.5)["value"] == "RUNNING"
    assert "6 decimals" in refusal(call(room.boss, "set_budget", task=task, costUsd=1e-7))
    assert room.show(task)["costUsdMax"] == 2.5
    assert call(room.boss, "signal_task", task=task, name="go", value=[1], id="s")["value"] is False
    assert room.show(task)["result"] == [1]


def test_reports_by_mail_say_what_was_used(room: Room) -> None:
    task = room.begin()
    names, _ = room.take()
    send(room.coder, "task_update", {**names, "usage": {"costUsd": 0.5, "tokens": 10}})
    assert "usage" in refusal(send(room.coder, "task_update", {**names, "usage": {"costUsd": -1}}))
    assert "usage" in refusal(send(room.coder, "task_update", {**names, "usage": {"dollars": 1}}))
    failed = {**names, "retryable": True, "usage": {"costUsd": 0.75, "tokens": 10}}
    send(room.coder, "task_failed", failed)
    room.later(60)
    names, _ = room.take()
    send(room.coder, "task_complete", {**names, "usage": {"tokens": 5}})
    told = room.show(task)
    assert (told["status"], told["costUsd"], told["tokens"]) == ("SUCCESS", 0.75, 15)


# -- growth, and running again

GROWS = {"workflow": "grows", "steps": {"plan": {"agent": "coder", "grows": True}}}


async def test_a_settle_grows_a_step(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        task = (await api.admin.post("/v1/tasks", json={"workflow": GROWS})).json()["task"]
        [delivery] = await api.receive("coder")
        token = delivery["token"]
        answer = await api.admin.post("/v1/settle", json={"grows": [{"token": token, "steps": {}}]})
        assert (answer.status_code, answer.json()["code"]) == (409, "INVALID_PLAN")
        steps = [{"name": "x", "agent": "coder"}]
        grown = {"token": token, "steps": steps, "usage": {"tokens": 5}}
        [settled] = await api.settle(grows=[grown])
        assert (settled["outcome"], settled["status"]) == ("grown", "RUNNING")
        [delivery] = await api.receive("coder")
        assert delivery["message"]["content"]["step"] == "plan/x"
        await api.settle(finishes=[{"token": delivery["token"], "result": 7}])
        told = await shown(api, task)
        assert (told["status"], told["result"], told["tokens"]) == ("SUCCESS", 7, 5)


def test_a_completion_by_mail_may_have_steps(room: Room) -> None:
    room.boss.ask(op="call", name="open_mailbox", arguments={"mailbox": "coder"})
    content = {"workflow": GROWS}
    task = room.begin(content)
    names, _ = room.take()
    both = {**names, "steps": {"x": {"agent": "coder"}}, "result": 1}
    assert "one of" in refusal(send(room.coder, "task_complete", both))
    bad = {**names, "steps": {"x": {"agent": "coder", "grow": 1}}}
    assert "INVALID_PLAN" in refusal(send(room.coder, "task_complete", bad))
    (told,) = send(room.coder, "task_complete", {**names, "steps": {"x": {"agent": "coder"}}})["receipts"]
    assert told["task"] == task
    (one,) = room.coder.ask(op="receive", mailbox="coder", waitMs=5_000)["deliveries"]
    arguments = {"token": one["token"], "steps": [{"name": "y", "agent": "coder"}]}
    assert "INVALID_PLAN" in refusal(room.coder.ask(op="call", name="grow_step", arguments=arguments))
    room.coder.ask(op="call", name="finish_step", arguments={"token": one["token"], "result": 3})
    assert room.show(task)["result"] == 3


async def test_a_task_is_run_again_over_http(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        task = (await api.admin.post("/v1/tasks", json={"workflow": ALONE})).json()["task"]
        path = f"/v1/tasks/{task}/rerun"
        assert (await api.admin.post(path, json={"fromStep": "one"})).status_code == 409
        [delivery] = await api.receive("coder")
        await api.settle(fails=[{"token": delivery["token"]}])
        assert (await api.agent("coder").post(path, json={"fromStep": "one"})).status_code == 403
        assert (await api.client(["admin"], "other").post(path, json={"fromStep": "one"})).status_code == 404
        for body in ({}, {"fromStep": ""}, {"fromStep": "none"}, {"fromStep": "one", "x": 1}):
            assert (await api.admin.post(path, json=body)).status_code == 400
        answers = [await api.admin.post(path, json={"fromStep": "one", "input": 5}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        again = answers[0].json()["task"]
        assert (await shown(api, again))["againOf"] == task
