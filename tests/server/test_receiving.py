"""The long poll: at once, in time, not at all, and what happens to whoever goes away meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh.server.portion import portion
from relaymesh.server.settings import ServerSettings
from tests.server.serving import PATIENCE_S, Api, Caller, serving
from tests.waiting import until_async


def waiting(api: Api, mailbox: str = "coder") -> bool:
    kernel = api.served.node.core.kernel
    return len(kernel.state.mailboxes[f"default/{mailbox}"].waiters) > 0


async def test_what_is_ready_comes_at_once_up_to_max(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(5):
            await api.send("coder", n)
        assert [each["message"]["content"] for each in await api.receive("coder", max=3)] == [0, 1, 2]
        assert len(await api.receive("coder", max=1000)) == 2
        assert await api.receive("coder", max=1000) == []


async def test_an_answer_holds_what_fits_and_the_rest_goes_back_unburned(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(8):
            await api.send("coder", str(n) + "x" * 1_249_990)
        first = await api.receive("coder", max=100)
        assert len(first) == 6  # 7.5 of 8.4 MB
        rest = await api.receive("coder", max=100)
        assert [(each["message"]["content"][0], each["attempt"]) for each in rest] == [("6", 1), ("7", 1)]


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([], 0), ([5], 1), ([500], 1), ([50, 50], 2), ([50, 51], 1), ([0] * 9, 9), ([9, 1, 91], 2)],
)
def test_a_portion_is_what_fits_and_never_nothing(sizes: list[int], count: int) -> None:
    assert portion(sizes, most=100) == count


async def test_a_poll_ends_as_soon_as_something_comes(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        poll = asyncio.create_task(api.receive("coder", max=10, waitMs=60_000))
        await until_async(lambda: waiting(api))
        assert api.served.counts.polls == 1
        await api.send("coder", "now")
        [delivery] = await asyncio.wait_for(poll, PATIENCE_S)
        assert delivery["message"]["content"] == "now"
        assert api.served.counts.polls == 0


async def test_a_poll_in_which_nothing_comes_is_empty(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        assert await api.receive("coder", waitMs=30) == []


async def test_the_query_says_the_same_as_the_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(3):
            await api.send("coder", n)
        answer = await api.admin.post("/v1/mailboxes/coder/receive?max=2&wait_ms=10")
        assert len(answer.json()["deliveries"]) == 2


async def test_whoever_leaves_while_waiting_has_received_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        token = api.token(["admin"])
        api._known()
        caller = Caller(api, "POST", "/v1/mailboxes/coder/receive", {"waitMs": 60_000}, token)
        await until_async(lambda: waiting(api))
        caller.leave()
        await asyncio.wait_for(caller.task, PATIENCE_S)
        await until_async(lambda: not waiting(api))
        assert caller.answered == []
        await api.send("coder", 1)
        [delivery] = await api.receive("coder")
        assert delivery["attempt"] == 1
        assert (await api.counters("coder"))["retried"] == 0


async def test_deliveries_that_come_in_the_moment_of_leaving_go_back_unburned(tmp_path: Path) -> None:
    """Both at once, many times over: the message is always there for the next one, as a first attempt."""
    async with serving(tmp_path) as api:
        await api.open("coder")
        token = api.token(["admin"])
        api._known()
        for n in range(20):
            caller = Caller(api, "POST", "/v1/mailboxes/coder/receive", {"waitMs": 60_000}, token)
            await until_async(lambda: waiting(api))
            sending = asyncio.create_task(api.send("coder", n, id=f"m-{n}"))
            for _ in range(n):
                await asyncio.sleep(0)
            caller.leave()
            await asyncio.wait_for(caller.task, PATIENCE_S)
            await sending
            delivery = _answered(caller) or (await api.receive("coder", waitMs=60_000))[0]
            assert (delivery["message"]["id"], delivery["attempt"]) == (f"m-{n}", 1)
            await api.settle(acks=[delivery["token"]])


def _answered(caller: Caller) -> dict[str, Any] | None:
    """What it was given, if it was answered before it left."""
    body = b"".join(event.get("body", b"") for event in caller.answered)
    deliveries: list[dict[str, Any]] = json.loads(body)["deliveries"] if body else []
    return deliveries[0] if deliveries else None


async def test_a_stop_ends_every_poll_at_once_and_empty(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        polls = [asyncio.create_task(api.receive("coder", waitMs=60_000)) for _ in range(3)]
        await until_async(lambda: api.served.counts.polls == 3)
        api.served.stopping.set()
        assert await asyncio.wait_for(asyncio.gather(*polls), PATIENCE_S) == [[], [], []]
        assert await api.receive("coder", waitMs=60_000) == []


async def test_more_polls_than_allowed_are_told_to_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, settings=ServerSettings(receive_waits_max=1)) as api:
        await api.open("coder")
        poll = asyncio.create_task(api.receive("coder", waitMs=60_000))
        await until_async(lambda: api.served.counts.polls == 1)
        answer = await api.admin.post("/v1/mailboxes/coder/receive", json={"waitMs": 60_000})
        assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
        assert int(answer.headers["retry-after"]) >= 1
        assert await api.receive("coder") == []  # one that does not wait is no poll
        api.served.stopping.set()
        await poll


async def test_an_answer_is_received_by_its_correlation_id(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        answer = await api.admin.post("/v1/mailboxes/planner/expect", json={"correlationId": "q-1"})
        assert answer.status_code == 200
        await api.send("planner", "yes", sender="coder", metadata={"correlationId": "q-1"})
        await api.send("planner", "other", sender="coder")
        [other] = await api.receive("planner", max=10)
        assert other["message"]["content"] == "other"
        [found] = await api.receive("planner", correlationId="q-1", waitMs=60_000)
        assert found["message"]["content"] == "yes"
        assert (
            await api.admin.post("/v1/mailboxes/planner/unexpect", json={"correlationId": "q-1"})
        ).is_success


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_an_answer_that_waits_already_is_found_by_its_correlation_id(
    tmp_path: Path, wait_ms: int
) -> None:
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        await api.send("planner", "other", sender="coder")
        await api.send("planner", "yes", sender="coder", metadata={"correlationId": "q-1"})
        [found] = await api.receive("planner", correlationId="q-1", waitMs=wait_ms)
        assert found["message"]["content"] == "yes"
        [other] = await api.receive("planner", max=10)
        assert other["message"]["content"] == "other"


async def test_a_poll_by_correlation_id_is_given_the_answer_and_nothing_else(tmp_path: Path) -> None:
    """Nothing said before that the answer is expected."""
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        poll = asyncio.create_task(api.receive("planner", correlationId="q-1", waitMs=60_000))
        kernel = api.served.node.core.kernel
        await until_async(lambda: len(kernel.state.mailboxes["default/planner"].askers) > 0)
        await api.send("planner", "other", sender="coder")
        await api.send("planner", "yes", sender="coder", metadata={"correlationId": "q-1"})
        [found] = await asyncio.wait_for(poll, PATIENCE_S)
        assert found["message"]["content"] == "yes"
        [other] = await api.receive("planner", max=10)
        assert other["message"]["content"] == "other"


async def test_an_agent_receives_its_own_mail_and_nobody_elses(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        coder = api.agent("coder")
        await api.send("coder", 1)
        answer = await coder.post("/v1/mailboxes/coder/receive", json={})
        assert len(answer.json()["deliveries"]) == 1
        answer = await coder.post("/v1/mailboxes/tester/receive", json={})
        assert (answer.status_code, answer.json()["code"]) == (403, "UNAUTHORIZED")
        reader = api.client(["read"])
        assert (await reader.post("/v1/mailboxes/coder/receive", json={})).status_code == 403


async def test_a_mailbox_that_is_not_there_is_404(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.post("/v1/mailboxes/nobody/receive", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_RECIPIENT")


async def test_the_holder_is_named_with_its_token_in_front(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1, id="m-1")
        await api.receive("coder", holder="worker-7")
        [entry] = (await api.admin.get("/v1/messages/m-1")).json()["entries"]
        assert entry["state"] == "leased"
        assert entry["holder"].endswith(":worker-7")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"max": 0}, "$.max"),
        ({"max": 1001}, "$.max"),
        ({"max": "1"}, "$.max"),
        ({"waitMs": -1}, "$.waitMs"),
        ({"waitMs": 60_001}, "$.waitMs"),
        ({"wait_ms": 5}, "wait_ms"),
        ({"correlationId": ""}, "$.correlationId"),
        ([], "array"),
    ],
)
async def test_what_is_asked_must_be_sound(tmp_path: Path, body: Any, says: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post("/v1/mailboxes/coder/receive", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE")
        assert says in answer.json()["detail"]


async def test_an_integer_with_a_decimal_point_is_refused_and_the_hint_says_how_to_write_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post("/v1/mailboxes/coder/receive", json={"max": 5.0})
        assert answer.status_code == 400
        assert "5, not 5.0" in answer.json()["hint"]


@pytest.mark.parametrize("query", ["max=x", "max=0", "wait_ms=1.5", "holder=", "nothing=1", "max=%ff"])
async def test_a_query_must_be_sound_too(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.post(f"/v1/mailboxes/coder/receive?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE")
