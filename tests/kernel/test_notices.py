"""`requiresAck` (DESIGN promise 14) and question/answer: the sender hears how it ended, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relaymesh.kernel.commands import Expect, Forgo, Receive, Settle, Tick, Unexpect
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.moment import iso
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver, ids, letter


def notices(mesh: Driver, box: str) -> list[tuple[str, dict[str, Any]]]:
    return [(e.envelope.type, json.loads(e.envelope.content)) for e in mesh.box(box).entries.values()]


def ask(mesh: Driver, correlation: str = "q") -> tuple[str, str, DeliveryRow]:
    """`asker` asks `oracle`, which has received the question."""
    asker, oracle = mesh.agent("asker"), mesh.agent("oracle")
    mesh.do(Expect(asker, correlation))
    mesh.send(oracle, correlation, sender=asker, type="question", correlation_id=correlation)
    (question,) = mesh.receive(oracle)
    return asker, oracle, question


def test_the_sender_gets_an_ack_when_the_receiver_acks() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    assert notices(mesh, sender) == []
    (lease,) = mesh.receive(box)
    mesh.ack(lease)
    expected = {"originalMessageId": "m", "success": True, "timestamp": iso(mesh.now)}
    assert notices(mesh, sender) == [("ack", expected)]
    (notice,) = mesh.receive(sender)
    assert (notice.envelope.sender, notice.envelope.correlation_id) == (box, "m")


def test_the_sender_gets_one_nack_when_the_message_is_dead_and_none_per_attempt() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent(max_retries=2)
    mesh.send(box, "m", sender=sender, requires_ack=True)
    for _ in range(3):
        assert notices(mesh, sender) == []
        mesh.nack(*mesh.receive(box), code="other", reason="no luck")
        mesh.advance(MINUTE)
    ((kind, content),) = notices(mesh, sender)
    assert (kind, content["success"]) == ("nack", False)
    assert content["error"] == {"code": "other", "message": "no luck"}


def test_the_sender_gets_a_nack_when_the_message_expires() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True, ttl_ms=1)
    mesh.advance(MINUTE)
    ((kind, content),) = notices(mesh, sender)
    assert (kind, content["error"]["code"]) == ("nack", "AGENT_OFFLINE")


def test_a_nack_says_in_the_protocol_s_words_what_the_mesh_found_itself() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent(max_retries=0)
    mesh.send(box, "slow", sender=sender, requires_ack=True, ttl_ms=0)
    mesh.receive(box)
    mesh.advance(MINUTE)
    mesh.send(box, "tried", sender=sender, requires_ack=True, ttl_ms=MINUTE, max_retries=3)
    mesh.nack(*mesh.receive(box), delay_ms=0)
    mesh.advance(2 * MINUTE)
    told = {content["originalMessageId"]: content["error"]["code"] for _, content in notices(mesh, sender)}
    assert told == {"slow": "AGENT_BUSY", "tried": "AGENT_BUSY"}


def test_a_receiver_s_own_code_reaches_the_sender_as_it_is() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    mesh.nack(*mesh.receive(box), code="TASK_NOT_FOUND", reason="no task 7", retryable=False)
    ((_, content),) = notices(mesh, sender)
    assert content["error"] == {"code": "TASK_NOT_FOUND", "message": "no task 7"}


@pytest.mark.parametrize("how", ["drop", "contract"])
def test_the_sender_gets_a_nack_when_the_message_is_dropped(how: str) -> None:
    from relaymesh.kernel.contract import Rule

    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent(contract={"invalid": Rule(0, "drop")})
    mesh.send(box, "m", sender=sender, requires_ack=True)
    (lease,) = mesh.receive(box)
    if how == "drop":
        mesh.drop(lease)
    else:
        mesh.nack(lease, code="invalid")
    assert [kind for kind, _ in notices(mesh, sender)] == ["nack"]


def test_a_conflict_counts_as_done_for_the_sender_too() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    mesh.nack(*mesh.receive(box), code="conflict")
    assert [kind for kind, _ in notices(mesh, sender)] == ["ack"]


def test_a_message_settled_before_its_delivery_is_acked_to_its_sender() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent(delivery_semantics="at_most_once")
    mesh.send(box, "m", sender=sender, requires_ack=True)
    mesh.receive(box)
    assert [kind for kind, _ in notices(mesh, sender)] == ["ack"]


def test_a_notice_finds_room_in_a_full_mailbox() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender", capacity=1), mesh.agent()
    mesh.send(sender, "full")
    mesh.send(box, "m", sender=sender, requires_ack=True)
    mesh.ack(*mesh.receive(box))
    assert len(mesh.pending(sender)) == 2


def test_a_notice_goes_to_reply_to_if_there_is_one_and_nowhere_if_the_sender_is_no_agent() -> None:
    mesh = Driver()
    replies, box = mesh.agent("replies"), mesh.agent()
    mesh.send(box, "1", requires_ack=True, reply_to=replies)
    mesh.send(box, "2", requires_ack=True, sender="default/nobody")
    mesh.ack(*mesh.receive(box, 2))
    assert [content["originalMessageId"] for _, content in notices(mesh, replies)] == ["1"]


def test_every_subscriber_s_ack_is_told() -> None:
    mesh = Driver()
    sender = mesh.agent("sender")
    boxes = [mesh.subscription("t", name) for name in ("one", "two")]
    mesh.publish("t", "m", sender=sender, requires_ack=True)
    for box in boxes:
        mesh.ack(*mesh.receive(box))
    assert sorted(lease.envelope.sender for lease in mesh.receive(sender, 5)) == sorted(boxes)


def test_an_answer_goes_to_whoever_asked_and_to_nobody_else() -> None:
    mesh = Driver()
    asker, oracle, question = ask(mesh)
    listening = mesh.wait(asker, 5)
    waiting = mesh.wait(asker, 1, "asker", correlation_id="q")
    answer = letter("answer", b"42", sender=oracle, type="answer", correlation_id="q")
    (delivered,) = mesh.do(Settle(question.token, [(asker, [answer])])).delivered or []
    assert delivered.waiter is waiting
    assert delivered.deliveries.rows()[0].envelope.content == b"42"
    assert mesh.do(Forgo(asker, listening)).result is True


def test_an_answer_that_came_first_is_there_for_whoever_asks_for_it() -> None:
    mesh = Driver()
    asker, oracle, question = ask(mesh)
    answer = letter("answer", sender=oracle, correlation_id="q")
    mesh.do(Settle(question.token, [(asker, [answer])]))
    assert mesh.receive(asker, 5) == []
    assert ids(mesh.receive(asker, correlation_id="q")) == ["answer"]


@pytest.mark.parametrize("ordered", [False, True])
def test_an_answer_does_not_stand_in_line(ordered: bool) -> None:
    mesh = Driver()
    asker = mesh.agent("asker", ordered=ordered)
    mesh.do(Expect(asker, "q"))
    mesh.send(asker, "before", key="k")
    mesh.receive(asker, 1)
    mesh.send(asker, "answer", correlation_id="q", key="k")
    assert ids(mesh.receive(asker, correlation_id="q")) == ["answer"]


@pytest.mark.parametrize("end", ["refused", "expired"])
def test_a_question_that_ends_without_an_answer_says_so_to_whoever_asked(end: str) -> None:
    mesh = Driver()
    asker, _, question = ask(mesh)
    waiting = mesh.wait(asker, 1, "asker", correlation_id="q")
    if end == "refused":
        mesh.nack(question, code="fatal")
    else:
        mesh.release(question)
        mesh.advance(2 * HOUR)
    (delivered,) = mesh.step.delivered or []
    assert delivered.waiter is waiting
    assert delivered.deliveries.rows()[0].envelope.type == "nack"


def test_an_answer_nobody_asks_for_any_more_is_an_ordinary_message() -> None:
    mesh = Driver()
    asker, oracle, _ = ask(mesh)
    mesh.send(asker, "answer", sender=oracle, correlation_id="q")
    mesh.do(Unexpect(asker, "q"))
    assert ids(mesh.receive(asker, 5)) == ["answer"]


def test_an_answer_that_expired_stays_dead_when_nobody_asks_for_it_any_more() -> None:
    mesh = Driver()
    asker, oracle, _ = ask(mesh)
    mesh.send(asker, "answer", sender=oracle, correlation_id="q", ttl_ms=SECOND)
    mesh.advance(MINUTE)
    mesh.do(Unexpect(asker, "q"))
    assert mesh.receive(asker, 5) == []
    assert [dead.envelope.id for dead in mesh.letters] == ["answer"]


def test_an_answer_that_was_not_acked_comes_again_to_whoever_asks() -> None:
    mesh = Driver()
    asker, oracle, _ = ask(mesh)
    mesh.send(asker, "answer", sender=oracle, correlation_id="q")
    mesh.nack(*mesh.receive(asker, correlation_id="q"), delay_ms=SECOND)
    assert mesh.receive(asker, correlation_id="q") == []
    mesh.advance(SECOND)
    assert mesh.receive(asker, correlation_id="q")[0].attempt == 2


def test_only_the_asker_that_is_answered_is_looked_at() -> None:
    mesh = Driver()
    box = mesh.agent()
    waiters = [Waiter("w", 1, f"q{i}") for i in range(50)]
    for waiter in waiters:
        mesh.do(Expect(box, waiter.correlation_id or ""))
        mesh.do(Receive(box, waiter))
    mesh.send(box, "answer", correlation_id="q30")
    (delivered,) = mesh.step.delivered or []
    assert delivered.waiter is waiters[30]
    assert len(mesh.box(box).askers) == 49


def test_a_notice_that_appears_while_its_receiver_asks_is_not_left_lying() -> None:
    """The message expires in the very step in which its sender looks for something to do."""
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", sender=box, requires_ack=True, ttl_ms=5)
    mesh.now += 5
    (lease,) = mesh.receive(box, 5)
    assert lease.envelope.type == "nack"
    assert mesh.do(Tick()).delivered is None


@pytest.mark.parametrize("kind", ["ack", "nack"])
@pytest.mark.parametrize("look", ["in time", "late"])
def test_a_notice_that_nobody_reads_is_dropped_and_counted_and_no_dead_letter(kind: str, look: str) -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    (lease,) = mesh.receive(box)
    if kind == "ack":
        mesh.ack(lease)
    else:
        mesh.drop(lease)
    mesh.send(sender, "mail")
    mesh.restart_from_snapshot()
    mesh.now += HOUR
    if look == "in time":
        mesh.do(Tick())
        mesh.advance(2 * SECOND)
    else:
        assert mesh.receive(sender, 5) == []
    assert mesh.pending(sender) == []
    assert [letter.envelope.id for letter in mesh.letters] == ["mail"]
    assert mesh.box(sender).counters.dropped == 1


def test_the_end_of_an_unread_notice_is_told_in_the_log() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    mesh.ack(*mesh.receive(box))
    mesh.now += 2 * HOUR
    mesh.do(Tick())
    assert [(ended.code, ended.final_state) for ended in mesh.ended] == [("ttl_expired", "dropped")]


def test_a_message_that_only_looks_like_a_notice_is_a_dead_letter() -> None:
    """A receipted message never vanishes, whatever its sender calls it."""
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "ack-0-999", type="ack")
    mesh.advance(2 * HOUR)
    assert [letter.envelope.id for letter in mesh.letters] == ["ack-0-999"]
