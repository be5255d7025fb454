"""Dead letters and redrive: nothing of the message is lost, and nothing happens twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from relaymesh.errors import Conflict, InvalidEnvelope, MailboxFull, NotFound, UnknownRecipient
from relaymesh.kernel.commands import PurgeDeadLetters, Redrive, Unsubscribe
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import DeadLettered
from tests.kernel.driver import MINUTE, SECOND, Driver, ids


def whole_envelope() -> dict[str, object]:
    """A value of its own in every field."""
    return {
        "content": b'{"a": 1}',
        "encoding": 0,
        "type": "task_assign",
        "priority": 2,
        "ttl_ms": 90_000,
        "delay_ms": 10,
        "task": "task",
        "key": "key",
        "correlation_id": "correlation",
        "reply_to": "default/reply",
        "requires_ack": False,
        "tags": ("urgent", "blocking"),
        "trace": "00-trace-span-01",
        "max_retries": 1,
        "timestamp_ms": 5,
        "extra": b"\x81\xa1a\x01",
        "origin": "origin",
    }


def test_a_dead_letter_has_the_message_and_every_attempt() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=1)
    (receipt,) = mesh.send(box, "m", content=b"body")
    accepted_at = mesh.now
    mesh.nack(*mesh.receive(box), code="rate_limited", reason="slow down", stack="at line 1")
    mesh.advance(MINUTE)
    mesh.nack(*mesh.receive(box), code="other", reason="gave up", stack="at line 2")
    (dead,) = mesh.letters
    assert (dead.mailbox, dead.sequence, dead.envelope.content) == (box, receipt.sequence, b"body")
    assert (dead.at, dead.accepted_at, dead.reason) == (mesh.now, accepted_at, "retries_exhausted")
    assert (dead.attempts, dead.redrives, dead.status, dead.code) == (2, 0, "pending", "other")
    assert [(f.attempt, f.code, f.reason, f.stack) for f in dead.failures] == [
        (1, "rate_limited", "slow down", "at line 1"),
        (2, "other", "gave up", "at line 2"),
    ]


def test_a_letter_is_named_by_its_mailbox_and_the_event_it_died_in() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.die(box, "m")
    sequence = mesh.kernel.state.sequence - 1
    assert isinstance(mesh.records[-1], DeadLettered)
    assert mesh.letters[0].dead_sequence == sequence
    assert mesh.kernel.state.letters.find(box, sequence) == mesh.letters[0]


def test_a_redrive_keeps_the_whole_envelope() -> None:
    mesh = Driver()
    box = mesh.agent()
    fields = whole_envelope()
    assert set(fields) | {"id", "sender"} == set(Envelope.__struct_fields__)
    mesh.send(box, "m", **fields)
    mesh.advance(SECOND)
    sent = mesh.entry(box, "m").envelope
    mesh.die(box, "m")
    mesh.redrive(*mesh.letters)
    mesh.restart()
    (lease,) = mesh.receive(box)
    assert lease.envelope == sent


def test_a_redriven_message_starts_with_no_attempts_and_is_due_now() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=0)
    mesh.send(box, "m", delay_ms=SECOND)
    mesh.advance(SECOND)
    mesh.nack(*mesh.receive(box))
    (sequence,) = mesh.redrive(*mesh.letters)
    (lease,) = mesh.receive(box)
    assert (lease.attempt, lease.sequence, mesh.entry(box, "m").redrives) == (1, sequence, 1)
    assert mesh.box(box).counters.redriven == 1


def test_redriving_again_answers_none_and_does_nothing() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.die(box, "m")
    (dead,) = mesh.letters
    first, second = mesh.redrive(dead, dead)
    assert first is not None
    assert second is None
    assert mesh.redrive(dead) == [None]
    mesh.restart()
    assert mesh.redrive(dead) == [None]
    assert mesh.pending(box) == ["m"]


def test_a_message_that_dies_again_is_another_letter_with_its_count() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    for _ in range(3):
        mesh.die(box, "m")
        mesh.redrive(mesh.letters[-1])
    assert [(x.redrives, x.status) for x in mesh.letters] == [
        (0, "redriven"),
        (1, "redriven"),
        (2, "redriven"),
    ]
    assert len({x.dead_sequence for x in mesh.letters}) == 3


def test_an_edited_redrive_has_a_new_id_and_names_the_old_one() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "old", "other", content=b"wrong", key="k")
    mesh.die(box, "old", "other")
    edited = msgspec.structs.replace(mesh.letters[0].envelope, id="new", content=b"right", origin="old")
    mesh.redrive(*mesh.letters, edited=[edited, None])
    first, second = mesh.receive(box, 2)
    envelope = first.envelope
    assert (envelope.id, envelope.origin, envelope.content, envelope.key) == ("new", "old", b"right", "k")
    assert (second.envelope.id, second.envelope.content) == ("other", b"wrong"), "left as it was"
    assert [letter.redriven_as for letter in mesh.letters] == ["new", ""]
    mesh.restart_from_snapshot()
    assert [letter.redriven_as for letter in mesh.letters] == ["new", ""]


@pytest.mark.parametrize("edited", [[None], ["text", None], [b"", None], [lambda old: old] * 2])
def test_a_redrive_takes_one_message_or_none_for_each_letter(edited: list[Any]) -> None:
    with pytest.raises(InvalidEnvelope):
        Redrive([("default/a", 1), ("default/a", 2)], None, edited)


def test_a_redrive_elsewhere() -> None:
    mesh = Driver()
    box, other = mesh.agent("a"), mesh.agent("b")
    mesh.send(box, "m")
    mesh.die(box, "m")
    mesh.redrive(*mesh.letters, to=other)
    assert (mesh.pending(box), mesh.pending(other)) == ([], ["m"])
    assert not mesh.send(other, "m")[0].duplicate, "a redrive is outside dedup"


def test_a_redrive_is_all_or_none() -> None:
    mesh = Driver()
    box = mesh.agent(capacity=2)
    mesh.send(box, "1", "2")
    mesh.die(box, "1", "2")
    mesh.send(box, "3")
    with pytest.raises(MailboxFull, match="no room for 2"):
        mesh.redrive(*mesh.letters)
    with pytest.raises(UnknownRecipient):
        mesh.redrive(*mesh.letters, to="default/nobody")
    assert mesh.pending(box) == ["3"]
    assert mesh.kernel.state.letters.count == 2


def test_the_room_a_redrive_needs_is_that_of_the_edited_message() -> None:
    mesh = Driver()
    box = mesh.agent(capacity_bytes=10)
    mesh.send(box, "m")
    mesh.die(box, "m")
    with pytest.raises(MailboxFull):
        mesh.redrive(
            *mesh.letters, edited=[msgspec.structs.replace(mesh.letters[0].envelope, content=b"x" * 11)]
        )


def test_letters_stay_in_the_order_in_which_they_died() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", "3")
    mesh.die(box, "1", "2", "3")
    mesh.redrive(mesh.letters[0])
    assert ids_of_letters(mesh) == ["1", "2", "3"]
    mesh.restart_from_snapshot()
    assert ids_of_letters(mesh) == ["1", "2", "3"]


def ids_of_letters(mesh: Driver) -> list[str]:
    return [letter.envelope.id for letter in mesh.letters]


def test_letters_come_in_the_same_order_from_a_snapshot_after_a_purge() -> None:
    mesh = Driver()
    a, b = mesh.agent("a"), mesh.agent("b")
    for box, id in ((a, "purged"), (b, "1"), (a, "2")):
        mesh.send(box, id)
        mesh.die(box, id)
        if id == "purged":
            mesh.do(PurgeDeadLetters([(a, mesh.letters[0].dead_sequence)]))
    live = ids_of_letters(mesh)
    mesh.restart_from_snapshot()
    assert ids_of_letters(mesh) == live


def test_a_purge_removes_letters_for_good_and_counts_each_once() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2")
    mesh.die(box, "1", "2")
    first, second = [(box, letter.dead_sequence) for letter in mesh.letters]
    assert mesh.do(PurgeDeadLetters([first, first])).result == 1
    with pytest.raises(NotFound):
        mesh.do(PurgeDeadLetters([first, second]))
    assert ids_of_letters(mesh) == ["2"]
    assert mesh.kernel.state.letters.count == mesh.kernel.state.letters.of(box).pending == 1


def test_a_letter_that_is_not_there_is_not_found() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.die(box, "m")
    (dead,) = mesh.letters
    mesh.do(PurgeDeadLetters([(box, dead.dead_sequence)]))
    with pytest.raises(NotFound, match=str(dead.dead_sequence)):
        mesh.redrive(dead)


def test_the_letters_of_a_subscription_outlive_it() -> None:
    mesh = Driver()
    box, agent = mesh.subscription("t"), mesh.agent()
    mesh.publish("t", "m")
    mesh.die(box, "m")
    mesh.do(Unsubscribe(box))
    with pytest.raises(UnknownRecipient):
        mesh.redrive(*mesh.letters)
    mesh.redrive(*mesh.letters, to=agent)
    assert ids(mesh.receive(agent)) == ["m"]


def test_a_dead_letter_that_is_sent_anew_is_no_conflict_with_itself() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.die(box, "m")
    with pytest.raises(Conflict):
        mesh.send(box, "m", content=b"other")
    assert mesh.send(box, "m")[0].duplicate
