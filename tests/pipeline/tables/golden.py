"""Small journals whose tables can be worked out by hand. Each is a partition of one bronze."""

from __future__ import annotations

from tests.pipeline.tables.journal import Journal

LIFE, FLOW, LOSS, MIX, LAYERED, ALARM, TALK, BURST, OTHERS, RARE = range(10)

CODER = "default/coder"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def life() -> Journal:
    """Everything that can happen to a message, once."""
    journal = Journal(LIFE)
    journal.open(CODER, capacity=50, capacity_bytes=1000)
    billing = journal.subscribe("default/order.*", "billing")
    audit = journal.subscribe("default/**", "audit")
    first = journal.append(CODER, "m1", ordering_key="k")  # 5
    published = journal.publish("default/order.made", "p1", 2)  # 6: to billing and audit
    late = journal.append(CODER, "m2", delay_ms=5_000, priority=4)  # 7
    journal.at(100).grant(CODER, first)  # 8
    journal.at(300).nack(CODER, first, 1, "timeout", due=1_300)  # 9
    journal.at(1_300).grant(CODER, first, holder="w2")  # 10
    journal.at(1_500).ack(CODER, first)  # 11
    journal.grant(billing, published)  # 12
    dead = journal.at(1_600).dead(billing, published, "not_retryable", "invalid", error="no total")  # 13
    journal.event("REPRIORITISE", mailbox=CODER, message_sequence=late, priority=1)  # 14
    journal.at(2_000).event("FORCE_DELIVER", mailbox=CODER, message_sequence=late)  # 15
    journal.at(2_100).grant(CODER, late)  # 16
    journal.at(2_200).back("RELEASE", CODER, late)  # 17
    journal.at(2_300).grant(CODER, late)  # 18
    journal.at(2_400).back("DEFER", CODER, late, due=3_400, attempt=1, code="other")  # 19
    journal.at(3_500).grant(CODER, late)  # 20
    again = journal.at(4_000).redrive(billing, dead, CODER, "p1")  # 21
    journal.at(5_000).drop(audit, published, "unsubscribed")  # 22
    journal.unsubscribe(audit)  # 23
    journal.publish("default/order.made", "p2", 1)  # 24: to billing alone
    assert again == 21
    return journal


def flow() -> Journal:
    """Seed 001: 120 messages a second come, two workers do 35 a second each, for ten seconds."""
    journal = Journal(FLOW)
    journal.open(CODER, capacity=600)
    waiting: list[int] = []
    for second in range(10):
        journal.at(second * 1_000)
        waiting += [journal.append(CODER, f"m{second}.{i}") for i in range(120)]
        taken, waiting = waiting[:70], waiting[70:]
        journal.grant(CODER, *taken[:35], holder="w1")
        journal.grant(CODER, *taken[35:], holder="w2")
        journal.at(second * 1_000 + 999).ack(CODER, *taken)
    return journal


def loss() -> Journal:
    """p_fail = 0.2, r = 2: of 125 messages 25 fail once, 5 of these twice, 1 of these three times."""
    journal = Journal(LOSS)
    journal.open(CODER, max_retries=2)
    messages = [journal.append(CODER, f"m{i}") for i in range(125)]
    for attempt, failing in ((1, 25), (2, 5), (3, 1)):
        journal.grant(CODER, *messages)
        journal.ack(CODER, *messages[failing:])
        messages = messages[:failing]
        for message in messages:
            if attempt < 3:
                journal.nack(CODER, message, attempt, "other")
            else:
                journal.dead(CODER, message, "retries_exhausted", "other", attempt=3)
    return journal


