"""A full mailbox answers at once with an error that names it (DESIGN promise 10)."""

from __future__ import annotations

import pytest

from relaymesh.errors import DeadLettersFull, InvalidSettings, MailboxFull, UnknownRecipient
from relaymesh.kernel.commands import Send
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import SECOND, Driver, letter


def test_a_mailbox_holds_its_capacity_in_messages() -> None:
    mesh = Driver()
    box = mesh.agent(capacity=2)
    mesh.send(box, "1", "2")
    with pytest.raises(MailboxFull, match=r"default/a is full: it holds 2 of 2 messages"):
        mesh.send(box, "3")
    assert mesh.step.error is not None
    assert mesh.step.error.retryable


def test_a_mailbox_holds_its_capacity_in_bytes() -> None:
    mesh = Driver()
    box = mesh.agent(capacity_bytes=10)
    mesh.send(box, "1", content=b"x" * 6)
    with pytest.raises(MailboxFull, match=r"6 of 10 bytes"):
        mesh.send(box, "2", content=b"x" * 5)
    mesh.send(box, "3", content=b"x" * 4)


def test_delayed_and_leased_messages_take_room_until_they_are_settled() -> None:
    mesh = Driver()
    box = mesh.agent(capacity=2)
    mesh.send(box, "delayed", delay_ms=SECOND)
    mesh.send(box, "leased")
    (lease,) = mesh.receive(box)
    with pytest.raises(MailboxFull):
        mesh.send(box, "3")
    mesh.ack(lease)
    assert mesh.step.freed, "senders that wait for room are told"
    mesh.send(box, "3")


def test_a_send_is_admitted_whole_or_not_at_all() -> None:
    mesh = Driver()
    roomy, tight = mesh.agent("a"), mesh.agent("b", capacity=3)
    groups = [
        (roomy, [letter("1")]),
        (tight, [letter("2"), letter("3")]),
        (tight, [letter("4"), letter("5")]),
    ]
    with pytest.raises(MailboxFull):
        mesh.do(Send(groups))
    assert mesh.step.records == []
    assert (mesh.pending(roomy), mesh.pending(tight)) == ([], [])


@pytest.mark.parametrize("groups", [[6], [4, 2], [1, 1, 4], [3, 3]])
def test_a_refusal_does_not_depend_on_how_a_send_is_grouped(groups: list[int]) -> None:
    """Both are full, the mailbox for all six and its dead letters: `MAILBOX_FULL`, which names all six."""
    mesh = Driver()
    box = mesh.agent(capacity=9, dead_letters_max=2, dead_letter_bytes_max=300, max_retries=0)
    mesh.send(box, "1", "2", "3", "4", "5", "6")
    for lease in mesh.receive(box, 2):
        mesh.nack(lease, code="fatal")
    ids = iter("abcdef")
    send = Send([(box, [letter(next(ids)) for _ in range(size)]) for size in groups])
    with pytest.raises(MailboxFull, match=r"it holds 4 of 9 messages .* 6 more were sent"):
        mesh.do(send)
    with pytest.raises(DeadLettersFull):
        mesh.send(box, "7")


def test_a_duplicate_needs_no_room() -> None:
    mesh = Driver()
    box = mesh.agent(capacity=1)
    mesh.send(box, "m")
    assert mesh.send(box, "m")[0].duplicate


def test_sending_to_nobody_is_an_error() -> None:
    mesh = Driver()
    box = mesh.agent()
    with pytest.raises(UnknownRecipient, match="'nobody'"):
        mesh.do(Send([(box, [letter("1")]), ("default/nobody", [letter("2")])]))
    assert mesh.pending(box) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": 0},
        {"capacity_bytes": 0},
        {"max_consecutive_high": 0},
        {"lease_ms": -1},
        {"max_retries": -1},
        {"max_deferrals": -1},
        {"backoff_ms_base": -1},
        {"backoff_ms_base": 2_000, "backoff_ms_cap": 1_000},
        {"backoff_jitter": 1.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(settings)).replace("base", "cap|backoff_ms_base")):
        MailboxSettings(**settings)  # type: ignore[arg-type]
