"""The story of a message: wherever it went, whatever failed, as soon as its receipt is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaymesh.node.settings import MeshSettings
from tests.server.serving import Api, serving


async def _entries(api: Api, id: str) -> list[dict[str, Any]]:
    answer = await api.admin.get(f"/v1/messages/{id}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["messageId"] == id
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def test_a_message_is_followed_from_its_receipt_to_its_ack(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        receipt = await api.send("coder", 1, id="m-1", metadata={"taskId": "t-1"})
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["attempts"], entry["sequence"]) == ("ready", 0, receipt["sequence"])
        assert (entry["mailbox"], entry["sender"], entry["taskId"]) == (
            "default/coder",
            "default/planner",
            "t-1",
        )
        [delivery] = await api.receive("coder")
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["attempts"]) == ("leased", 1)
        assert (entry["leaseToken"], entry["leaseDeadline"]) == (delivery["token"], delivery["deadline"])
        await api.settle(acks=[delivery["token"]])
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["attempts"]) == ("acked", 1)


async def test_failures_are_told_while_it_waits_when_it_is_dead_and_after_it_was_redriven(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
        [delivery] = await api.receive("coder")
        await api.settle(nacks=[{"token": delivery["token"], "reason": "first", "delayMs": 0}])
        [entry] = await _entries(api, "m-1")
        assert [each["reason"] for each in entry["failures"]] == ["first"]
        [delivery] = await api.receive("coder", waitMs=60_000)
        await api.settle(nacks=[{"token": delivery["token"], "reason": "second", "retryable": False}])
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["deadReason"]) == ("dead", "not_retryable")
        assert [each["reason"] for each in entry["failures"]] == ["first", "second"]
        await api.admin.post("/v1/dead-letters/redrive", json={"filter": {}})
        dead, again = await _entries(api, "m-1")
        assert (dead["state"], again["state"]) == ("redriven", "ready")
        assert (dead["redrives"], again["redrives"]) == (0, 1)


async def test_what_failed_is_told_also_of_a_message_that_was_acked_in_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
        for reason in ("first", "second"):
            [delivery] = await api.receive("coder", waitMs=60_000)
            await api.settle(nacks=[{"token": delivery["token"], "reason": reason, "delayMs": 0}])
            await _entries(api, "m-1")  # the store has it by then
        [delivery] = await api.receive("coder", waitMs=60_000)
        await api.settle(acks=[delivery["token"]])
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["attempts"]) == ("acked", 3)
        assert [(each["attempt"], each["reason"]) for each in entry["failures"]] == [
            (1, "first"),
            (2, "second"),
        ]


async def test_a_published_message_has_one_entry_for_each_subscription(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for name in ("a", "b"):
            await api.admin.put(f"/v1/topics/orders/subscriptions/{name}")
        await api.admin.post("/v1/topics/orders/messages", json={"from": "shop", "content": 1, "id": "o-1"})
        entries = await _entries(api, "o-1")
        assert {(each["mailbox"], each["topic"]) for each in entries} == {
            ("default/orders:a", "default/orders"),
            ("default/orders:b", "default/orders"),
        }


async def test_an_id_may_hold_anything_printable(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        id = "a/b?c=ü&d%20#e"
        await api.send("coder", 1, id=id)
        answer = await api.admin.get("/v1/messages/a%2Fb%3Fc=%C3%BC&d%2520%23e")
        assert answer.json()["messageId"] == id


async def test_an_id_nobody_knows_and_one_of_another_namespace_look_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
        red = api.client(["read"], namespace="red")
        for id in ("m-1", "m-2"):
            answer = await red.get(f"/v1/messages/{id}")
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert (await api.agent("tester").get("/v1/messages/m-1")).status_code == 404


@pytest.mark.parametrize("durability", ["memory"])
async def test_a_mesh_in_memory_tells_of_what_is_not_settled(tmp_path: Path, durability: Any) -> None:
    async with serving(tmp_path, mesh=MeshSettings(durability=durability)) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
        [entry] = await _entries(api, "m-1")
        assert (entry["state"], entry["mailbox"]) == ("ready", "default/coder")


async def test_an_edited_redrive_is_followed_from_the_old_id_to_the_new_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="old")
        [delivery] = await api.receive("coder")
        await api.settle(nacks=[{"token": delivery["token"], "reason": "no", "retryable": False}])
        await api.admin.post("/v1/dead-letters/redrive", json={"filter": {}, "content": 2})
        [dead] = await _entries(api, "old")
        assert dead["state"] == "redriven"
        [again] = await _entries(api, dead["redrivenAs"])
        assert (again["state"], again["originId"], again["redrives"]) == ("ready", "old", 1)
