"""Mailboxes over HTTP: settings, looking inside, and what an operator does to what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import serving


async def test_settings_are_kept_and_those_left_out_have_their_defaults(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        settings = {"capacity": 7, "leaseMs": 1234, "contract": {"invalid": {"retries": 0, "exit": "drop"}}}
        answer = await api.admin.put("/v1/mailboxes/coder", json={"settings": settings})
        assert answer.json() == {"mailbox": "default/coder"}
        kept = api.served.node.core.kernel.state.mailboxes["default/coder"].settings
        assert (kept.capacity, kept.lease_ms, kept.schedule) == (7, 1234, "weighted")
        assert kept.contract is not None
        assert kept.contract["invalid"].exit == "drop"
        await api.open("coder")  # without settings nothing changes
        assert api.served.node.core.kernel.state.mailboxes["default/coder"].settings == kept


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": 0},
        {"capacity": "many"},
        {"capacity": 1 << 60},
        {"backoffMsCap": 900_000},
        {"schedule": "lifo"},
        {"contract": {"x": {"retries": -1}}},
        {"contract": {"x": 3}},
        {"unheardOf": 1},
        {"ratePerS": -1},
    ],
)
async def test_settings_that_make_no_sense_are_refused(tmp_path: Path, settings: Any) -> None:
    async with serving(tmp_path) as api:
        for path in ("/v1/mailboxes/coder", "/v1/topics/t/subscriptions/s"):
            answer = await api.admin.put(path, json={"settings": settings})
            assert answer.status_code == 400, answer.text
            assert answer.json()["code"] in ("INVALID_SETTINGS", "INVALID_MESSAGE")
        assert (await api.admin.get("/v1/stats")).json()["mailboxes"] == {}


@pytest.mark.parametrize(
    "name", ["", "a b", ".x", "a/b/c", "-x", "x" * 129, "caf%C3%A9%00", "%2E%2E", "a%3Ab%3Ac"]
)
async def test_a_name_that_is_no_address_is_refused(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.put(f"/v1/mailboxes/{name}")
        assert answer.status_code in (400, 403, 404), answer.text


async def test_a_full_address_can_stand_in_the_path(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for path in ("default/coder", "default%2Fcoder"):
            answer = await api.admin.put(f"/v1/mailboxes/{path}")
            assert answer.json() == {"mailbox": "default/coder"}
        answer = await api.admin.put("/v1/mailboxes/default/receive")
        assert answer.json() == {"mailbox": "default/receive"}
        answer = await api.admin.get("/v1/mailboxes/default/receive")
        assert answer.json()["mailbox"] == "default/receive"


async def test_looking_inside_takes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(3):
            await api.send("coder", n, id=f"m-{n}")
        await api.receive("coder")
        answer = await api.admin.get("/v1/mailboxes/coder?limit=2")
        seen = answer.json()
        assert [each["message"]["id"] for each in seen["entries"]] == ["m-0", "m-1"]
        assert [each["state"] for each in seen["entries"]] == ["leased", "ready"]
        assert (seen["stats"]["pending"], seen["stats"]["leased"]) == (3, 1)
        assert seen["stats"]["byPriority"]["3"] == 3


async def test_looking_needs_the_right_to_read_or_the_mailbox_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        assert (await api.client(["read"]).get("/v1/mailboxes/coder")).is_success
        assert (await api.agent("coder").get("/v1/mailboxes/coder")).is_success
        assert (await api.agent("coder").get("/v1/mailboxes/tester")).status_code == 403
        assert (await api.admin.get("/v1/mailboxes/nobody")).status_code == 404


async def test_pending_messages_can_be_given_another_priority(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(3):
            await api.send("coder", n, id=f"m-{n}")
        path = "/v1/mailboxes/coder/reprioritise"
        assert (await api.admin.post(path, json={"priority": 1, "ids": ["m-2"]})).json() == {"changed": 1}
        [first] = await api.receive("coder")
        assert first["message"]["id"] == "m-2"
        assert (await api.admin.post(path, json={"priority": "low"})).json() == {"changed": 2}
        assert (await api.admin.post(path, json={"priority": 9})).status_code == 400
        assert (await api.agent("coder").post(path, json={"priority": 1})).status_code == 403


async def test_a_breaker_opened_by_hand_holds_deliveries_until_it_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1)
        assert (await api.admin.put("/v1/mailboxes/coder/breaker", json={"open": True})).is_success
        assert await api.receive("coder") == []
        assert (await api.counters("coder"))["breaker"].startswith("open")
        assert (await api.admin.put("/v1/mailboxes/coder/breaker", json={"open": False})).is_success
        assert len(await api.receive("coder")) == 1


async def test_delayed_messages_can_be_delivered_now_within_ones_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        for name in ("coder", "tester", "tester"):
            await api.send(name, 1, metadata={"delayMs": 3_600_000})
        red = api.client(["write"], namespace="red")
        assert (await red.post("/v1/delayed/deliver", json={})).json() == {"changed": 0}
        assert (await red.post("/v1/delayed/deliver", json={"mailbox": "default/coder"})).status_code == 403
        answer = await api.admin.post("/v1/delayed/deliver", json={"mailbox": "coder"})
        assert answer.json() == {"changed": 1}
        assert (await api.admin.post("/v1/delayed/deliver", json={})).json() == {"changed": 2}
        assert (await api.admin.post("/v1/due/deliver")).json() == {"changed": 0}


async def test_an_agent_may_subscribe_in_its_own_name_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        billing = api.agent("billing")
        assert (await billing.put("/v1/topics/order.*/subscriptions/billing")).is_success
        answer = await billing.put("/v1/topics/order.*/subscriptions/audit")
        assert (answer.status_code, answer.json()["code"]) == (403, "UNAUTHORIZED")
        assert (await billing.delete("/v1/topics/order.*/subscriptions/billing")).is_success
