"""Dead letters over HTTP: found, looked at, sent back as they were or edited, slowly if so asked, removed."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Api, serving


async def _kill(api: Api, *ids: str, mailbox: str = "coder", code: str = "invalid") -> None:
    """Dead letters of these messages."""
    for id in ids:
        await api.send(mailbox, {"id": id}, id=id)
    tokens = [each["token"] for each in await api.receive(mailbox, max=100)]
    await api.settle(
        nacks=[{"token": token, "code": code, "reason": "no use", "retryable": False} for token in tokens]
    )


async def _letters(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = await api.admin.get(f"/v1/dead-letters?{query}")
    assert answer.status_code == 200, answer.text
    letters: list[dict[str, Any]] = answer.json()["deadLetters"]
    return letters


async def test_a_letter_says_everything_needed_to_decide(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "m-1")
        [letter] = await _letters(api)
        assert (letter["messageId"], letter["receiver"], letter["sender"]) == (
            "m-1", "default/coder", "default/planner",
        )  # fmt: skip
        assert (letter["reason"], letter["code"], letter["error"]) == ("not_retryable", "invalid", "no use")
        assert (letter["attempts"], letter["redrives"], letter["status"]) == (1, 0, "pending")
        [failure] = letter["failures"]
        assert (failure["attempt"], failure["reason"]) == (1, "no use")
        assert letter["message"]["content"] == {"id": "m-1"}
        answer = await api.admin.get(f"/v1/dead-letters/{letter['deadSequence']}")
        assert answer.json() == letter


async def test_letters_come_in_the_order_of_their_deaths_a_page_at_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.open("tester")
        await _kill(api, "m-1")
        await _kill(api, "m-2", mailbox="tester")
        await _kill(api, "m-3")
        first = (await api.admin.get("/v1/dead-letters?limit=2")).json()
        assert ([each["messageId"] for each in first["deadLetters"]], first["more"]) == (["m-1", "m-2"], True)
        after = first["deadLetters"][-1]["deadSequence"]
        rest = (await api.admin.get(f"/v1/dead-letters?limit=2&after={after}")).json()
        assert ([each["messageId"] for each in rest["deadLetters"]], rest["more"]) == (["m-3"], False)


async def test_letters_are_found_by_what_is_known_of_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        await _kill(api, "a", "b")
        await _kill(api, "c", mailbox="tester", code="fatal")

        async def ids(query: str) -> list[str]:
            return [each["messageId"] for each in await _letters(api, query)]

        assert await ids("receiver=tester") == ["c"]
        assert await ids("receiver=default/coder") == ["a", "b"]
        assert await ids("code=fatal") == ["c"]
        assert await ids("id=b&id=c") == ["b", "c"]
        assert await ids("sender=nobody") == []
        assert await ids("since=2100-01-01T00:00:00Z") == []
        assert await ids("until=2100-01-01") == ["a", "b", "c"]
        assert await ids("status=redriven") == []
        answer = await api.admin.get("/v1/dead-letters?limit=2")
        assert (len(answer.json()["deadLetters"]), answer.json()["more"]) == (2, True)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "status=gone", "since=yesterday", "colour=red"])
async def test_a_filter_that_makes_no_sense_is_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.get(f"/v1/dead-letters?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_MESSAGE")


@pytest.mark.parametrize("name", ["7", "x", "-1", "1.5", "99999999999999999999999"])
async def test_a_letter_that_is_not_there_is_404(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.get(f"/v1/dead-letters/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


async def test_a_dry_run_changes_nothing_and_doing_it_twice_is_doing_it_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "a", "b")
        body = {"filter": {"receiver": "coder"}}
        dry = (await api.admin.post("/v1/dead-letters/redrive", json={**body, "dryRun": True})).json()
        assert dry["dryRun"]
        assert [(each["messageId"], each["sequence"]) for each in dry["redriven"]] == [
            ("a", None),
            ("b", None),
        ]
        assert await api.receive("coder") == []
        named = {"letters": [{"deadSequence": each["deadSequence"]} for each in dry["redriven"]]}
        first = (await api.admin.post("/v1/dead-letters/redrive", json=named)).json()["redriven"]
        assert all(each["sequence"] is not None for each in first)
        again = (await api.admin.post("/v1/dead-letters/redrive", json=named)).json()["redriven"]
        assert [each["sequence"] for each in again] == [None, None]
        assert [each["message"]["id"] for each in await api.receive("coder", max=10)] == ["a", "b"]
        assert len(await _letters(api, "status=redriven")) == 2


async def test_an_edited_letter_has_new_content_a_new_id_and_names_its_origin(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder", "tester")
        await _kill(api, "a", "b", "c")
        a, b, c = [each["deadSequence"] for each in await _letters(api)]
        answer = await api.admin.post(
            "/v1/dead-letters/redrive",
            json={
                "letters": [
                    {"deadSequence": a, "content": {"fixed": True}, "id": "a-2"},
                    {"deadSequence": b, "contentBase64": base64.b64encode(b"\x00\xff").decode()},
                    {"deadSequence": c},
                ],
                "to": "tester",
            },
        )
        assert [each["to"] for each in answer.json()["redriven"]] == ["default/tester"] * 3
        received = {each["sequence"]: each["message"] for each in await api.receive("tester", max=10)}
        edited, binary, same = [received[each["sequence"]] for each in answer.json()["redriven"]]
        assert (edited["id"], edited["content"]) == ("a-2", {"fixed": True})
        assert edited["metadata"]["originId"] == "a"
        assert binary["id"] not in ("a", "b", "c")
        assert base64.b64decode(binary["content"]) == b"\x00\xff"
        assert (same["id"], same["content"]) == ("c", {"id": "c"})
        named = [each.get("redrivenAs") for each in answer.json()["redriven"]]
        assert named == ["a-2", binary["id"], None], "each can be followed"
        assert [each.get("redrivenAs") for each in await _letters(api, "status=redriven")] == named
        again = await api.admin.post("/v1/dead-letters/redrive", json={"letters": [{"deadSequence": a}]})
        [told] = again.json()["redriven"]
        assert (told["sequence"], told["redrivenAs"]) == (None, "a-2")


async def test_a_redrive_with_a_rate_takes_its_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, *(f"m-{n}" for n in range(5)))
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await api.admin.post("/v1/dead-letters/redrive", json={"filter": {}, "ratePerS": 10})
        assert loop.time() - began >= 0.4
        assert len(answer.json()["redriven"]) == 5
        await _kill(api)
        answer = await api.admin.post(
            "/v1/dead-letters/redrive", json={"filter": {"status": "all"}, "ratePerS": 0.01}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_SETTINGS")


async def test_purged_letters_are_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "a", "b", "c")
        first, *_ = await _letters(api)
        body = {"letters": [first["deadSequence"], first["deadSequence"]]}
        assert (await api.admin.post("/v1/dead-letters/purge", json=body)).json() == {"purged": 1}
        assert (await api.admin.post("/v1/dead-letters/purge", json={"filter": {}})).json() == {"purged": 2}
        assert await _letters(api, "status=all") == []


@pytest.mark.parametrize("what", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"letters": None}, 400),
        ({"letters": [], "filter": {}}, 400),
        ({"filter": {"limit": -1}}, 400),
        ({"letters": 5}, 400),
    ],
)
async def test_naming_nothing_or_two_things_is_an_error(
    tmp_path: Path, what: str, body: Any, status: int
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "a")
        answer = await api.admin.post(f"/v1/dead-letters/{what}", json=body)
        assert answer.status_code == status
        assert len(await _letters(api)) == 1


@pytest.mark.parametrize(
    ("choice", "status"),
    [
        ({"deadSequence": 999}, 404),
        ({"content": 1, "contentBase64": ""}, 400),
        ({"contentBase64": "a"}, 400),
        ({"id": "new"}, 400),
        ({"content": 1, "id": ""}, 400),
    ],
)
async def test_a_letter_named_wrongly_redrives_none(tmp_path: Path, choice: Any, status: int) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "a")
        [letter] = await _letters(api)
        good = {"deadSequence": letter["deadSequence"]}
        answer = await api.admin.post(
            "/v1/dead-letters/redrive", json={"letters": [good, {**good, **choice}]}
        )
        assert answer.status_code == status, answer.text
        assert len(await _letters(api)) == 1


async def test_letters_of_another_namespace_are_not_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await _kill(api, "a")
        [letter] = await _letters(api)
        red = api.client(["read", "write"], namespace="red")
        assert (await red.get("/v1/dead-letters")).json()["deadLetters"] == []
        assert (await red.get(f"/v1/dead-letters/{letter['deadSequence']}")).status_code == 404
        body = {"letters": [letter["deadSequence"]]}
        assert (await red.post("/v1/dead-letters/purge", json=body)).status_code == 404
        assert (await red.post("/v1/dead-letters/purge", json={"filter": {}})).json() == {"purged": 0}
        assert (await api.client(["read"]).post("/v1/dead-letters/purge", json=body)).status_code == 403
        assert len(await _letters(api)) == 1
