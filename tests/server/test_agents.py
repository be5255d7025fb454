"""Agents over HTTP: they join, are heard of, fall silent, drain; and mail goes where its type may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Api, serving


async def _register(api: Api, name: str, **said: Any) -> dict[str, Any]:
    answer = await api.admin.post("/v1/agents", json={"name": name, **said})
    assert answer.status_code == 200, answer.text
    agent: dict[str, Any] = answer.json()
    return agent


async def test_an_agent_that_joins_has_a_mailbox_and_is_online(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        agent = await _register(api, "coder", role="developer", capabilities=["python"], metadata={"pid": 7})
        assert (agent["address"], agent["state"], agent["role"]) == ("default/coder", "online", "developer")
        assert (agent["capabilities"], agent["metadata"]) == (["python"], {"pid": 7})
        assert agent["protocolVersion"] == "1.1"
        await api.send("coder", 1)
        assert (await api.admin.get("/v1/agents/coder")).json()["pending"] == 1


async def test_who_joined_is_known_after_a_restart_and_not_yet_heard_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "coder", role="developer")
    async with serving(tmp_path) as api:
        agent = (await api.admin.get("/v1/agents/coder")).json()
        assert (agent["state"], agent["role"], agent["registered"]) == ("registered", "developer", True)
        answer = await api.agent("coder").post("/v1/mailboxes/coder/receive", json={})
        assert answer.status_code == 200
        assert (await api.admin.get("/v1/agents/coder")).json()["state"] == "online"


async def test_a_heartbeat_is_answered_by_ack_with_the_terms(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "coder")
        answer = await api.agent("coder").post("/v1/agents/coder/heartbeat", json={"status": "busy with 1.4"})
        told = answer.json()
        assert (told["type"], told["state"]) == ("ack", "online")
        assert (told["heartbeatIntervalMs"], told["heartbeatTimeoutMs"]) == (30_000, 90_000)
        assert (await api.admin.get("/v1/agents/coder")).json()["status"] == "busy with 1.4"
        assert (await api.admin.post("/v1/agents/nobody/heartbeat")).status_code == 404


async def test_an_agent_that_falls_silent_is_offline_and_its_mail_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "coder")
        heard = api.served.roster.presence._heard["default/coder"]
        heard.at -= 90_000
        assert (await api.admin.get("/v1/agents/coder")).json()["state"] == "offline"
        await api.send("coder", 1)
        assert len(await api.receive("coder")) == 1
        assert (await api.admin.get("/v1/agents/coder")).json()["state"] == "online"


async def test_a_draining_agent_gets_no_new_tasks_until_it_joins_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "manager", role="manager")
        await _register(api, "coder")
        assert (await api.agent("coder").post("/v1/agents/coder/drain")).json()["state"] == "draining"
        task = {"from": "manager", "to": "coder", "type": "task_assign", "content": {}}
        answer = await api.admin.post("/v1/messages", json=task)
        assert (answer.status_code, answer.json()["code"]) == (409, "AGENT_BUSY")
        await api.send("coder", "a word is fine")
        await _register(api, "coder")
        assert (await api.admin.post("/v1/messages", json=task)).status_code == 202
        assert (await api.admin.post("/v1/agents/nobody/drain")).status_code == 404


async def test_a_type_goes_only_in_its_direction(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "reviewer", role="reviewer")
        await _register(api, "tester", role="tester")
        request = {"from": "tester", "to": "reviewer", "type": "code_review_request", "content": {}}
        answer = await api.admin.post("/v1/messages", json=request)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE")
        assert "tester" in answer.json()["detail"]


async def test_the_list_shows_ones_namespace_joined_or_not_and_no_subscriptions(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "coder")
        await api.open("box")
        await api.admin.put("/v1/topics/orders/subscriptions/billing")
        agents = (await api.client(["read"]).get("/v1/agents")).json()["agents"]
        assert [(each["name"], each["registered"], each["state"]) for each in agents] == [
            ("box", False, "unknown"),
            ("coder", True, "online"),
        ]
        assert (await api.client(["read"], namespace="red").get("/v1/agents")).json()["agents"] == []
        assert (await api.admin.get("/v1/agents/nobody")).status_code == 404


async def test_an_agent_joins_and_beats_in_its_own_name_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _register(api, "tester")
        coder = api.agent("coder")
        assert (await coder.post("/v1/agents", json={"name": "coder"})).status_code == 200
        for path, body in (
            ("/v1/agents", {"name": "tester"}),
            ("/v1/agents/tester/heartbeat", {}),
            ("/v1/agents/tester/drain", None),
        ):
            answer = await coder.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "UNAUTHORIZED")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "a b"},
        {"name": "coder", "role": "emperor"},
        {"name": "coder", "protocolVersion": "2.0"},
        {"name": "coder", "protocolVersion": "new"},
        {"name": "coder", "capabilities": [""]},
        {"name": "coder", "capabilities": ["x"] * 65},
        {"name": "coder", "metadata": []},
        {"name": "coder", "colour": "red"},
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(tmp_path: Path, body: Any) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.post("/v1/agents", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE"), answer.text
