"""`POST /v1/settle`: one body, one result for each token, and nobody settles what is not theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Api, serving

SOON = {"settings": {"backoffMsBase": 0, "backoffMsCap": 0}}


async def _tokens(api: Api, count: int, mailbox: str = "coder") -> list[str]:
    for n in range(count):
        await api.send(mailbox, n)
    return [each["token"] for each in await api.receive(mailbox, max=count)]


async def test_everything_that_can_be_done_goes_into_one_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "planner")
        ack, drop, release, reply, nack, extend = await _tokens(api, 6)
        results = await api.settle(
            acks=[ack],
            drops=[drop],
            releases=[release],
            replies=[{"token": reply, "messages": [{"from": "coder", "to": "planner", "content": "done"}]}],
            nacks=[{"token": nack, "code": "invalid", "reason": "cannot be read"}],
            extends=[{"token": extend, "ms": 120_000}],
            durable=True,
        )
        assert [each["token"] for each in results] == [ack, drop, release, reply, nack, extend]
        assert [each["outcome"] for each in results] == [
            "acked", "dropped", "released", "replied", "dead_letter", "extended",
        ]  # fmt: skip
        assert results[3]["receipts"][0]["targets"] == 1
        assert results[5]["deadline"].endswith("Z")
        counted = await api.counters("coder")
        assert (counted["acked"], counted["dropped"], counted["dead"], counted["pending"]) == (2, 1, 1, 2)
        [answer] = await api.receive("planner")
        assert answer["message"]["content"] == "done"


async def test_a_release_burns_no_attempt_and_a_nack_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.admin.put("/v1/mailboxes/coder", json=SOON)
        [token] = await _tokens(api, 1)
        await api.settle(releases=[token])
        [delivery] = await api.receive("coder", waitMs=60_000)
        assert delivery["attempt"] == 1
        [result] = await api.settle(nacks=[{"token": delivery["token"], "reason": "not today"}])
        assert result["outcome"] == "retrying"
        [delivery] = await api.receive("coder", waitMs=60_000)
        assert delivery["attempt"] == 2
        assert delivery["message"]["metadata"]["retryCount"] == 1


async def test_putting_off_burns_no_attempt(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        [token] = await _tokens(api, 1)
        now = (await api.admin.get("/v1/node")).json()["now"]
        [result] = await api.settle(nacks=[{"token": token, "untilMs": now + 1}])
        assert result["outcome"] == "deferred"
        [delivery] = await api.receive("coder", waitMs=60_000)
        assert delivery["attempt"] == 1


async def test_a_stale_token_is_told_and_stops_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        first, second = await _tokens(api, 2)
        await api.settle(acks=[first])
        answer = await api.admin.post(
            "/v1/settle",
            json={
                "acks": [first, second],
                "nacks": [{"token": "0.9.9"}],
                "extends": [{"token": "0.9.8", "ms": 5}],
                "replies": [{"token": "0.9.7", "messages": [{"from": "a", "to": "coder", "content": 1}]}],
                "releases": ["0.9.6"],
            },
        )
        assert answer.status_code == 200
        outcomes = {each["token"]: each["outcome"] for each in answer.json()["results"]}
        assert outcomes.pop(second) == "acked"
        assert set(outcomes.values()) == {"lease_lost"}
        assert answer.json()["stale"] == 5
        assert (await api.counters("coder"))["accepted"] == 2  # the stale reply sent nothing


async def test_a_token_of_another_agents_mailbox_is_refused_whatever_is_done_with_it(tmp_path: Path) -> None:
    """Tokens are no secrets: who knows one can do nothing with it."""
    async with serving(tmp_path) as api:
        await api.open("coder", "tester", "thief")
        thief = api.agent("thief")
        tokens = await _tokens(api, 6)
        body = {
            "acks": [tokens[0]],
            "drops": [tokens[1]],
            "releases": [tokens[2]],
            "replies": [{"token": tokens[3], "messages": [{"to": "tester", "content": 1}]}],
            "nacks": [{"token": tokens[4]}],
            "extends": [{"token": tokens[5], "ms": 5}],
        }
        results = (await thief.post("/v1/settle", json=body)).json()["results"]
        assert {(each["outcome"], each["code"]) for each in results} == {("refused", "UNAUTHORIZED")}
        counted = await api.counters("coder")
        assert (counted["pending"], counted["leased"]) == (6, 6)
        assert (await api.counters("tester"))["accepted"] == 0


async def test_a_reply_that_cannot_be_sent_acks_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "planner")
        first, second, third = await _tokens(api, 3)
        results = await api.settle(
            replies=[
                {"token": first, "messages": [{"from": "coder", "to": "nobody", "content": 1}]},
                {"token": second, "messages": [{"from": "coder", "to": "planner"}]},
                {"token": third, "messages": [{"from": "coder", "to": "planner", "content": "ok"}]},
            ]
        )
        assert [each["outcome"] for each in results] == ["refused", "refused", "replied"]
        assert [each.get("code") for each in results[:2]] == ["UNKNOWN_RECIPIENT", "INVALID_MESSAGE"]
        assert results[0]["hint"]
        counted = await api.counters("coder")
        assert (counted["acked"], counted["leased"]) == (1, 2)


async def test_the_work_of_a_lost_lease_can_be_told_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.admin.put("/v1/mailboxes/coder", json=SOON)
        await api.send("coder", 1)
        [delivery] = await api.receive("coder")
        await api.settle(nacks=[{"token": delivery["token"]}])
        answer = await api.admin.post("/v1/mailboxes/coder/complete", json={"sequence": delivery["sequence"]})
        assert answer.json() == {"waits": True}
        assert await api.receive("coder", waitMs=50) == []
        assert (await api.counters("coder"))["acked"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"acks": "0.1.1"},
        {"acks": [17]},
        {"acks": ["nonsense"]},
        {"acks": ["0.1.1 "]},
        {"acks": ["-1.1.1"]},
        {"acks": ["0.1.99999999999999"]},
        {"acks": ["0.1.1", "0.1.1"]},
        {"acks": ["0.1.1"], "nacks": [{"token": "0.1.1"}]},
        {"acks": [f"0.1.{n}" for n in range(10_001)]},
        {"nacks": [{}]},
        {"nacks": [{"token": "0.1.1", "delayMs": -1}]},
        {"nacks": [{"token": "0.1.1", "code": ""}]},
        {"nacks": [{"token": "0.1.1", "code": "x" * 129}]},
        {"extends": [{"token": "0.1.1"}]},
        {"extends": [{"token": "0.1.1", "ms": 0}]},
        {"extends": [{"token": "0.1.1", "ms": 1.5}]},
        {"replies": [{"token": "0.1.1", "messages": []}]},
        {"ack": []},
        7,
    ],
)
async def test_a_body_that_is_not_sound_settles_nothing(tmp_path: Path, body: Any) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _tokens(api, 1)
        answer = await api.admin.post("/v1/settle", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE"), answer.text
        assert (await api.counters("coder"))["leased"] == 1


async def test_an_empty_body_settles_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.post("/v1/settle")
        assert (answer.status_code, answer.json()) == (200, {"results": [], "stale": 0, "failed": 0})


async def test_an_answer_counts_what_failed_and_is_409_when_all_did(tmp_path: Path) -> None:
    """A client that looks at the status alone must not take a lost lease for an ack."""
    async with serving(tmp_path) as api:
        await api.open("coder")
        first, second = await _tokens(api, 2)
        full = [{"from": "coder", "to": "nobody", "content": 1}]
        answer = await api.admin.post(
            "/v1/settle",
            json={"acks": [first, "0.9.9"], "replies": [{"token": second, "messages": full}]},
        )
        assert (answer.status_code, answer.json()["stale"], answer.json()["failed"]) == (200, 1, 2)
        for how, code in [
            ({"acks": [first]}, "LEASE_LOST"),
            ({"acks": [first], "nacks": [{"token": "0.9.9"}]}, "LEASE_LOST"),
            ({"replies": [{"token": second, "messages": full}]}, "UNKNOWN_RECIPIENT"),
        ]:
            answer = await api.admin.post("/v1/settle", json=how)
            problem = answer.json()
            assert answer.status_code == 409
            assert answer.headers["content-type"] == "application/problem+json"
            assert (problem["code"], problem["status"]) == (code, 409)
            assert len(problem["results"]) == problem["failed"] >= 1
            assert problem["hint"]
        answer = await api.admin.post("/v1/settle", json={})
        assert (answer.status_code, answer.json()["failed"]) == (200, 0)


async def test_a_reply_needs_no_from_whatever_the_credential(tmp_path: Path) -> None:
    """The delivery says whose mail is answered."""
    async with serving(tmp_path) as api:
        await api.open("coder", "planner")
        tokens = await _tokens(api, 2)
        twice = api.client(["agent:coder", "agent:planner"])
        for token, client in zip(tokens, (api.client(["write"]), twice), strict=True):
            reply = {"token": token, "messages": [{"to": "planner", "content": "done"}]}
            answer = await client.post("/v1/settle", json={"replies": [reply]})
            assert answer.status_code == 200, answer.text
        got = await api.receive("planner", max=2)
        assert [each["message"]["from"] for each in got] == ["default/coder"] * 2
