"""Schedules over HTTP and the JSON WebSocket: scopes, namespaces, pages, budgets, audit, and their ticks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, NotFound
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.schedules.commands import SetSchedule
from relaymesh.kernel.schedules.schedule import Work
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from tests.client.raw import Raw
from tests.client.serving import ServerThread
from tests.server.serving import Api, serving

PATH = "/v1/schedules"
WORK = {"workflow": "work", "steps": {"one": {"agent": "a", "input": 1}}}


def nightly(name: str = "nightly", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cron": "0 7 * * *",
        "tz": "Europe/Berlin",
        "message": {"to": "a", "content": [1]},
        **fields,
    }


async def put(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    answer = await api.admin.post(PATH, json=body)
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    assert made["duplicate"] is (answer.status_code == 200)
    return made


async def test_put_list_show_pause_resume_and_remove(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        made = await put(api, nightly())
        assert (made["to"], made["message"]["content"], made["paused"]) == ("default/a", [1], False)
        assert (await put(api, nightly()))["duplicate"]
        assert (await api.admin.post(PATH, json=nightly(missed="none"))).status_code == 409
        assert (await put(api, nightly(missed="none", replace=True)))["missed"] == "none"
        whole = {"name": "whole", "cron": "*/5 * * * *", "workflow": WORK, "input": {"n": 1}}
        assert (await put(api, whole))["document"] == WORK
        listed = (await api.admin.get(PATH)).json()["schedules"]
        assert [(each["name"], each["workflow"], each["to"]) for each in listed] == [
            ("nightly", None, "default/a"), ("whole", "work", None),
        ]  # fmt: skip
        assert (await api.admin.get(f"{PATH}/whole")).json()["input"] == {"n": 1}
        paused = (await api.admin.post(f"{PATH}/nightly/pause")).json()
        assert (paused["paused"], paused["nextAt"]) == (True, None)
        assert not (await api.admin.post(f"{PATH}/nightly/resume")).json()["paused"]
        assert (await api.admin.delete(f"{PATH}/nightly")).json() == {"removed": True}
        assert (await api.admin.delete(f"{PATH}/nightly")).json() == {"removed": False}
        for answer in (
            await api.admin.get(f"{PATH}/nightly"),
            await api.admin.post(f"{PATH}/nightly/pause"),
            await api.admin.post(f"{PATH}/nightly/resume"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


async def test_a_tick_fires_in_a_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        work = Work(to="default/a", message=Envelope("", "default/relaymesh", b'"now"'))
        due_long_ago = SetSchedule("s", "0 0 1 1 *", "UTC", work, "default/relaymesh", 1)
        await api.served.session.execute(due_long_ago)
        shown: dict[str, Any] = {"runs": 0}
        for _ in range(1_000):
            if shown["runs"]:
                break
            await asyncio.sleep(0.01)  # housekeeping fires it
            shown = (await api.admin.get(f"{PATH}/s")).json()
        [delivery] = await api.receive("a")
        assert (delivery["message"]["content"], delivery["message"]["id"]) == ("now", shown["lastRun"])


async def test_pages_go_on_where_the_page_before_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        for number in range(5):
            await put(api, nightly(f"s{number}"))
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await api.admin.get(PATH, params={"limit": 2, "cursor": cursor})).json()
            found += [each["name"] for each in page["schedules"]]
            cursor = page["cursor"]
        assert found == [f"s{number}" for number in range(5)]


async def test_looking_needs_read_and_changing_needs_write(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        await put(api, nightly())
        reader, writer = api.client(["read"]), api.client(["write"])
        for answer in (
            await reader.post(PATH, json=nightly("other")),
            await reader.post(f"{PATH}/nightly/pause"),
            await reader.post(f"{PATH}/nightly/resume"),
            await reader.delete(f"{PATH}/nightly"),
            await writer.get(PATH),
            await writer.get(f"{PATH}/nightly"),
        ):
            assert answer.status_code == 403, answer.text
        assert (await reader.get(f"{PATH}/nightly")).status_code == 200
        assert (await writer.post(f"{PATH}/nightly/pause")).status_code == 200


async def test_bad_bodies_are_refused_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        changes: list[dict[str, Any]] = [
            {"name": "a b"}, {"name": None}, {"cron": "* * *"}, {"cron": 7}, {"tz": "Mars/Base"},
            {"missed": "all"}, {"replace": 1}, {"workflow": "work"}, {"input": 1}, {"message": None},
            {"message": {"to": ""}},
            {"message": {"to": "nobody"}}, {"message": {"to": "a", "priority": 9}},
            {"message": {"to": "a", "x": 1}}, {"message": {"to": "a", "type": "heartbeat"}},
            {"message": {"to": "a", "ttl": "1"}}, {"more": 1},
            {"message": None, "workflow": "no@such"}, {"message": None, "workflow": [1]},
            {"message": None, "workflow": {}},
        ]  # fmt: skip
        for change in changes:
            answer = await api.admin.post(PATH, json={**nightly(), **change})
            assert 400 <= answer.status_code < 500, (change, answer.text)
            assert answer.json()["hint"]
        assert (await api.admin.get(PATH)).json()["schedules"] == []


async def test_its_owner_pays_for_a_schedule_and_for_its_runs(tmp_path: Path) -> None:
    security = SecuritySettings(kept_bytes_max=20_000)
    async with serving(tmp_path, settings=ServerSettings(security=security)) as api:
        client = api.client(["agent:a", "write", "read"])
        await api.open("a")
        big = {"to": "a", "content": "x" * 30_000}
        answer = await client.post(PATH, json=nightly(message=big))
        assert (answer.status_code, answer.json()["code"]) == (429, "OVER_BUDGET")
        made = await client.post(PATH, json=nightly())
        assert made.json()["owner"] == "default/a"


async def test_writes_are_in_the_audit_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        client = api.client(["agent:a", "write"])
        await client.post(PATH, json=nightly())
        await client.post(f"{PATH}/nightly/pause")
        await client.delete(f"{PATH}/nightly")
        await api.admin.get(PATH)
        await api.served.audit.close()
    lines = [json.loads(line) for line in (tmp_path / "server" / "audit.jsonl").read_text().splitlines()]
    told = [(each["method"], each["status"]) for each in lines if PATH in each.get("route", "")]
    assert told == [("POST", 201), ("POST", 200), ("DELETE", 200)]


async def test_the_json_websocket_has_the_same(tmp_path: Path) -> None:
    server = await asyncio.to_thread(ServerThread, tmp_path)
    try:
        await asyncio.to_thread(_speak, server)
    finally:
        await asyncio.to_thread(server.stop)
    lines = [json.loads(line) for line in (tmp_path / "server" / "audit.jsonl").read_text().splitlines()]
    routes = [each["route"].rpartition(" ")[2] for each in lines if each["event"] == "ws.write"]
    assert routes == [
        "open_mailbox",
        "put_schedule",
        "put_schedule",
        "put_schedule",
        "hold_schedule",
        "remove_schedule",
    ]


def _speak(server: ServerThread) -> None:
    with Raw(server, server.token(["admin"])) as raw:

        def call(called: str, /, **arguments: Any) -> Any:
            answer = raw.ask(op="call", name=called, arguments=arguments)
            return answer.get("value", answer.get("code"))

        call("open_mailbox", mailbox="a")
        made = call("put_schedule", **nightly())
        assert (made["name"], made["message"]["content"], made["duplicate"]) == ("nightly", [1], False)
        assert call("put_schedule", **nightly(cron="0 8 * * *")) == "CONFLICT"
        assert call("put_schedule", name="w", cron="0 * * * *", workflow=WORK)["workflow"] == "work"
        assert call("find_schedule", schedule="nightly")["tz"] == "Europe/Berlin"
        assert call("find_schedule", schedule="other") is None
        assert [each["name"] for each in call("find_schedules")] == ["nightly", "w"]
        assert call("hold_schedule", schedule="nightly", paused=True)["paused"] is True
        assert call("remove_schedule", schedule="nightly") is True


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_remote_mesh_keeps_schedules_in_the_namespace_of_its_token(
    tmp_path: Path, transport: Any
) -> None:
    server = await asyncio.to_thread(ServerThread, tmp_path)
    try:
        blue, red = server.token(["read", "write"], "blue"), server.token(["read", "write"], "red")
        async with AsyncMesh(server.url, token=blue, transport=transport) as mesh:
            await mesh.agent("a")
            await mesh.put_schedule("s", "0 7 * * *", to="a", content=1)
        async with AsyncMesh(server.url, token=red, transport=transport) as mesh:
            assert await mesh.schedules() == []
            for call in (mesh.schedule, mesh.pause_schedule, mesh.resume_schedule):
                with pytest.raises(NotFound):
                    await call("s")
            assert await mesh.remove_schedule("s") is False
        async with AsyncMesh(server.url, token=blue, transport=transport) as mesh:
            assert (await mesh.schedule("s")).content == 1
            assert await mesh.remove_schedule("s") is True
    finally:
        await asyncio.to_thread(server.stop)
