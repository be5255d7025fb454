"""Stored workflows over HTTP and the JSON WebSocket: scopes, namespaces, pages, budgets, audit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, NotFound
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from tests.client.raw import Raw
from tests.client.serving import ServerThread
from tests.server.serving import Api, serving

PATH = "/v1/workflows"


def release(agent: str = "a", **fields: Any) -> dict[str, Any]:
    return {"workflow": "release", "steps": {"one": {"agent": agent, "input": 1}}, **fields}


async def put(api: Api, document: Any, **fields: Any) -> dict[str, Any]:
    answer = await api.admin.post(PATH, json={"workflow": document, **fields})
    assert answer.status_code in (200, 201), answer.text
    body: dict[str, Any] = answer.json()
    assert body["duplicate"] is (answer.status_code == 200)
    return body


async def test_put_list_show_run_and_remove(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a", "b")
        assert (await put(api, release("a")))["version"] == "1"
        assert (await put(api, release("b"), version="2.0"))["owner"] == "default/relaymesh"
        assert (await put(api, release("b"), version="2.0"))["duplicate"]
        listed = (await api.admin.get(PATH)).json()
        assert [(each["name"], each["version"], each["versions"]) for each in listed["workflows"]] == [
            ("release", "2.0", 2)
        ]
        shown = (await api.admin.get(f"{PATH}/release", params={"version": "1"})).json()
        assert shown["document"] == release("a", version="1")
        assert (await api.admin.get(f"{PATH}/release")).json()["version"] == "2.0"
        answer = await api.admin.post(f"{PATH}/release/run", json={"version": "1", "input": {"x": 1}})
        assert (answer.status_code, answer.json()["duplicate"]) == (201, False)
        again = await api.admin.post(f"{PATH}/release/run", json={"version": "1", "input": {"x": 1}})
        assert (again.status_code, again.json()["task"]) == (200, answer.json()["task"])
        task = (await api.admin.get(f"/v1/tasks/{answer.json()['task']}")).json()
        assert (task["workflow"], task["version"], task["owner"]) == ("release", "1", "default/relaymesh")
        by_name = await api.admin.post("/v1/tasks", json={"workflow": "release@1", "input": {"x": 1}})
        assert by_name.json()["task"] == answer.json()["task"]
        assert (await api.receive("a"))[0]["message"]["content"]["input"] == 1
        newest = await api.admin.post(f"{PATH}/release/run")
        assert newest.status_code == 201
        assert (await api.receive("b"))[0]["message"]["content"]["workflow"] == "release"
        gone = await api.admin.delete(f"{PATH}/release", params={"version": "1"})
        assert gone.json() == {"removed": 1}
        assert (await api.admin.delete(f"{PATH}/release")).json() == {"removed": 1}
        assert (await api.admin.delete(f"{PATH}/release")).json() == {"removed": 0}
        assert (await api.admin.get(PATH)).json() == {"workflows": [], "cursor": None}


async def test_a_version_with_another_document_is_a_conflict(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await put(api, release("a"), version="1")
        answer = await api.admin.post(PATH, json={"workflow": release("b"), "version": "1"})
        assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
        assert "another version" in answer.json()["hint"]


async def test_pages_show_every_workflow_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for number in range(7):
            await put(api, release() | {"workflow": f"w{number}"})
        await put(api, release("b") | {"workflow": "w3"})
        seen: list[str] = []
        asked: dict[str, Any] = {"limit": 3}
        while True:
            page = (await api.admin.get(PATH, params=asked)).json()
            seen += [each["name"] for each in page["workflows"]]
            if page["cursor"] is None:
                break
            asked["cursor"] = page["cursor"]
        assert seen == ["w3", "w6", "w5", "w4", "w2", "w1", "w0"]
        versions = (await api.admin.get(PATH, params={"name": "w3"})).json()["workflows"]
        assert [each["version"] for each in versions] == ["2", "1"]


@pytest.mark.parametrize(
    ("scope", "may_write", "may_read"),
    [("read", False, True), ("write", True, False), ("agent:a", False, False), ("admin", True, True)],
)
async def test_puts_and_runs_need_write_and_looks_need_read(
    tmp_path: Path, scope: str, may_write: bool, may_read: bool
) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        await put(api, release())
        client = api.client([scope])
        writes = [
            await client.post(PATH, json={"workflow": release()}),
            await client.post(f"{PATH}/release/run", json={"key": scope}),
            await client.delete(f"{PATH}/release", params={"version": "9"}),
        ]
        reads = [await client.get(PATH), await client.get(f"{PATH}/release")]
        assert {each.status_code < 300 for each in writes} == {may_write}
        assert {each.status_code < 300 for each in reads} == {may_read}
        assert {each.status_code for each in [*writes, *reads] if each.status_code >= 300} <= {403}


async def test_a_workflow_of_another_namespace_is_not_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        red, blue = api.client(["admin"], "red"), api.client(["admin"], "blue")
        everywhere = api.client(["admin"], "*")
        await api.open("a")
        assert (await blue.post(PATH, json={"workflow": release()})).json()["owner"] == "blue/relaymesh"
        for name in ("release", "blue/release"):
            for method, path in (("GET", ""), ("POST", "/run")):
                answer = await red.request(method, f"{PATH}/{name}{path}")
                assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), (name, method)
                assert "workflow list" in answer.json()["hint"]
        assert (await red.post("/v1/tasks", json={"workflow": "release"})).status_code == 404
        assert (await red.delete(f"{PATH}/release")).json() == {"removed": 0}
        assert (await red.delete(f"{PATH}/blue/release")).status_code == 404
        assert (await red.get(PATH)).json()["workflows"] == []
        assert (await red.get(PATH, params={"namespace": "blue"})).json()["workflows"] == []
        assert (await red.post(PATH, json={"workflow": release("b")})).json()["version"] == "1"
        assert (await everywhere.get(f"{PATH}/blue/release")).json()["owner"] == "blue/relaymesh"
        assert [each["owner"] for each in (await everywhere.get(PATH)).json()["workflows"]] == [
            "red/relaymesh",
            "blue/relaymesh",
        ]
        assert (await everywhere.get(f"{PATH}/release")).status_code == 404
        assert (await everywhere.delete(f"{PATH}/blue/release")).json() == {"removed": 1}


async def test_a_credential_of_every_namespace_runs_where_it_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        everywhere = api.client(["admin"], "*")
        (await everywhere.put("/v1/mailboxes/blue/a")).raise_for_status()
        answer = await everywhere.post(PATH, json={"workflow": release(), "owner": "blue/planner"})
        assert answer.json()["owner"] == "blue/planner"
        ran = await everywhere.post(f"{PATH}/blue/release/run")
        assert ran.status_code == 201, ran.text
        task = (await everywhere.get(f"/v1/tasks/{ran.json()['task']}")).json()
        assert (task["owner"], task["steps"][0]["agent"]) == ("blue/relaymesh", "blue/a")
        wrong = await everywhere.post(f"{PATH}/blue/release/run", json={"owner": "default/x"})
        assert wrong.status_code == 400


async def test_an_agent_that_writes_owns_what_it_puts_within_its_budget(tmp_path: Path) -> None:
    settings = ServerSettings(security=SecuritySettings(kept_bytes_max=20_000))
    async with serving(tmp_path, settings=settings) as api:
        client = api.client(["agent:a", "write"])
        answer = await client.post(PATH, json={"workflow": release()})
        assert answer.json()["owner"] == "default/a"
        large = release() | {"steps": {"one": {"agent": "a", "input": "x" * 20_000}}}
        answer = await client.post(PATH, json={"workflow": large})
        assert (answer.status_code, answer.json()["code"]) == (429, "OVER_BUDGET")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"workflow": None},
        {"workflow": "release"},
        {"workflow": []},
        {"workflow": {}},
        {"workflow": release(), "version": 3},
        {"workflow": release(), "version": 1.0},
        {"workflow": release(), "version": "a b"},
        {"workflow": release(), "version": "x" * 200},
        {"workflow": release(), "version": None},
        {"workflow": release(), "owner": 3},
        {"workflow": release(), "owner": ""},
        {"workflow": release(), "versoin": "3"},
        {"workflow": release(version="2"), "version": "3"},
        {"workflow": release() | {"workflow": "a/b"}},
        {"workflow": release() | {"steps": {}}},
    ],
    ids=lambda each: json.dumps(each)[:50],
)
async def test_a_bad_put_is_refused_and_nothing_is_kept(tmp_path: Path, body: Any) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.post(PATH, json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["hint"]
        assert (await api.admin.get(PATH)).json()["workflows"] == []


async def test_other_bad_requests_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await put(api, release())
        for query in ("limit=0", "limit=x", "limit=1001", "cursor=-1", "name=a%20b", "x=1"):
            assert (await api.admin.get(f"{PATH}?{query}")).status_code == 400, query
        for name in ("a%20b", "%00", "a@1", "x" * 129):
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/run")):
                answer = await api.admin.request(method, f"{PATH}/{name}{path}")
                assert answer.status_code in (400, 404), (name, method, answer.text)
        for query in ("version=a%20b", "version=1&version=2", "versoin=1"):
            assert (await api.admin.get(f"{PATH}/release?{query}")).status_code == 400
        bodies: list[Any] = [{"version": 1}, {"input": 1, "inptu": 2}, {"key": 7}, {"again": "yes"}, [], 7]
        for body in bodies:
            assert (await api.admin.post(f"{PATH}/release/run", json=body)).status_code == 400, body


async def test_puts_runs_and_removals_are_audited(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        client = api.client(["agent:a", "write"])
        await client.post(PATH, json={"workflow": release()})
        await client.post(f"{PATH}/release/run")
        await client.delete(f"{PATH}/release")
        await api.admin.get(PATH)
        await api.served.audit.close()
    lines = [json.loads(line) for line in (tmp_path / "server" / "audit.jsonl").read_text().splitlines()]
    told = [
        (each["method"], each["agent"], each["status"]) for each in lines if PATH in each.get("route", "")
    ]
    assert told == [("POST", "a", 201), ("POST", "a", 201), ("DELETE", "a", 200)]


async def test_the_json_websocket_has_the_same(tmp_path: Path) -> None:
    server = await asyncio.to_thread(ServerThread, tmp_path)
    try:
        await asyncio.to_thread(_speak, server)
    finally:
        await asyncio.to_thread(server.stop)
    lines = [json.loads(line) for line in (tmp_path / "server" / "audit.jsonl").read_text().splitlines()]
    routes = [each["route"].rpartition(" ")[2] for each in lines if each["event"] == "ws.write"]
    assert routes == ["put_workflow", "put_workflow", "open_mailbox", "submit_task", "remove_workflow"]


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_remote_mesh_keeps_workflows_in_the_namespace_of_its_token(
    tmp_path: Path, transport: Any
) -> None:
    server = await asyncio.to_thread(ServerThread, tmp_path)
    try:
        blue, red = server.token(["read", "write"], "blue"), server.token(["read", "write"], "red")
        async with AsyncMesh(server.url, token=blue, transport=transport) as mesh:
            await mesh.agent("a")
            assert (await mesh.put_workflow(release(), "7")).version == "7"
            assert (await mesh.workflow("release")).document == release(version="7")
            task = await mesh.submit("release@7")
            assert (await task.show()).workflow == "release"
        async with AsyncMesh(server.url, token=red, transport=transport) as mesh:
            assert await mesh.workflows() == []
            for call in (mesh.workflow, mesh.submit):
                with pytest.raises(NotFound):
                    await call("release")
            assert await mesh.remove_workflow("release") == 0
        async with AsyncMesh(server.url, token=blue, transport=transport) as mesh:
            assert await mesh.remove_workflow("release") == 1
    finally:
        await asyncio.to_thread(server.stop)


def _speak(server: ServerThread) -> None:
    with Raw(server, server.token(["admin"])) as raw:

        def call(name: str, **arguments: Any) -> Any:
            answer = raw.ask(op="call", name=name, arguments=arguments)
            return answer.get("value", answer.get("code"))

        put = call("put_workflow", workflow=release("a"))
        assert (put["name"], put["version"], put["duplicate"]) == ("release", "1", False)
        assert call("put_workflow", workflow=release("b"), version="1") == "CONFLICT"
        assert call("find_workflow", workflow="release")["document"] == release("a", version="1")
        assert call("find_workflow", workflow="other") is None
        assert [each["version"] for each in call("find_workflows", workflow="release")] == ["1"]
        call("open_mailbox", mailbox="a")
        assert not call("submit_task", workflow="release@1")["duplicate"]
        assert call("remove_workflow", workflow="release", version="1") == 1


async def test_a_run_is_the_same_task_after_the_kernel_forgot_it_and_others_begin(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        await api.open("a")
        await put(api, release())
        first = (await api.admin.post(f"{PATH}/release/run", json={"input": 1})).json()["task"]
        token = (await api.receive("a"))[0]["token"]
        await api.settle(finishes=[{"token": token, "result": 1}])
        node = api.served.node
        await asyncio.to_thread(node.catch_up, 30)
        assert node.store is not None
        node.core.kernel.state.board.forget(node.store.applied, node.time.now())
        again = await api.admin.post(f"{PATH}/release/run", json={"input": 1})
        assert (again.status_code, again.json()["task"], again.json()["status"]) == (200, first, "SUCCESS")
        other = await api.admin.post(f"{PATH}/release/run", json={"input": 2})
        assert other.status_code == 201, other.text
