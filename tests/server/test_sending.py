"""`POST /v1/messages` and topics: receipts, ids, batches, and messages that survive the relay as they are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from tests.server.serving import Api, serving

MESSAGE = {"from": "planner", "to": "coder", "content": {"do": "bump"}}


async def test_a_message_is_accepted_with_its_id_and_delivered(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post("/v1/messages", json={**MESSAGE, "id": "m-1"})
        assert answer.status_code == 202
        assert answer.json() == {"messageId": "m-1", "sequence": 3, "duplicate": False, "targets": 1}
        [delivery] = await api.receive("coder")
        assert delivery["message"]["id"] == "m-1"
        assert delivery["message"]["from"] == "default/planner"
        assert delivery["message"]["content"] == {"do": "bump"}
        assert delivery["attempt"] == 1
        assert 0 < delivery["leaseMs"] <= 30_000


async def test_an_id_is_made_where_none_is_given(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        receipts = [await api.send("coder", n) for n in range(2)]
        assert len({receipt["messageId"] for receipt in receipts}) == 2


async def test_only_a_delayed_message_says_when_it_is_delivered(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        assert "scheduledDeliveryTime" not in await api.send("coder", 1)
        receipt = await api.send("coder", 2, metadata={"delayMs": 3_600_000})
        assert receipt["scheduledDeliveryTime"].endswith("Z")
        assert (await api.counters("coder"))["delayed"] == 1


async def test_a_delay_that_is_no_number_counts_as_none_and_the_receipt_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        receipt = await api.send("coder", 1, metadata={"delayMs": -5})
        assert "counts as 0" in receipt["notes"][0]
        assert "scheduledDeliveryTime" not in receipt


async def test_the_same_message_again_is_a_duplicate_with_the_first_receipt(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        first = await api.send("coder", {"n": 1}, id="m-1")
        again = await api.send("coder", {"n": 1}, id="m-1")
        assert (again["duplicate"], again["sequence"]) == (True, first["sequence"])
        assert len(await api.receive("coder", max=10)) == 1


async def test_the_same_id_with_other_content_is_a_conflict(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", {"n": 1}, id="m-1")
        answer = await api.admin.post("/v1/messages", json={**MESSAGE, "id": "m-1", "content": {"n": 2}})
        assert answer.status_code == 409
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "CONFLICT"


async def test_a_duplicate_is_known_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
    async with serving(tmp_path) as api:
        assert (await api.send("coder", 1, id="m-1"))["duplicate"]


async def test_a_batch_is_answered_in_its_order_whatever_the_recipients(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        batch = [
            {"from": "planner", "to": "coder" if n % 3 else "tester", "content": n, "id": f"m-{n}"}
            for n in range(10)
        ]
        answer = await api.admin.post("/v1/messages", json=batch)
        assert answer.status_code == 202
        assert [each["messageId"] for each in answer.json()["receipts"]] == [f"m-{n}" for n in range(10)]
        assert len(await api.receive("tester", max=10)) == 4


async def test_a_batch_with_one_wrong_message_is_refused_whole_and_names_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post("/v1/messages", json=[MESSAGE, {**MESSAGE, "to": "nobody"}])
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_RECIPIENT")
        answer = await api.admin.post("/v1/messages", json=[MESSAGE, {"from": "planner", "content": 1}])
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("message 1: `to` is missing")
        assert (await api.counters("coder"))["accepted"] == 0


@pytest.mark.parametrize("batch", [b"[]", b"[" + b"0," * 10_000 + b"0]"])
async def test_a_batch_of_none_or_too_many_is_refused(tmp_path: Path, batch: bytes) -> None:
    async with serving(tmp_path) as api:
        answer = await _post(api, "/v1/messages", batch)
        assert answer.status_code == 400
        assert "1 to 10000 messages" in answer.json()["detail"]


async def test_unknown_fields_and_the_very_bytes_of_the_content_survive(tmp_path: Path) -> None:
    content = '{"b":1.0,"a":[1e2, 0.10, "\\u00e9"],"big":12345678901234567890}'
    text = f'{{"from":"planner","to":"coder","content":{content},"x-own":{{"k":[1,2]}},"metadata":{{"y":7}}}}'
    async with serving(tmp_path) as api:
        await api.open("coder")
        assert (await _post(api, "/v1/messages", text.encode())).status_code == 202
        answer = await api.admin.post("/v1/mailboxes/coder/receive", json={})
        assert content in answer.text
        message = answer.json()["deliveries"][0]["message"]
        assert message["x-own"] == {"k": [1, 2]}
        assert message["metadata"]["y"] == 7


async def test_a_full_mailbox_refuses_at_once_and_takes_it_when_there_is_room_in_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.admin.put("/v1/mailboxes/coder", json={"settings": {"capacity": 1}})
        await api.send("coder", 1)
        answer = await api.admin.post("/v1/messages", json=MESSAGE)
        assert (answer.status_code, answer.json()["code"]) == (429, "MAILBOX_FULL")
        assert answer.json()["retryable"]
        assert answer.headers["retry-after"] == "1"
        waiting = asyncio.create_task(api.admin.post("/v1/messages?timeout_ms=60000", json=MESSAGE))
        [delivery] = await api.receive("coder")
        await api.settle(acks=[delivery["token"]])
        assert (await waiting).status_code == 202


async def test_a_publish_reaches_every_subscription_that_fits(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for topic, name in (("order.*", "billing"), ("order.created", "audit")):
            answer = await api.admin.put(f"/v1/topics/{topic}/subscriptions/{name}")
            assert answer.status_code == 200
            assert answer.json() == {
                "mailbox": f"default/{topic}:{name}",
                "topic": f"default/{topic}",
                "name": name,
            }
        event = {"from": "shop", "content": {"order": 7}}
        answer = await api.admin.post("/v1/topics/order.created/messages", json=event)
        assert (answer.status_code, answer.json()["targets"]) == (202, 2)
        answer = await api.admin.post("/v1/topics/order.paid/messages", json=[event, event])
        assert [each["targets"] for each in answer.json()["receipts"]] == [1, 1]
        answer = await api.admin.post("/v1/topics/weather/messages", json=event)
        assert answer.json()["targets"] == 0
        got = await api.receive("order.*:billing", max=10)
        topics = ["default/order.created", "default/order.paid", "default/order.paid"]
        assert [each["topic"] for each in got] == topics
        answer = await api.admin.delete("/v1/topics/order.*/subscriptions/billing")
        assert answer.json() == {"dropped": 3}
        again = await api.admin.delete("/v1/topics/order.*/subscriptions/billing")
        assert again.status_code == 404


async def test_a_publish_names_no_recipient_and_a_send_names_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.post("/v1/topics/orders/messages", json=MESSAGE)
        assert (answer.status_code, "`to` is given" in answer.json()["detail"]) == (400, True)
        answer = await api.admin.post("/v1/messages", json={"from": "planner", "content": 1})
        assert (answer.status_code, "`to` is missing" in answer.json()["detail"]) == (400, True)


async def test_the_sender_is_stamped_from_the_credential(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        planner = api.agent("planner")
        unsigned = {"to": "coder", "content": 1}
        assert (await planner.post("/v1/messages", json=unsigned)).status_code == 202
        [delivery] = await api.receive("coder")
        assert delivery["message"]["from"] == "default/planner"
        forged = await planner.post("/v1/messages", json={**unsigned, "from": "tester"})
        assert (forged.status_code, forged.json()["code"]) == (403, "UNAUTHORIZED")


async def test_a_plain_name_means_the_credentials_namespace_and_no_other_can_be_reached(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        red = api.client(["write"], namespace="red")
        assert (await red.put("/v1/mailboxes/coder")).json() == {"mailbox": "red/coder"}
        assert (await red.post("/v1/messages", json={**MESSAGE, "from": "p"})).status_code == 202
        answer = await red.post("/v1/messages", json={**MESSAGE, "from": "p", "to": "default/coder"})
        assert (answer.status_code, answer.json()["code"]) == (403, "UNAUTHORIZED")
        assert await api.receive("coder") == []
        assert (await api.counters("coder"))["accepted"] == 0


async def _post(api: Api, path: str, body: bytes) -> Any:
    return await api.admin.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b"nonsense",
        b'"text"',
        b"17",
        b"null",
        b"\xff\xfe",
        b'{"from":"planner","to":"coder","content":\xff}',
        b'{"from":"planner","to":"coder","content":NaN}',
        b'{"from":"planner","to":"coder","content":1e999}',
        b'{"from":"planner","to":"coder","content":"\\ud800"}',
        b'{"from":"planner","to":"coder","content":{"a":1,"a":2}}',
        b'{"from":"planner","to":"coder","content":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"from":"planner","to":"coder","content":' + b"[" * 100_000,
        b'{"from":"planner","to":"coder"}',
        b'{"from":"planner","to":"","content":1}',
        b'{"from":"planner","to":5,"content":1}',
        b'{"from":"planner","to":"../etc","content":1}',
        b'{"from":"planner","to":"coder","content":1,"id":""}',
        b'{"from":"planner","to":"coder","content":1,"id":"\\u0000"}',
        b'{"from":"planner","to":"coder","content":1,"id":"' + b"x" * 129 + b'"}',
        b'{"from":"planner","to":"coder","content":1,"type":"ping"}',
        b'{"from":"planner","to":"coder","content":1,"type":"unheard_of"}',
        b'{"from":"planner","to":"coder","content":1,"priority":9}',
        b'{"from":"planner","to":"coder","content":1,"metadata":{"ttl":-1}}',
        b'{"from":"planner","to":"coder","content":1,"metadata":[]}',
        b'[{"from":"planner","to":"coder","content":1},7]',
        b"[[[[",
    ],
)
async def test_what_cannot_be_read_is_a_400_with_a_reason_and_nothing_is_accepted(
    tmp_path: Path, body: bytes
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await _post(api, "/v1/messages", body)
        assert answer.status_code == 400, answer.text
        problem = answer.json()
        assert problem["code"] == "INVALID_MESSAGE"
        assert problem["detail"]
        assert problem["instance"] == "/v1/messages"
        assert (await api.counters("coder"))["accepted"] == 0


async def test_content_over_the_limit_is_413(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        big = json.dumps({**MESSAGE, "content": "x" * 10_485_760}).encode()
        answer = await _post(api, "/v1/messages", big)
        assert (answer.status_code, answer.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "query", ["timeout_ms=x", "timeout_ms=-1", "timeout_ms=99999999", "max=3", "timeout_ms=1&timeout_ms=2"]
)
async def test_a_query_that_is_not_understood_is_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post(f"/v1/messages?{query}", json=MESSAGE)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE")


async def test_a_write_by_get_keeps_its_delay_and_its_task(tmp_path: Path) -> None:
    settings = ServerSettings(security=SecuritySettings(get_compat=True))
    async with serving(tmp_path, settings=settings) as api:
        await api.open("coder")
        query = "to=coder&from=planner&content=hi&delayMs=60000&taskId=t-1"
        answer = await api.admin.get(f"/v1/compat/send?{query}")
        assert answer.status_code == 202, answer.text
        assert answer.json()["scheduledDeliveryTime"]
        assert (await api.counters("coder"))["delayed"] == 1
        await api.admin.post("/v1/delayed/deliver", json={"mailbox": "coder"})
        [delivery] = await api.receive("coder")
        assert delivery["message"]["metadata"]["taskId"] == "t-1"
        late = await api.admin.get("/v1/compat/send?to=coder&from=planner&content=hi&delayMs=-5")
        assert "counts as 0" in late.json()["notes"][0]
