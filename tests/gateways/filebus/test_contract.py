"""What the SDK promises about messages holds for programs that know only files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateways.filebus.station import Station, station


def test_a_send_arrives_as_it_was_written(bus: Station) -> None:
    bus.send("job-1", "planner", {"do": "bump", "n": 1.50}, type="question", priority="high")
    bus.turn()
    delivery = bus.mesh.agent("planner").receive(timeout=0)
    assert (delivery.id, delivery.sender, delivery.type) == ("job-1", "default/coder", "question")
    assert (delivery.content, delivery.priority) == ({"do": "bump", "n": 1.5}, 2)


def test_a_send_is_answered_by_a_receipt_and_its_files_are_gone(bus: Station) -> None:
    bus.send("job-1", "planner")
    bus.turn()
    assert bus.receipt("job-1") == {
        "messageId": "job-1",
        "to": "default/planner",
        "targets": 1,
        "duplicate": False,
    }
    assert bus.stems("meta") == []
    assert list((bus.path / "payload").iterdir()) == []


def test_a_message_arrives_as_files_with_everything_a_worker_needs(bus: Station) -> None:
    bus.mesh.agent("planner").send(
        "coder", {"do": "bump"}, id="m-1", correlation_id="c-1", reply_to="boss", tags=["x"], task="t-1"
    )
    bus.turn()
    claim = bus.take()
    assert claim.content == {"do": "bump"}
    assert (claim.id, claim.attempt) == ("m-1", 1)
    assert (claim.meta["from"], claim.meta["to"]) == ("default/planner", "default/coder")
    assert claim.meta["metadata"]["correlationId"] == "c-1"
    assert claim.meta["metadata"]["replyTo"] == "default/boss"
    assert claim.meta["payloadBytes"] == len(claim.data)


def test_content_that_is_no_json_goes_through_as_it_is(bus: Station) -> None:
    data = bytes(range(256))
    bus.mesh.agent("planner").send("coder", data, id="m-1")
    bus.turn()
    claim = bus.take()
    assert claim.data == data
    bus.write("payload/back.payload.bin", data)
    bus.write("meta/back.meta.json", '{"to": "planner"}')
    bus.turn()
    assert bus.mesh.agent("planner").receive(timeout=0).content == data


def test_what_is_moved_to_done_is_acked_and_kept_under_its_day(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1
    [day] = [path for path in (bus.path / "done").iterdir() if path.is_dir()]
    assert sorted(path.name for path in day.iterdir()) == [
        f"{claim.stem}.meta.json",
        f"{claim.stem}.payload.json",
    ]


def test_a_worker_that_files_it_under_a_day_itself_has_acked_too(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    bus.turn(1)
    (bus.path / "done/2026-01-01").mkdir()
    claim.path.rename(bus.path / "done/2026-01-01" / claim.path.name)
    bus.turn(4)
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_what_is_moved_to_dead_is_a_dead_letter_with_the_verdict(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    claim.dead(code="bad_patch", reason="no such line")
    [letter] = bus.mesh.dead_letters()
    assert (letter.letter.envelope.id, letter.code) == ("m-1", "bad_patch")
    reason = bus.reason(claim.stem)
    assert reason is not None
    assert (reason["code"], reason["message"], reason["state"]) == (
        "bad_patch",
        "no such line",
        "dead_letter",
    )
    assert (bus.path / f"dead/{claim.stem}.payload.json").read_text() == '"work"'


@pytest.mark.parametrize("verdict", ["", "{", "[]", '{"retryable": "perhaps"}', "\x00", "[" * 10_000])
def test_a_verdict_that_cannot_be_read_is_a_refusal(bus: Station, verdict: str) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    bus.write(f"dead/{claim.stem}.verdict.json", verdict)
    claim.dead()
    [letter] = bus.mesh.dead_letters()
    assert "cannot be read" in letter.letter.failures[-1].reason


def test_a_retryable_verdict_brings_it_back_with_the_next_attempt(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    first = bus.take()
    first.dead(retryable=True, code="rate_limited", delayMs=60_000)
    assert list((bus.path / "dead").iterdir()) == []
    assert list((bus.path / "payload").iterdir()) == []
    bus.pass_time(59)
    assert bus.inbox() == []
    bus.pass_time(2)
    second = bus.take()
    assert (second.id, second.attempt) == ("m-1", 2)
    assert second.stem != first.stem


def test_retries_end_in_a_dead_letter(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    for _ in range(4):
        bus.take().dead(retryable=True)
        bus.pass_time(10)
    assert bus.inbox() == []
    [letter] = bus.mesh.dead_letters()
    assert (letter.letter.attempts, letter.reason) == (4, "retries_exhausted")


def test_a_deferred_delivery_burns_no_attempt(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    bus.take().dead(deferMs=30_000)
    bus.pass_time(29)
    assert bus.inbox() == []
    bus.pass_time(2)
    assert bus.take().attempt == 1


def test_a_claim_put_back_into_the_inbox_can_be_claimed_again_unburned(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take("w1")
    bus.turn(1)
    claim.path.rename(bus.path / "inbox/normal" / claim.path.name)
    bus.turn()
    again = bus.take("w2")
    assert (again.stem, again.attempt) == (claim.stem, 1)
    again.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_urgent_messages_lie_in_the_tier_that_is_looked_at_first(bus: Station) -> None:
    planner = bus.mesh.agent("planner")
    for number, priority in enumerate((5, 3, 1, 4, 2)):
        planner.send("coder", number, id=f"p{priority}", priority=priority)
    bus.turn()
    assert [bus.stems(f"inbox/{tier}") for tier in ("high", "normal", "low")] == [
        ["p1~0.1.1", "p2~0.1.2"],
        ["p3~0.1.3"],
        ["p4~0.1.4", "p5~0.1.5"],
    ]


def test_a_flood_of_urgent_messages_does_not_starve_the_others(tmp_path: Path) -> None:
    with station(tmp_path, window=4) as bus:
        planner = bus.mesh.agent("planner")
        planner.send("coder", "low", id="low", priority=5)
        for number in range(100):
            planner.send("coder", number, id=f"high-{number}", priority=1)
        bus.turn()
        order = []
        while (claim := bus.claim()) is not None:
            order.append(claim.id)
            claim.done()
    assert len(order) == 101
    assert order.index("low") < 60


def test_a_delayed_send_is_not_seen_before_its_time(bus: Station) -> None:
    bus.send("later", "coder", metadata={"delayMs": 30_000})
    bus.turn()
    receipt = bus.receipt("later")
    assert receipt is not None
    assert receipt["scheduledDeliveryTime"].startswith("2026-01-01T00:00:30")
    bus.pass_time(29)
    assert bus.inbox() == []
    bus.pass_time(2)
    assert bus.ids() == ["later"]


def test_a_message_nobody_claims_expires_all_the_same(bus: Station) -> None:
    bus.send("short", "coder", metadata={"ttl": 20})
    bus.turn()
    assert bus.ids() == ["short"]
    bus.pass_time(22)
    assert bus.inbox() == []
    [letter] = bus.mesh.dead_letters()
    assert (letter.reason, letter.letter.attempts) == ("ttl_expired", 0)


def test_a_message_being_worked_on_does_not_expire(bus: Station) -> None:
    bus.send("short", "coder", metadata={"ttl": 20})
    bus.turn()
    claim = bus.take()
    bus.pass_time(60)
    claim.done()
    assert bus.mesh.dead_letters() == []
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_the_same_file_twice_is_one_message(bus: Station) -> None:
    """Promise 2, for files."""
    for _ in range(2):
        bus.send("job-1", "planner", {"n": 1})
        bus.turn()
    receipt = bus.receipt("job-1")
    assert receipt is not None
    assert receipt["duplicate"] is True
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 1


def test_the_same_id_with_other_content_is_a_conflict(bus: Station) -> None:
    bus.send("job-1", "planner", {"n": 1})
    bus.turn()
    bus.send("job-1", "planner", {"n": 2})
    bus.turn()
    reason = bus.reason("job-1")
    assert reason is not None
    assert reason["code"] == "CONFLICT"


def test_the_meta_may_name_an_id_that_no_file_could_have(bus: Station) -> None:
    bus.send("job-1", "planner", id="order/42: urgent")
    bus.turn()
    receipt = bus.receipt("job-1")
    assert receipt is not None
    assert receipt["messageId"] == "order/42: urgent"
    assert bus.mesh.agent("planner").receive(timeout=0).id == "order/42: urgent"


def test_a_payload_at_the_limit_goes_through_and_one_byte_more_does_not(tmp_path: Path) -> None:
    with station(tmp_path, "coder", payload_max_bytes=1_000_000) as bus:
        bus.send("fits", "coder", "x" * (1_000_000 - 2))
        bus.send("large", "coder", "x" * (1_000_000 - 1))
        bus.turn()
        claim = bus.take()
        assert len(claim.data) == 1_000_000
        reason = bus.reason("large")
        assert reason is not None
        assert reason["code"] == "PAYLOAD_TOO_LARGE"


def test_ten_megabytes_go_through_both_ways(bus: Station) -> None:
    data = "x" * (10_485_760 - 2)
    bus.send("big", "coder", data)
    bus.turn()
    assert bus.take().content == data


def test_a_lane_hands_out_one_message_at_a_time_and_in_order(bus: Station) -> None:
    """Promise 3, whichever worker asks."""
    for number in range(4):
        bus.mesh.agent("planner").send("coder", number, id=f"m-{number}", key="repo-1")
    seen = []
    for number in range(4):
        bus.turn()
        assert bus.ids() == [f"m-{number}"]
        claim = bus.take(f"w{number % 2}")
        bus.turn()
        assert bus.inbox() == []
        seen.append(claim.content)
        claim.done()
    assert seen == [0, 1, 2, 3]


def test_a_retry_holds_its_lane(bus: Station) -> None:
    for number in range(2):
        bus.mesh.agent("planner").send("coder", number, id=f"m-{number}", task="t-1")
    bus.turn()
    bus.take().dead(retryable=True, delayMs=5000)
    assert bus.inbox() == []
    bus.pass_time(6)
    assert bus.ids() == ["m-0"]


def test_sends_to_one_agent_keep_the_order_of_their_files(bus: Station) -> None:
    for number in range(30):
        bus.send(f"m-{number:02}", "planner", number, metadata={"orderingKey": "k"})
    bus.turn()
    planner = bus.mesh.agent("planner")
    got = [planner.receive(timeout=0) for _ in range(1)]
    got[0].ack()
    rest = []
    while deliveries := planner.receive_many(10, timeout=0):
        rest += [each.content for each in deliveries]
        bus.mesh.ack_many(deliveries)
    assert [got[0].content, *rest] == list(range(30))


def test_a_send_to_nobody_is_dead_with_the_reason(bus: Station) -> None:
    bus.send("job-1", "nobody")
    bus.turn()
    reason = bus.reason("job-1")
    assert reason is not None
    assert (reason["code"], reason["retryable"]) == ("UNKNOWN_RECIPIENT", False)
    assert "default/nobody" in reason["message"]
    assert (bus.path / "dead/job-1.payload.json").read_text() == '"hello"'
    assert bus.receipt("job-1") is None


def test_one_bad_send_does_not_hold_up_the_others(bus: Station) -> None:
    for number in range(10):
        bus.send(f"m-{number}", "nobody" if number == 3 else "planner")
    bus.turn()
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 9
    assert bus.stems("meta") == []


def test_a_sender_that_asked_is_told_by_a_file_when_its_message_is_acked(bus: Station) -> None:
    """Promise 14: the ack is a delivery like any other."""
    bus.send("job-1", "planner", metadata={"requiresAck": True})
    bus.turn()
    bus.mesh.agent("planner").receive(timeout=0).ack()
    bus.turn()
    claim = bus.take()
    assert (claim.meta["type"], claim.meta["metadata"]["correlationId"]) == ("ack", "job-1")
    assert claim.content["originalMessageId"] == "job-1"


def test_a_sender_that_asked_is_told_when_a_worker_refuses_for_good(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1", requires_ack=True)
    bus.turn()
    bus.take().dead(code="invalid", reason="no")
    nack = bus.mesh.agent("planner").receive(timeout=0)
    assert nack.type == "nack"
    assert nack.content["originalMessageId"] == "m-1"


def test_a_full_mailbox_makes_sends_wait_and_keeps_their_order(bus: Station) -> None:
    planner = bus.mesh.agent("planner", capacity=2)
    for number in range(5):
        bus.send(f"m-{number}", "planner", number)
    bus.turn()
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 2
    got = []
    for _ in range(5):
        delivery = planner.receive(timeout=0)
        got.append(delivery.content)
        delivery.ack()
        bus.pass_time(2)
    assert got == [0, 1, 2, 3, 4]
    assert [path.name for path in (bus.path / ".gateway").iterdir()] == ["lock"]


def test_a_topic_reaches_its_subscribers(bus: Station) -> None:
    billing = bus.mesh.subscribe("order.*", "billing")
    bus.write("payload/o-1.payload.json", '{"order": 42}')
    bus.write("meta/o-1.meta.json", '{"topic": "order.created"}')
    bus.turn()
    receipt = bus.receipt("o-1")
    assert receipt is not None
    assert (receipt["topic"], receipt["targets"]) == ("default/order.created", 1)
    assert billing.receive(timeout=0).content == {"order": 42}


def test_the_sender_is_an_agent_of_the_bus_whatever_the_meta_says(bus: Station) -> None:
    bus.send("forged", "planner", **{"from": "boss"})
    bus.send("honest", "planner", **{"from": "default/coder"})
    bus.turn()
    reason = bus.reason("forged")
    assert reason is not None
    assert reason["code"] == "UNAUTHORIZED"
    assert bus.mesh.agent("planner").receive(timeout=0).id == "honest"


def test_fields_nobody_knows_survive_the_way_through(bus: Station) -> None:
    bus.send("job-1", "coder", {"x": 1}, acme={"build": [1, 2]})
    bus.turn()
    assert bus.take().meta["acme"] == {"build": [1, 2]}


def test_several_agents_share_a_bus(tmp_path: Path) -> None:
    with station(tmp_path, "coder", "tester") as bus:
        bus.send("a", "tester")
        bus.send("b", "coder", **{"from": "tester"})
        bus.turn()
        claims = {claim.id: claim for claim in (bus.take(), bus.take())}
        assert claims["a"].meta["to"] == "default/tester"
        assert (claims["b"].meta["to"], claims["b"].meta["from"]) == ("default/coder", "default/tester")


def test_json_is_passed_on_byte_for_byte(bus: Station) -> None:
    text = '{"b" : 1.0,\n "a": "\\u00e9", "n": 12345678901234567890123}'
    bus.write("payload/x.payload.json", text)
    bus.write("meta/x.meta.json", '{"to": "coder"}')
    bus.turn()
    assert bus.take().data.decode() == text
    json.loads(text)
