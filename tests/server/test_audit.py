"""The audit says who did what, whichever credential it was done with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh
from tests.client.serving import ServerThread
from tests.server.serving import serving


def agents_of(path: Path, word: str) -> list[str]:
    """The `agent` of each audit line whose route ends so."""
    lines = [json.loads(line) for line in (path / "server" / "audit.jsonl").read_text().splitlines()]
    return [line["agent"] for line in lines if line.get("route", "").endswith(word)]


@pytest.mark.parametrize("scope", ["write", "admin"])
async def test_a_write_names_the_agents_it_was_done_as(tmp_path: Path, scope: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        client = api.client([scope])

        async def post(path: str, body: Any) -> Any:
            answer = await client.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        messages = [{"from": sender, "to": "coder", "content": 1} for sender in ("planner", "tester")]
        await post("/v1/messages", messages)
        await post("/v1/topics/orders/messages", {"from": "shop", "content": 1})
        [delivery] = (await post("/v1/mailboxes/coder/receive", {}))["deliveries"]
        await post("/v1/settle", {"acks": [delivery["token"]]})
        await post("/v1/agents", {"name": "reviewer"})
        await post("/v1/agents/reviewer/heartbeat", {})
        await client.put("/v1/mailboxes/new")
        await api.served.audit.close()
    assert agents_of(tmp_path, "/v1/messages") == ["planner,tester"]
    assert agents_of(tmp_path, "topics/{topic}/messages") == ["shop"]
    assert agents_of(tmp_path, "/receive") == ["coder"]
    assert agents_of(tmp_path, "/v1/settle") == ["coder"]
    assert agents_of(tmp_path, "/v1/agents") == ["reviewer"]
    assert agents_of(tmp_path, "/heartbeat") == ["reviewer"]
    assert all(agent.startswith("token ") for agent in agents_of(tmp_path, "/v1/mailboxes/{mailbox}"))


async def test_a_token_that_acts_as_no_agent_is_named_by_its_label(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        secret = api._file.create(["write"], label="ops console")[1]
        api._known()
        await api.admin.put("/v1/mailboxes/coder", headers={"authorization": f"Bearer {secret}"})
        await api.served.audit.close()
    assert agents_of(tmp_path, "/v1/mailboxes/{mailbox}") == ["token ops console"]


async def test_many_agents_in_one_batch_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        messages = [{"from": f"a{n}", "to": "coder", "content": 1} for n in range(10)]
        assert (await api.client(["write"]).post("/v1/messages", json=messages)).status_code == 202
        await api.served.audit.close()
    assert agents_of(tmp_path, "/v1/messages") == ["a0,a1,a2,a3,a4,a5,a6,a7 and 2 more"]


async def test_so_it_is_over_a_websocket(tmp_path: Path) -> None:
    server = await asyncio.to_thread(ServerThread, tmp_path)
    try:
        async with AsyncMesh(server.url, token=server.token(["admin"], "*")) as mesh:
            planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
            await planner.send("coder", 1)
            await planner.publish("orders", 1)
            await (await coder.receive(timeout=30)).ack()
            await planner.send("coder", 2)
            await coder.answer(await coder.receive(timeout=30), 3)
    finally:
        await asyncio.to_thread(server.stop)
    assert agents_of(tmp_path, " send") == ["default/planner", "default/planner"]
    assert agents_of(tmp_path, " publish") == ["default/planner"]
    assert agents_of(tmp_path, " settle") == ["default/coder"]
    assert agents_of(tmp_path, " reply") == ["default/coder"]
    assert all(agent.startswith("token ") for agent in agents_of(tmp_path, " open_mailbox"))
