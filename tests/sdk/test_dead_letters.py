"""Dead letters: found, read, redriven once, purged; and the books always balance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from relaymesh import (
    InvalidEnvelope,
    InvalidSettings,
    InvalidValue,
    MailboxFull,
    Mesh,
    NotFound,
    UnknownRecipient,
)
from tests.sdk.uniform import Uniform, World, Worlds


async def kill(mesh: World, inbox: Uniform, code: str = "invalid") -> None:
    for delivery in await inbox.receive_many(100):
        assert await delivery.nack("it was bad", code=code, retryable=False) == "dead_letter"


async def crew(mesh: World) -> tuple[Uniform, Uniform, Uniform]:
    return await mesh.agent("planner"), await mesh.agent("coder"), await mesh.agent("tester")


async def test_a_dead_letter_tells_everything(worlds: Worlds) -> None:
    """Promise 11; `message_id, receiver, reason, attempts, …`."""
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send("coder", {"n": 1}, id="m", key="k", tags=["t"], extra={"hop": 2})
        await (await coder.receive(timeout=5)).nack(TimeoutError("slow"), delay_ms=0)
        await (await coder.receive(timeout=5)).nack(ValueError("bad"), code="invalid")
        (letter,) = await mesh.dead_letters()
        assert (letter.message_id, letter.receiver, letter.sender) == (
            "m",
            "default/coder",
            "default/planner",
        )
        assert (letter.reason, letter.code, letter.error) == ("not_retryable", "invalid", "ValueError: bad")
        assert (letter.attempts, letter.redrives, letter.status) == (2, 0, "pending")
        assert [(f.attempt, f.code, f.reason) for f in letter.failures] == [
            (1, "timeout", "TimeoutError: slow"),
            (2, "invalid", "ValueError: bad"),
        ]
        assert (letter.content, letter.topic, letter.subscriber) == ({"n": 1}, None, "coder")
        told = letter.as_json()
        assert told["message"]["id"] == "m"
        assert told["message"]["hop"] == 2
        assert told["message"]["metadata"]["orderingKey"] == "k"
        assert told["failures"][1]["stack_trace"]


async def test_dead_letters_are_found_by_any_of_their_words(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, tester = await crew(mesh)
        await planner.send("coder", 1, id="a")
        await kill(mesh, coder, "invalid")
        await mesh.pass_time(60)
        await coder.send("tester", 2, id="b")
        await kill(mesh, tester, "fatal")
        await planner.send("tester", 3, id="c", ttl=1)
        await mesh.pass_time(5)

        async def found(**words: Any) -> list[str]:
            return [letter.message_id for letter in await mesh.dead_letters(**words)]

        assert await found() == ["a", "b", "c"]
        assert await found(receiver="tester") == ["b", "c"]
        assert await found(receiver="default/coder") == ["a"]
        assert await found(sender="coder") == ["b"]
        assert await found(reason="ttl_expired") == ["c"]
        assert await found(code="fatal") == ["b"]
        assert await found(ids=frozenset({"a", "c"})) == ["a", "c"]
        assert await found(limit=1) == ["a"]
        died = (await mesh.dead_letters())[1].failed_at
        assert await found(since=died) == ["b", "c"]
        assert await found(until=died) == ["a"]
        assert await found(since=died + timedelta(hours=1)) == []
        await mesh.redrive("a")
        assert await found() == ["b", "c"]
        assert await found(status="redriven") == ["a"]
        assert await found(status=None) == ["a", "b", "c"]


async def test_a_redrive_brings_the_whole_envelope_back_to_where_it_died(worlds: Worlds) -> None:
    """Section 7: unedited keeps its id; attempts and TTL start again."""
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send("coder", 1, id="m", task="t", tags=["x"], priority=1, ttl=60, max_retries=9)
        await kill(mesh, coder)
        await mesh.pass_time(120)
        (redriven,) = await mesh.redrive("m")
        assert (redriven.message_id, redriven.receiver, redriven.to) == (
            "m",
            "default/coder",
            "default/coder",
        )
        delivery = await coder.receive(timeout=5)
        assert (delivery.id, delivery.attempt, delivery.sequence) == ("m", 1, redriven.sequence)
        envelope = delivery.envelope
        assert (envelope.task, envelope.tags, envelope.priority) == ("t", ("x",), 1)
        assert (envelope.ttl_ms, envelope.max_retries) == (60_000, 9)
        await delivery.nack("again bad", retryable=False)
        assert [letter.redrives for letter in await mesh.dead_letters()] == [1]


async def test_redriving_twice_is_redriving_once(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send("coder", 1, id="m")
        await kill(mesh, coder)
        (letter,) = await mesh.dead_letters()
        (first,) = await mesh.redrive(letter)
        before = mesh.sequence
        (by_letter,) = await mesh.redrive(letter)
        (by_id,) = await mesh.redrive("m")
        assert mesh.sequence == before
        assert first.sequence is not None
        assert (by_letter.sequence, by_id.sequence) == (None, None)
        assert len(await coder.receive_many(10)) == 1


async def test_a_redrive_may_go_elsewhere_and_edited(worlds: Worlds) -> None:
    """Section 7: edited gets a new id with lineage."""
    async with worlds() as mesh:
        planner, coder, tester = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": {"n": n}, "id": f"m{n}"} for n in range(2)])
        await kill(mesh, coder)
        await mesh.redrive("m0", to="tester", edit=lambda content: {**content, "fixed": True})
        await mesh.redrive("m1", to="tester", edit="replaced")
        first, second = await tester.receive_many(10)
        assert (first.content, second.content) == ({"n": 0, "fixed": True}, "replaced")
        assert first.id not in ("m0", "m1")
        assert (first.envelope.origin, second.envelope.origin) == ("m0", "m1")


async def test_the_answer_and_the_letter_name_the_id_an_edited_message_got(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, tester = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(2)])
        await kill(mesh, coder)
        (edited,) = await mesh.redrive("m0", to="tester", edit="fixed")
        (as_it_was,) = await mesh.redrive("m1", to="tester")
        first, second = await tester.receive_many(10)
        assert (edited.message_id, edited.redriven_as) == ("m0", first.id)
        assert (as_it_was.message_id, as_it_was.redriven_as, second.id) == ("m1", None, "m1")
        letters = {each.message_id: each for each in await mesh.dead_letters(status="redriven")}
        assert (letters["m0"].redriven_as, letters["m1"].redriven_as) == (first.id, None)
        assert letters["m0"].as_json()["redriven_as"] == first.id
        (again,) = await mesh.redrive("m0", edit="fixed differently")
        assert (again.sequence, again.redriven_as) == (None, first.id), "the first redrive stands"


async def test_the_new_id_of_an_edited_message_outlives_a_restart(durable_worlds: Worlds) -> None:
    async with durable_worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(2)])
        await kill(mesh, coder)
        before = [(await mesh.redrive("m0", edit="a"))[0].redriven_as]
        await mesh.checkpoint()
        before += [(await mesh.redrive("m1", edit="b"))[0].redriven_as]
    async with durable_worlds() as mesh:
        letters = await mesh.dead_letters(status="redriven")
        assert [letter.redriven_as for letter in letters] == before


async def test_an_edit_that_returns_nothing_redrives_nothing(worlds: Worlds) -> None:
    """A function that changes the content in place and forgets to return it stores no null."""
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send("coder", {"n": 0}, id="m0")
        await kill(mesh, coder)

        async def later(content: Any) -> Any:
            return content

        before = mesh.sequence
        with pytest.raises(InvalidValue, match="returned None") as refused:
            await mesh.redrive("m0", edit=lambda content: content.update(n=1))
        assert "return the new content" in refused.value.hint
        with pytest.raises(InvalidValue, match="awaitable"):
            await mesh.redrive("m0", edit=later)
        with pytest.raises(InvalidEnvelope):
            await mesh.redrive("m0", edit=lambda content: object())
        assert mesh.sequence == before
        await mesh.redrive("m0", edit=msgspec.Raw(b"null"))
        assert (await coder.receive(timeout=5)).content is None


async def test_each_letter_is_edited_once_however_often_it_is_named(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send("coder", 1, id="m")
        await kill(mesh, coder)
        (letter,) = await mesh.dead_letters()
        edited: list[Any] = []

        def edit(content: Any) -> Any:
            edited.append(content)
            return content + 1

        first, second = await mesh.redrive([letter, letter], edit=edit)
        assert (edited, second.sequence, second.redriven_as) == ([1], None, None)
        delivery = await coder.receive(timeout=5)
        assert (delivery.content, delivery.id) == (2, first.redriven_as)


def test_an_edit_may_use_the_mesh_and_nobody_waits_for_it() -> None:
    """The caller's function runs under no lock: other threads go on while it takes its time."""
    with Mesh(durability="memory") as mesh, ThreadPoolExecutor(1) as elsewhere:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m")
        coder.receive(timeout=5).nack(retryable=False)

        def edit(content: Any) -> Any:
            receipt = elsewhere.submit(planner.send, "coder", "meanwhile").result(timeout=10)
            return {"was": content, "beside": receipt.id, "pending": mesh.stats().pending}

        (redriven,) = mesh.redrive("m", edit=edit)
        beside, again = coder.receive_many(2, timeout=5)
        assert (again.id, again.content) == (
            redriven.redriven_as,
            {"was": 1, "beside": beside.id, "pending": 1},
        )


