"""What an agent's own token may do: all that concerns the agent, and nothing that concerns others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.serving import Api, serving


async def _life_of_a_message(api: Api) -> None:
    """m-1: from planner to coder, failed once, now leased; s-1 went from tester to itself."""
    await api.open("planner", "coder", "tester")
    await api.send("coder", 1, id="m-1")
    await api.send("tester", "a secret", sender="tester", id="s-1")
    [delivery] = await api.receive("coder")
    nack = {"token": delivery["token"], "reason": "no such line", "stack": "line 7", "delayMs": 0}
    await api.settle(nacks=[nack])
    await api.receive("coder", waitMs=60_000)


async def test_an_agent_follows_the_messages_it_sent_and_those_it_got(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _life_of_a_message(api)
        for name in ("planner", "coder"):
            answer = await api.agent(name).get("/v1/messages/m-1")
            assert answer.status_code == 200, answer.text
            [entry] = answer.json()["entries"]
            assert (entry["mailbox"], entry["state"], entry["attempts"]) == ("default/coder", "leased", 2)
            assert [each["reason"] for each in entry["failures"]] == ["no such line"]
        assert (await api.agent("tester").get("/v1/messages/m-1")).status_code == 404
        assert (await api.agent("planner").get("/v1/messages/s-1")).status_code == 404


async def test_a_sender_learns_what_failed_but_not_the_receivers_lease_nor_its_stack(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await _life_of_a_message(api)
        [told] = (await api.agent("planner").get("/v1/messages/m-1")).json()["entries"]
        assert not {"leaseToken", "leaseDeadline", "holder"} & told.keys()
        assert told["failures"][0]["stack"] == ""
        [told] = (await api.agent("coder").get("/v1/messages/m-1")).json()["entries"]
        assert {"leaseToken", "leaseDeadline", "holder"} <= told.keys()
        assert told["failures"][0]["stack"] == "line 7"


async def test_one_publish_is_followed_into_every_subscription_by_its_sender_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for name in ("billing", "audit"):
            await api.admin.put(f"/v1/topics/orders/subscriptions/{name}")
        await api.admin.post("/v1/topics/orders/messages", json={"from": "shop", "content": 1, "id": "o-1"})

        async def seen_by(agent: str) -> set[str]:
            answer = await api.agent(agent).get("/v1/messages/o-1")
            return {each["mailbox"] for each in answer.json().get("entries", [])}

        assert await seen_by("shop") == {"default/orders:billing", "default/orders:audit"}
        assert await seen_by("billing") == {"default/orders:billing"}
        assert await seen_by("tester") == set()


async def test_an_agent_finds_the_names_of_its_namespace_but_not_how_much_mail_others_have(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        await api.admin.post("/v1/agents", json={"name": "coder", "role": "developer"})
        await api.client(["admin"], "other").put("/v1/mailboxes/stranger")
        await api.send("coder", 1)
        await api.send("planner", 1)
        planner = api.agent("planner")
        listed = {each["name"]: each for each in (await planner.get("/v1/agents")).json()["agents"]}
        assert listed.keys() == {"planner", "coder"}
        assert listed["coder"]["role"] == "developer"
        assert "pending" not in listed["coder"]
        assert listed["planner"]["pending"] == 1
        shown = (await planner.get("/v1/agents/coder")).json()
        assert (shown["name"], "pending" in shown) == ("coder", False)
        assert (await planner.get("/v1/agents/nobody")).status_code == 404
        assert (await planner.get("/v1/agents/other/stranger")).status_code == 403


async def test_an_agent_counts_its_own_mailboxes_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        await api.admin.put("/v1/topics/orders/subscriptions/coder")
        answer: Any = await api.agent("coder").get("/v1/stats")
        assert answer.status_code == 200, answer.text
        assert answer.json()["mailboxes"].keys() == {"default/coder", "default/orders:coder"}


async def test_an_agent_neither_looks_into_other_mailboxes_nor_at_dead_letters(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("planner", "coder")
        planner = api.agent("planner")
        for path in ("/v1/mailboxes/coder", "/v1/dead-letters", "/metrics", "/v1/journal"):
            assert (await planner.get(path)).status_code == 403, path
