"""Questions and answers: `ask` waits for the message with its correlation id, and for nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from relaymesh import InvalidEnvelope, LeaseLost, MailboxFull, NoAnswer, Reject, UnknownRecipient
from tests.sdk.uniform import Worlds
from tests.waiting import until_async


async def test_a_question_is_answered(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        asking = asyncio.create_task(planner.ask("coder", {"what": "version"}, timeout=30))
        question = await coder.receive(timeout=5)
        assert (question.type, question.reply_to) == ("question", "default/planner")
        receipt = await coder.answer(question, "1.4")
        answer = await asking
        assert (answer.id, answer.content, answer.sender) == (receipt.id, "1.4", "default/coder")
        assert answer.correlation_id == question.correlation_id
        assert answer.settled
        assert question.settled
        stats = (await mesh.stats()).mailboxes
        assert (stats["default/coder"].acked, stats["default/planner"].acked) == (1, 1)


async def test_an_answer_goes_past_what_waits_in_the_mailbox(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await coder.send("planner", "unrelated", priority=1)
        asking = asyncio.create_task(planner.ask("coder", "?", timeout=30))
        await coder.answer(await coder.receive(timeout=5), "!")
        assert (await asking).content == "!"
        assert (await planner.receive(timeout=5)).content == "unrelated"


async def test_two_questions_get_each_its_own_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        asking = [asyncio.create_task(planner.ask("coder", n, timeout=30)) for n in range(2)]
        questions = [await coder.receive(timeout=5) for _ in range(2)]
        for question in reversed(questions):
            await coder.answer(question, question.content * 10)
        assert [(await task).content for task in asking] == [0, 10]


async def test_nobody_else_is_given_the_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        asking = asyncio.create_task(planner.ask("coder", "?", timeout=30))
        question = await coder.receive(timeout=5)
        reading = asyncio.create_task(planner.receive(timeout=30))
        await until_async(lambda: mesh.node.core.kernel.state.mailboxes["default/planner"].waiters)
        await coder.answer(question, "!")
        assert (await asking).content == "!"
        assert not reading.done()
        await coder.send("planner", "for the reader")
        assert (await reading).content == "for the reader"


async def test_a_question_nobody_answers_in_time_has_no_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        with pytest.raises(NoAnswer, match=r"within 0\.02 s"):
            await planner.ask("coder", "?", timeout=0.02)


async def test_an_answer_that_comes_late_is_an_ordinary_message(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        with pytest.raises(NoAnswer):
            await planner.ask("coder", "?", timeout=0.01, correlation_id="q-1")
        await coder.answer(await coder.receive(timeout=5), "late")
        late = await planner.receive(timeout=5)
        assert (late.type, late.content, late.correlation_id) == ("answer", "late", "q-1")


async def test_a_question_that_dies_has_no_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        asking = asyncio.create_task(planner.ask("coder", "?", timeout=30))
        async with await coder.receive(timeout=5):
            raise Reject("I do not speak of it")
        with pytest.raises(NoAnswer, match="invalid I do not speak of it"):
            await asking
        assert await planner.receive_many(10) == []


async def test_a_question_that_fails_once_is_still_open(worlds: Worlds) -> None:
    """`ask` resolves only on terminal states."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        asking = asyncio.create_task(planner.ask("coder", "?", timeout=30))
        await (await coder.receive(timeout=5)).nack("busy", delay_ms=0)
        await coder.answer(await coder.receive(timeout=5), "!")
        assert (await asking).content == "!"


async def test_a_question_to_nobody_is_an_error(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        with pytest.raises(UnknownRecipient):
            await planner.ask("nobody", "?", timeout=5)


async def test_an_answer_and_its_ack_are_one_step(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner", capacity=1), await mesh.agent("coder")
        await planner.send("coder", "?", type="question")
        await coder.send("planner", "the mailbox is full now")
        question = await coder.receive(timeout=5)
        with pytest.raises(MailboxFull):
            await coder.answer(question, "!")
        assert not question.settled
        await (await planner.receive(timeout=5)).ack()
        await coder.answer(question, "!")
        assert (await planner.receive(timeout=5)).content == "!"


async def test_an_answer_under_a_lost_lease_is_refused(worlds: Worlds) -> None:
    """Promise 4."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", lease_ms=1000)
        await planner.send("coder", "?")
        question = await coder.receive(timeout=5)
        await mesh.pass_time(1)
        with pytest.raises(LeaseLost):
            await coder.answer(question, "!")
        assert question.lost
        assert await planner.receive_many(10) == []


async def test_a_question_to_an_at_most_once_agent_can_be_answered(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", delivery_semantics="at_most_once")
        asking = asyncio.create_task(planner.ask("coder", "?", timeout=30))
        await coder.answer(await coder.receive(timeout=5), "!")
        assert (await asking).content == "!"


async def test_a_handler_can_answer(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        if worlds.awaited:

            async def reply(delivery: Any) -> None:
                await coder.inner.answer(delivery, delivery.content + 1)
        else:

            def reply(delivery: Any) -> None:  # type: ignore[misc]
                assert threading.current_thread().name == "relaymesh-worker"
                coder.inner.answer(delivery, delivery.content + 1)

        coder.handle(reply)
        assert [(await planner.ask("coder", n, timeout=30)).content for n in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["id", "correlation_id"])
async def test_a_question_asked_again_finds_the_answer_that_waits(worlds: Worlds, name: str) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        with pytest.raises(NoAnswer):
            await planner.ask("coder", "?", timeout=0.01, **{name: "q-1"})
        await coder.answer(await coder.receive(timeout=5), "late")
        await coder.send("planner", "newer", correlation_id="q-2")
        assert (await planner.ask("coder", "?", timeout=5, **{name: "q-1"})).content == "late"
        assert (await planner.receive(timeout=5)).content == "newer"


async def test_a_question_asked_again_after_a_restart_finds_its_answer(durable_worlds: Worlds) -> None:
    """Its asker died before the answer came."""
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", "?", id="q-1", type="question", correlation_id="q-1", task="t")
        await coder.answer(await coder.receive(timeout=5), "!")
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        assert (await planner.ask("coder", "?", timeout=5, id="q-1", task="t")).content == "!"
        assert await coder.receive_many(5) == [], "the question was not sent a second time"


@pytest.mark.parametrize("name", ["id", "correlation_id"])
async def test_a_bad_name_of_a_question_is_refused_by_the_field_it_was_given_in(
    worlds: Worlds, name: str
) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        with pytest.raises(InvalidEnvelope, match=f"^{name} must be a string"):
            await planner.ask("planner", "?", timeout=5, **{name: 5})