@pytest.mark.parametrize("meanwhile", ["redrive", "purge_dead_letters"])
def test_what_became_of_a_letter_while_it_was_edited_is_found_out(meanwhile: str) -> None:
    with Mesh(durability="memory") as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m")
        coder.receive(timeout=5).nack(retryable=False)

        def edit(content: Any) -> Any:
            getattr(mesh, meanwhile)("m")
            return "too late"

        if meanwhile == "redrive":
            (redriven,) = mesh.redrive("m", edit=edit)
            assert (redriven.sequence, redriven.redriven_as) == (None, None)
            assert [each.id for each in coder.receive_many(5, timeout=5)] == ["m"]
        else:
            with pytest.raises(NotFound):
                mesh.redrive("m", edit=edit)
            assert coder.receive_many(5, timeout=0) == []


async def test_a_dry_run_tells_and_does_nothing(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(3)])
        await kill(mesh, coder)
        before = mesh.sequence
        told = await mesh.redrive(receiver="coder", limit=2, dry_run=True)
        assert [(each.message_id, each.sequence) for each in told] == [("m0", None), ("m1", None)]
        assert mesh.sequence == before


async def test_a_redrive_by_filter_takes_all_that_fit(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, tester = await crew(mesh)
        for to in ("coder", "tester", "coder"):
            await planner.send(to, 1)
        await kill(mesh, coder)
        await kill(mesh, tester)
        assert len(await mesh.redrive(receiver="coder")) == 2
        assert len(await coder.receive_many(10)) == 2
        assert await tester.receive_many(10) == []


@pytest.mark.parametrize("verb", ["redrive", "purge_dead_letters"])
async def test_everything_must_be_said(worlds: Worlds, verb: str) -> None:
    async with worlds() as mesh:
        act = getattr(mesh, verb)
        with pytest.raises(InvalidSettings, match="which dead letters"):
            await act()
        with pytest.raises(NotFound, match="no-such-id"):
            await act("no-such-id")
        with pytest.raises(NotFound):
            await act(["no-such-id"])


async def test_a_redrive_is_all_or_none(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await mesh.agent("small", capacity=1)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(2)])
        await kill(mesh, coder)
        before = mesh.sequence
        with pytest.raises(MailboxFull):
            await mesh.redrive(["m0", "m1"], to="small")
        with pytest.raises(UnknownRecipient):
            await mesh.redrive("m0", to="nobody")
        with pytest.raises(InvalidEnvelope):
            await mesh.redrive(["m0", "m1"], edit=lambda content: 1 / content)
        with pytest.raises(InvalidEnvelope):
            await mesh.redrive("m0", edit=lambda content: float("nan"))
        assert mesh.sequence == before
        assert len(await mesh.dead_letters()) == 2


