"""Topics: one publish, any number of durable subscriptions, each on its own."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from relaymesh import Conflict, Drop, InvalidSettings, MailboxFull, Reject, Retry, Rule
from tests.sdk.uniform import Worlds


async def test_every_subscription_gets_its_own_copy(worlds: Worlds) -> None:
    async with worlds() as mesh:
        billing = await mesh.subscribe("order.created", "billing")
        shipping = await mesh.subscribe("order.created", "shipping")
        before = mesh.sequence
        receipt = await mesh.publish("order.created", {"order": 7}, id="o-7", key="customer-1")
        assert (receipt.targets, receipt.duplicate) == (2, False)
        assert mesh.sequence == before + 1  # one record, whatever the fan-out
        for subscription in (billing, shipping):
            async with await subscription.receive(timeout=5) as delivery:
                assert (delivery.id, delivery.content, delivery.key) == ("o-7", {"order": 7}, "customer-1")
                assert delivery.sender == "default/mesh"


async def test_one_subscription_s_failure_is_not_the_other_s(worlds: Worlds) -> None:
    async with worlds() as mesh:
        good = await mesh.subscribe("order.created", "good")
        bad = await mesh.subscribe("order.created", "bad")
        await mesh.publish("order.created", 1)
        await (await bad.receive(timeout=5)).nack("no", retryable=False)
        await (await good.receive(timeout=5)).ack()
        (letter,) = await mesh.dead_letters()
        assert (letter.topic, letter.subscriber) == ("order.created", "bad")


@pytest.mark.parametrize(
    ("pattern", "topic", "reached"),
    [
        ("order.created", "order.created", True),
        ("order.created", "order.deleted", False),
        ("order.*", "order.created", True),
        ("order.*", "order.created.eu", False),
        ("*.created", "order.created", True),
        ("order.**", "order.created.eu", True),
        ("order.**", "order", False),
        ("**", "anything.at.all", True),
        ("other/order.created", "order.created", False),
        ("other/order.*", "other/order.created", True),
    ],
)
async def test_a_pattern_reaches_what_it_says(
    worlds: Worlds, pattern: str, topic: str, reached: bool
) -> None:
    async with worlds() as mesh:
        subscription = await mesh.subscribe(pattern, "listener")
        assert (await mesh.publish(topic, 1)).targets == reached
        assert len(await subscription.receive_many(5)) == reached


async def test_a_publish_nobody_hears_is_counted(worlds: Worlds) -> None:
    """Promise 10: `targets: 0`, counted `unrouted`."""
    async with worlds() as mesh:
        assert (await mesh.publish("nobody.listens", 1)).targets == 0
        assert (await mesh.stats()).unrouted == 1
        later = await mesh.subscribe("nobody.listens", "late")
        assert await later.receive_many(5) == []


async def test_the_same_publish_again_is_a_duplicate(worlds: Worlds) -> None:
    """Promise 2."""
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener")
        first = await mesh.publish("news", 1, id="n")
        again = await mesh.publish("news", 1, id="n")
        assert (again.duplicate, again.sequence, again.targets) == (True, first.sequence, 1)
        with pytest.raises(Conflict):
            await mesh.publish("news", 2, id="n")
        assert len(await listener.receive_many(5)) == 1


async def test_the_same_publish_in_other_words_is_a_duplicate_and_another_publishers_a_conflict(
    durable_worlds: Worlds,
) -> None:
    """Promise 2: a topic and an id name a publish, also where nobody subscribes."""
    async with durable_worlds() as mesh:
        await mesh.agent("planner")
        listener = await mesh.subscribe("heard", "listener")
        for topic in ("heard", "unheard"):
            await mesh.publish(topic, Raw(b'{"a":1,"b":2}'), id="n", sender="planner")
            await mesh.ack_many(await listener.receive_many(5))
            again = await mesh.publish(topic, Raw(b'{"b": 2, "a": 1}'), id="n", sender="planner")
            assert again.duplicate
            with pytest.raises(Conflict, match="by default/planner"):
                await mesh.publish(topic, Raw(b'{"a":1,"b":2}'), id="n")
            with pytest.raises(Conflict, match="with other content"):
                await mesh.publish(topic, {"a": 1, "b": 3}, id="n", sender="planner")
        assert await listener.receive_many(5) == []


async def test_publish_many_is_all_or_none_and_in_order(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", capacity=3)
        receipts = await mesh.publish_many("news", [{"content": n, "id": f"n{n}"} for n in range(2)])
        assert [receipt.id for receipt in receipts] == ["n0", "n1"]
        before = mesh.sequence
        with pytest.raises(MailboxFull, match="news:listener"):
            await mesh.publish_many("news", [{"content": n} for n in range(2)])
        assert mesh.sequence == before
        assert [each.content for each in await listener.receive_many(5)] == [0, 1]


async def test_a_subscription_hands_out_in_order_with_several_in_flight(worlds: Worlds) -> None:
    """Section 3: subscriptions hand out in FIFO order, whatever the priority."""
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener")
        for n in range(4):
            await mesh.publish("news", n, priority=5 - n)
        assert [(await listener.receive(timeout=5)).content for _ in range(4)] == [0, 1, 2, 3]


async def test_an_ordered_subscription_is_one_lane(worlds: Worlds) -> None:
    """Promise 3."""
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", ordered=True)
        for n in range(3):
            await mesh.publish("news", n)
        first = await listener.receive(timeout=5)
        assert await listener.receive_many(5) == []
        await first.nack("again", delay_ms=500)
        assert await listener.receive_many(5) == []
        await mesh.pass_time(0.5)
        assert [each.content for each in await listener.receive_many(5)] == [0, 1, 2]


async def test_a_full_subscription_refuses_the_publish_whole(worlds: Worlds) -> None:
    """Promise 10."""
    async with worlds() as mesh:
        small = await mesh.subscribe("news", "small", capacity=1)
        large = await mesh.subscribe("news", "large")
        await mesh.publish("news", 1)
        before = mesh.sequence
        with pytest.raises(MailboxFull, match="news:small"):
            await mesh.publish("news", 2)
        assert mesh.sequence == before
        assert [len(await each.receive_many(5)) for each in (small, large)] == [1, 1]


async def test_or_dead_letters_for_that_one_alone(worlds: Worlds) -> None:
    """Promise 10: `overflow`."""
    async with worlds() as mesh:
        small = await mesh.subscribe("news", "small", capacity=1, overflow="dead_letter")
        large = await mesh.subscribe("news", "large")
        receipts = [await mesh.publish("news", n, id=f"n{n}") for n in range(2)]
        assert [receipt.targets for receipt in receipts] == [2, 2]
        assert [len(await each.receive_many(5)) for each in (small, large)] == [1, 2]
        (letter,) = await mesh.dead_letters()
        assert (letter.message_id, letter.subscriber, letter.reason) == ("n1", "small", "mailbox_full")
        assert letter.attempts == 0


async def test_at_most_once_is_settled_before_it_is_delivered(worlds: Worlds) -> None:
    """Promise 13."""
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", delivery_semantics="at_most_once")
        await mesh.publish("news", 1)
        delivery = await listener.receive(timeout=5)
        assert delivery.settled
        if worlds.durability == "synced":
            assert mesh.node.core.synced == mesh.sequence
        stats = (await mesh.stats()).mailboxes[listener.address]
        assert (stats.acked, stats.pending, stats.delivery_semantics) == (1, 0, "at_most_once")
        with pytest.raises(ValueError, match="lost for good"):
            async with delivery:
                raise ValueError("lost for good")
        assert await listener.receive_many(5) == []


async def test_every_route_states_its_semantics(worlds: Worlds) -> None:
    """Promise 13."""
    async with worlds() as mesh:
        await mesh.subscribe("news", "usual")
        await mesh.subscribe("news", "label", delivery_semantics="exactly_once")
        stats = (await mesh.stats()).mailboxes
        assert stats["default/news:usual"].delivery_semantics == "at_least_once"
        assert stats["default/news:label"].delivery_semantics == "exactly_once"


class Throttled(Exception):
    pass


class Unlucky(Throttled):
    pass


@pytest.mark.parametrize(
    ("error", "states"),
    [
        (ValueError("bad"), ["dead_letter"]),
        (KeyError("known"), ["dropped"]),
        (Throttled(), ["retrying", "retrying", "dead_letter"]),
        (Unlucky(), ["retrying", "retrying", "dead_letter"]),
        (LookupError(), ["success"]),
        (OSError(), ["retrying", "retrying", "retrying", "dead_letter"]),
    ],
)
async def test_a_contract_maps_error_classes_to_outcomes(
    worlds: Worlds, error: Exception, states: list[str]
) -> None:
    contract = {
        ValueError: Reject,
        KeyError: Drop,
        Throttled: Retry(times=2),
        LookupError: Rule(retries=0, exit="success"),
    }
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", contract=contract)
        await mesh.publish("news", 1)
        for state in states:
            delivery = await listener.receive(timeout=5)
            assert await delivery.nack(error, delay_ms=0) == state


@pytest.mark.parametrize(
    ("ending", "max_retries", "attempts"),
    [
        (Retry(times=2), None, 3),
        (Retry(times=2), 5, 3),
        (Retry(times=5), 2, 3),
        (Retry(times=0), 5, 1),
        (Retry, 5, 6),
        (Retry(), 5, 6),
        (Retry(after=0), 1, 2),
        (Retry, None, 4),
    ],
)
async def test_the_smaller_of_max_retries_and_times_counts(
    worlds: Worlds, ending: Any, max_retries: int | None, attempts: int
) -> None:
    """Promise 5. A contract that only says Retry leaves the number to `max_retries`."""
    async with worlds() as mesh:
        listener = await mesh.subscribe(
            "news", "listener", contract={Throttled: ending}, max_retries=max_retries
        )
        await mesh.publish("news", 1)
        for attempt in range(1, attempts + 1):
            delivery = await listener.receive(timeout=5)
            state = await delivery.nack(Throttled(), delay_ms=0)
            assert state == ("retrying" if attempt < attempts else "dead_letter"), attempt


async def test_a_contract_says_when_it_is_tried_again(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", contract={Throttled: Retry(after=30, times=2)})
        await mesh.publish("news", 1)
        for _ in range(2):
            await (await listener.receive(timeout=5)).nack(Throttled())
            await mesh.pass_time(29)
            assert await listener.receive_many(1, timeout=0) == []
            await mesh.pass_time(1)
        assert await (await listener.receive(timeout=5)).nack(Throttled()) == "dead_letter"


async def test_a_retry_asked_for_later_than_the_time_to_live_comes_at_its_time(worlds: Worlds) -> None:
    """The wait that a nack asks for is no part of the hour."""
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", contract={Throttled: Retry(after=7200)})
        await mesh.publish("news", 1)
        await mesh.pass_time(3000)
        await (await listener.receive(timeout=5)).nack(Throttled())
        await mesh.pass_time(7200)
        await (await listener.receive(timeout=5)).nack(until=mesh.now_s + 86_400)
        await mesh.pass_time(86_400)
        await (await listener.receive(timeout=5)).nack(delay_ms=0)
        await mesh.pass_time(605)
        (letter,) = await mesh.dead_letters()
        assert letter.reason == "ttl_expired", "ten minutes were left"


async def test_a_delivery_names_the_topic_it_was_published_to(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("order.*", "listener")
        coder = await mesh.agent("coder")
        await mesh.publish("order.created", 1)
        await mesh.publish_many("order.paid", [{"content": n} for n in range(3)])
        got = await listener.receive_many(10)
        assert [each.topic for each in got] == ["order.created", *["order.paid"] * 3]
        await mesh.publish_many("order.sent", [{"content": n} for n in range(3)])
        assert [each.topic for each in await listener.receive_many(10)] == ["order.sent"] * 3
        await coder.send("coder", 1)
        assert (await coder.receive(timeout=5)).topic is None


async def test_the_topic_stays_with_a_message_that_is_tried_again_or_redriven(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("order.*", "listener")
        await mesh.agent("coder")
        await mesh.publish_many("order.paid", [{"content": n, "id": f"m{n}"} for n in range(3)])
        first, *_ = await listener.receive_many(3)
        await first.nack(delay_ms=0)
        first = await listener.receive(timeout=5)
        assert (first.topic, first.attempt) == ("order.paid", 2)
        await first.nack(retryable=False)
        (letter,) = await mesh.dead_letters()
        assert letter.topic == "order.paid"
        await mesh.redrive("m0", edit="edited")
        assert (await listener.receive(timeout=5)).topic == "order.paid"


async def test_a_message_redriven_to_an_agent_has_no_topic(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener, coder = await mesh.subscribe("order.*", "listener"), await mesh.agent("coder")
        await mesh.publish("order.paid", 1, id="m")
        await (await listener.receive(timeout=5)).nack(retryable=False)
        await mesh.redrive("m", to="coder")
        assert (await coder.receive(timeout=5)).topic is None


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_the_topic_outlives_a_restart(durable_worlds: Worlds, checkpoint: bool) -> None:
    async with durable_worlds() as mesh:
        listener = await mesh.subscribe("order.**", "listener")
        await mesh.publish("order.eu.paid", 1, id="dead")
        await (await listener.receive(timeout=5)).nack(retryable=False)
        await mesh.publish_many("order.paid", [{"content": n} for n in range(3)])
        await mesh.publish("order.eu.paid", 1)
        if checkpoint:
            await mesh.checkpoint()
    async with durable_worlds() as mesh:
        listener = await mesh.subscribe("order.**", "listener")
        got = await listener.receive_many(10)
        assert [each.topic for each in got] == [*["order.paid"] * 3, "order.eu.paid"]
        (letter,) = await mesh.dead_letters()
        assert letter.topic == "order.eu.paid"


async def test_what_is_settled_before_it_is_delivered_names_its_topic_too(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("order.*", "listener", delivery_semantics="at_most_once")
        await mesh.publish_many("order.paid", [{"content": n} for n in range(3)])
        assert [each.topic for each in await listener.receive_many(10)] == ["order.paid"] * 3


async def test_a_contract_may_speak_of_codes(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener", contract={"timeout": Reject, "teapot": Drop})
        await mesh.publish_many("news", [{"content": n} for n in range(2)])
        assert await (await listener.receive(timeout=5)).nack(TimeoutError()) == "dead_letter"
        assert await (await listener.receive(timeout=5)).nack(code="teapot") == "dropped"


@pytest.mark.parametrize(
    "options",
    [
        {"contract": {ValueError: "retry"}},
        {"contract": {ValueError: Retry(until=4_000_000_000)}},
        {"capacity": 0},
        {"capacity": "many"},
        {"no_such_setting": 1},
        {"overflow": "explode"},
        {"delivery_semantics": "never"},
        {"backoff_ms_cap": 300_001},
        {"max_retries": -1},
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused_and_nothing_is_written(
    worlds: Worlds, options: dict[str, object]
) -> None:
    async with worlds() as mesh:
        before = mesh.sequence
        with pytest.raises(InvalidSettings):
            await mesh.subscribe("news", "listener", **options)
        assert mesh.sequence == before


async def test_a_subscription_outlives_its_process(durable_worlds: Worlds) -> None:
    async with durable_worlds() as mesh:
        await mesh.subscribe("news.*", "listener", max_retries=1)
    async with durable_worlds() as mesh:
        assert (await mesh.publish("news.today", 1)).targets == 1
    async with durable_worlds() as mesh:
        listener = await mesh.subscribe("news.*", "listener", max_retries=1)
        assert (await listener.receive(timeout=5)).content == 1


async def test_subscribing_again_changes_nothing_but_settings(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.subscribe("news", "listener", capacity=5)
        before = mesh.sequence
        again = await mesh.subscribe("news", "listener", capacity=5)
        assert mesh.sequence == before
        await mesh.publish("news", 1)
        changed = await mesh.subscribe("news", "listener", capacity=1)
        with pytest.raises(MailboxFull):
            await mesh.publish("news", 2)
        assert len(await again.receive_many(5)) + len(await changed.receive_many(5)) == 1