def mix(partition: int, invalid_retries: int) -> Journal:
    """Of 100 failures 70 are timeouts, 20 invalid, 10 rate limits. All but the invalid pass next time."""
    journal = Journal(partition)
    contract = {"invalid": {"retries": invalid_retries, "exit": "dead_letter", "alert": False}}
    journal.open(CODER, contract=contract)
    tries = 1 + invalid_retries
    codes = ["timeout"] * 70 + ["rate_limited"] * 10 + ["invalid"] * (20 // tries)
    for i, code in enumerate(codes):
        message = journal.append(CODER, f"m{i}")
        for attempt in range(1, 3 if code != "invalid" else tries):
            if code == "invalid" or attempt == 1:
                journal.grant(CODER, message)
                journal.nack(CODER, message, attempt, code)
        journal.grant(CODER, message)
        if code == "invalid":
            reason = "retries_exhausted" if invalid_retries else "not_retryable"
            journal.dead(CODER, message, reason, code, attempt=tries)
        else:
            journal.ack(CODER, message)
    return journal


def alarm() -> Journal:
    """A slow message, a mailbox of 1,001, and 51 dead letters within an hour."""
    journal = Journal(ALARM)
    journal.open("default/slow")
    journal.open("default/deep")
    journal.open("default/deadly")
    slow = journal.append("default/slow", "slow")
    journal.grant("default/slow", slow)
    deep = [journal.append("default/deep", f"d{i}") for i in range(1_001)]
    journal.at(6_000).ack("default/slow", slow)
    journal.at(200_000).grant("default/deep", deep[0])
    journal.drop("default/deep", deep[0], "dropped")
    for i in range(51):
        journal.at(300_000 + i * 60_000)
        doomed = journal.append("default/deadly", f"x{i}")
        journal.dead("default/deadly", doomed, "mailbox_full")
    return journal


def talk() -> Journal:
    """A question, its answer and a broadcast, with what they cost."""
    journal = Journal(TALK)
    journal.open("default/planner")
    journal.open(CODER)
    one, two = journal.subscribe("default/news", "one"), journal.subscribe("default/news", "two")
    asked = journal.append(
        CODER, "q", type="question", correlation_id="q", traceparent=TRACE, reply_to="default/planner",
        extra='{"metadata": {"usage": {"inputTokens": 1000, "outputTokens": 50, "costUsd": 0.5}}}',
    )  # fmt: skip
    journal.at(100).grant(CODER, asked)
    answer = journal.at(600).append(
        "default/planner", "a", sender=CODER, type="answer", correlation_id="q",
        extra='{"usage": {"inputTokens": 10, "outputTokens": 200, "costUsd": 0.25}}',
    )  # fmt: skip
    journal.ack(CODER, asked)
    journal.at(700).grant("default/planner", answer)
    journal.at(900).ack("default/planner", answer)
    news = journal.publish("default/news", "n", 2, sender=CODER, extra='{"usage": {"costUsd": 0.125}}')
    journal.grant(one, news)
    journal.at(1_000).ack(one, news)
    journal.grant(two, news)
    dead = journal.at(1_100).dead(two, news, "not_retryable", "fatal", alert=False)
    journal.at(1_200).purge(two, dead)
    return journal


def burst() -> Journal:
    """Twelve messages of 2,000 bytes in a second, nine done in it: a hundredth of the seed's numbers."""
    journal = Journal(BURST)
    journal.open(CODER, capacity=25)
    messages = [journal.append(CODER, f"m{i}", content_bytes=2_000) for i in range(12)]
    journal.grant(CODER, *messages[:9])
    journal.at(500).ack(CODER, *messages[:9])
    journal.at(19_000).append(CODER, "last", content_bytes=2_000)
    return journal


def rare() -> Journal:
    """Mailboxes that are quiet most of the time, each busy in its own way."""
    journal = Journal(RARE)
    for name in ("bursts", "sparse", "late", "delayed"):
        journal.open(f"default/{name}")
    burst = [journal.append("default/bursts", f"b{i}") for i in range(600)]
    for second, message in enumerate(burst):
        journal.at(second * 1_000).grant("default/bursts", message)
        journal.at(second * 1_000 + 999).ack("default/bursts", message)
    for minutes in range(0, 60, 10):
        message = journal.at(1_000_000 + minutes * 60_000).append("default/sparse", f"s{minutes}")
        journal.grant("default/sparse", message)
        journal.at(1_060_000 + minutes * 60_000).ack("default/sparse", message)
    journal.at(4_600_000).append("default/bursts", "last")
    late = [journal.at(5_000_000 + i * 1_000).append("default/late", f"l{i}") for i in range(600)]
    for number, message in enumerate(late):
        journal.at(6_000_000 + number * 500).grant("default/late", message)
        journal.at(6_000_499 + number * 500).ack("default/late", message)
    delayed = [
        journal.at(7_000_000).append("default/delayed", f"d{i}", delay_ms=(i + 1) * 10_000) for i in range(50)
    ]
    for number, message in enumerate(delayed):
        journal.at(7_010_000 + number * 10_000).grant("default/delayed", message)
        journal.at(7_012_000 + number * 10_000).ack("default/delayed", message)
    return journal


def others() -> Journal:
    """Who registers, who only sends, and who falls silent."""
    journal = Journal(OTHERS)
    journal.event("AGENT_REGISTERED", mailbox="default/new", operation_code=130)
    journal.open(CODER)
    message = journal.append(CODER, "m", sender="default/person")
    journal.grant(CODER, message)
    journal.at(30_000).back("LEASE_EXPIRED", CODER, message, attempt=1, code="timeout")
    journal.grant(CODER, message)
    journal.at(31_000).restart()
    journal.back("RECLAIM", CODER, message, attempt=2, code="timeout")
    journal.at(32_000).grant(CODER, message)
    journal.at(32_400).ack(CODER, message)
    return journal


def journals() -> list[Journal]:
    mixes = mix(MIX, 3), mix(LAYERED, 0)
    return [life(), flow(), loss(), *mixes, alarm(), talk(), burst(), others(), rare()]