async def test_purged_dead_letters_are_gone(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(3)])
        await kill(mesh, coder)
        assert await mesh.purge_dead_letters("m0") == 1
        assert await mesh.purge_dead_letters(receiver="coder") == 2
        assert await mesh.purge_dead_letters(status="pending") == 0
        assert await mesh.dead_letters(status=None) == []
        with pytest.raises(NotFound):
            await mesh.redrive("m0")


async def test_an_expired_message_is_a_dead_letter(worlds: Worlds) -> None:
    """Section 3: TTL runs from when the message is due, only while pending."""
    async with worlds() as mesh:
        planner, coder, tester = await crew(mesh)
        await planner.send("coder", "held", ttl=10)
        await planner.send("coder", "kept", ttl=0)
        await planner.send("tester", "delayed", ttl=10, delay_ms=20_000)
        held = (await coder.receive_many(1))[0]
        assert held.content == "held"
        await mesh.pass_time(25)
        await held.ack()  # out with a holder it does not expire
        assert (await tester.receive(timeout=5)).content == "delayed"
        await planner.send("coder", "late", id="late", ttl=10)
        await mesh.pass_time(12)
        assert [each.content for each in await coder.receive_many(10)] == ["kept"]
        assert [(x.message_id, x.reason) for x in await mesh.dead_letters()] == [("late", "ttl_expired")]


async def test_the_books_balance(worlds: Worlds) -> None:
    """Promise 1: accepted = acked + dropped + dead + pending, in every mailbox, whatever happened."""
    async with worlds() as mesh:
        planner, coder, _ = await crew(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(8)])
        await planner.send("coder", "later", delay_ms=10_000)
        a, b, c, d, e, *_ = await coder.receive_many(7)
        await a.ack()
        await b.drop()
        await c.nack("bad", retryable=False)
        await d.nack("later")
        await e.nack("busy", code="conflict")
        await mesh.redrive("m2")
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert stats.accepted == 10
        assert (stats.acked, stats.dropped, stats.dead, stats.redriven) == (2, 1, 1, 1)
        assert stats.accepted == stats.acked + stats.dropped + stats.dead + stats.pending
        assert (stats.pending, stats.leased, stats.delayed) == (6, 2, 1)
        assert sum(stats.by_priority.values()) == stats.pending
        assert (await mesh.stats()).pending == 6
