"""Everything that is kept counts: against its mailbox, and against whoever pays for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relaymesh.errors import DeadLettersFull, InvalidValue, MailboxFull, NotFound, OverBudget
from relaymesh.kernel.charges import EXPECTATION_BYTES, MAILBOX_BYTES, MESSAGE_BYTES
from relaymesh.kernel.commands import (
    Expect,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    RegisterAgent,
    Send,
    Settle,
    Subscribe,
    Unexpect,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.expectation import EXPECTATIONS_MAX
from relaymesh.kernel.records import FAILURE_BYTES, FAILURES_MAX, DeadLettersPurged
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.subscriptions import SUBSCRIPTIONS_MAX
from tests.kernel.checker import check
from tests.kernel.driver import HOUR, Driver, letter, names

SENDER = "default/sender"


@pytest.fixture
def mesh() -> Iterator[Driver]:
    """What is charged at the end is counted again, also after a restart from either."""
    mesh = Driver()
    yield mesh
    check(mesh.kernel.state)
    mesh.restart()
    check(mesh.kernel.state)
    mesh.restart_from_snapshot()
    check(mesh.kernel.state)


def kept(mesh: Driver, payer: str = SENDER) -> int:
    return mesh.kernel.state.charges.of(payer)


def purge(mesh: Driver, *letters: DeadLetter) -> None:
    mesh.do(PurgeDeadLetters([(each.mailbox, each.dead_sequence) for each in letters]))


# -- mailboxes


def test_unknown_fields_count_for_a_mailbox_as_content_does(mesh: Driver) -> None:
    box = mesh.agent(capacity_bytes=1_000)
    mesh.send(box, "1", content=b"x" * 100, extra=b"e" * 700)
    assert mesh.box(box).bytes == 800
    with pytest.raises(MailboxFull, match="800 of 1000 bytes"):
        mesh.send(box, "2", extra=b"e" * 200)
    mesh.send(box, *names("parcel", 3), content=b"x" * 10, extra=b"e" * 50)
    assert mesh.box(box).bytes == 800 + 3 * 60


def test_what_failed_counts_for_the_mailbox_until_the_message_is_settled(mesh: Driver) -> None:
    box = mesh.agent(capacity_bytes=1_000, max_retries=9, backoff_ms_base=0)
    mesh.send(box, "m", content=b"x" * 100)
    (lease,) = mesh.receive(box)
    mesh.nack(lease, code="busy", reason="é" * 100, stack="s" * 300)
    assert mesh.box(box).bytes == 100 + FAILURE_BYTES + len("busy") + 200 + 300
    with pytest.raises(MailboxFull):
        mesh.send(box, "n", content=b"x" * 400)
    (lease,) = mesh.receive(box)
    mesh.ack(lease)
    assert mesh.box(box).bytes == 0


def test_of_many_failures_the_first_and_the_last_are_kept_and_their_attempts_tell_which(mesh: Driver) -> None:
    box = mesh.agent(max_retries=100, backoff_ms_base=0, breaker=False)
    mesh.send(box, "m")
    for _ in range(40):
        (lease,) = mesh.receive(box)
        mesh.nack(lease, delay_ms=0)
    failures = mesh.entry(box, "m").failures or []
    assert len(failures) == FAILURES_MAX
    assert [failure.attempt for failure in failures] == [1, *range(10, 41)]
    assert mesh.box(box).bytes == 1 + FAILURES_MAX * (FAILURE_BYTES + len("other"))


# -- dead letters


def test_a_mailbox_with_too_many_dead_letters_takes_no_sends_until_they_are_dealt_with(mesh: Driver) -> None:
    box, other = mesh.agent(dead_letters_max=2), mesh.agent("other")
    for name in ("1", "2"):
        mesh.send(box, name)
        mesh.die(box, name)
    with pytest.raises(DeadLettersFull, match="2, or") as caught:
        mesh.send(box, "3")
    assert mesh.step.records == []
    assert "relaymesh dlq list --receiver a" in caught.value.hint
    assert "redrive" in caught.value.hint
    assert "purge" in caught.value.hint
    with pytest.raises(DeadLettersFull):
        mesh.do(Send([(other, [letter("4")]), (box, [letter("4")])]))
    mesh.send(other, "5")
    purge(mesh, mesh.letters[0])
    mesh.send(box, "3")


def test_dead_letters_are_bounded_by_bytes_too_with_what_failed(mesh: Driver) -> None:
    box = mesh.agent(dead_letter_bytes_max=1_000)
    mesh.send(box, "1", content=b"x" * 100)
    (lease,) = mesh.receive(box)
    mesh.nack(lease, code="fatal", stack="s" * 1_000)
    shelf = mesh.kernel.state.letters.of(box)
    assert shelf.pending_bytes == 100 + FAILURE_BYTES + len("fatal") + 1_000
    with pytest.raises(DeadLettersFull):
        mesh.send(box, "2")


def test_a_redriven_letter_frees_its_place_and_is_forgotten_when_there_is_no_room_for_it(
    mesh: Driver,
) -> None:
    box = mesh.agent(dead_letters_max=2)
    mesh.send(box, "1", "2")
    mesh.die(box, "1", "2")
    first, second = mesh.letters
    mesh.redrive(first)
    assert [each.status for each in mesh.letters] == ["redriven", "pending"]
    assert mesh.redrive(first) == [None], "it is still there, and done"
    mesh.send(box, "3")
    mesh.die(box, "1", "3")
    assert [each.dead_sequences for each in mesh.records if isinstance(each, DeadLettersPurged)] == [
        [first.dead_sequence]
    ]
    assert [(each.envelope.id, each.status) for each in mesh.letters] == [
        ("2", "pending"),
        ("1", "pending"),
        ("3", "pending"),
    ], "a burial is never refused"
    mesh.redrive(*mesh.letters)
    assert [each.status for each in mesh.letters] == ["redriven"] * 2
    with pytest.raises(NotFound):
        mesh.redrive(second)
    mesh.send(box, "4")


def test_settles_burials_and_replays_are_never_refused(mesh: Driver) -> None:
    box = mesh.agent(dead_letters_max=1, capacity=9)
    mesh.send(box, *names("m", 5), requires_ack=True, ttl_ms=HOUR)
    leases = mesh.receive(box, 4)
    for lease in leases[:3]:
        mesh.nack(lease, code="fatal")
    mesh.ack(leases[3])
    mesh.advance(2 * HOUR)
    assert len(mesh.letters) == 4
    mesh.restart()
    assert len(mesh.letters) == 4
    mesh.redrive(*mesh.letters[:2])
    assert len(mesh.pending(box)) == 2


# -- budgets


def test_a_sender_pays_for_its_messages_until_they_are_settled_wherever_they_are(mesh: Driver) -> None:
    a, b = mesh.agent("a"), mesh.agent("b", max_retries=0)
    mesh.send(a, *names("parcel", 4), content=b"x" * 10)
    mesh.send(b, "one", content=b"x" * 20, extra=b"e" * 5)
    mesh.send(b, "late", delay_ms=HOUR)
    assert kept(mesh) == 6 * MESSAGE_BYTES + 40 + 25 + 1
    mesh.ack(*mesh.receive(a, 4))
    assert kept(mesh) == 2 * MESSAGE_BYTES + 26
    mesh.die(b, "one")
    failed = FAILURE_BYTES + len("fatal")
    assert kept(mesh) == 2 * MESSAGE_BYTES + 26 + failed, "as a dead letter it still does"
    mesh.redrive(mesh.letters[0])
    assert kept(mesh) == 3 * MESSAGE_BYTES + 26 + 25 + failed, "and as both, once redriven"
    purge(mesh, mesh.letters[0])
    assert kept(mesh) == 2 * MESSAGE_BYTES + 26


def test_a_send_over_budget_is_refused_whole_and_an_ack_is_not(mesh: Driver) -> None:
    box = mesh.agent()
    mesh.do(Send([(box, [letter("1", b"x" * 400)])], budget=2_000))
    for twice in (Send([(box, [letter("2", b"x" * 600)])], budget=2_000),
                  Send([(box, [letter("2")]), (box, [letter("3", b"x" * 100)])], budget=2_000)):  # fmt: skip
        with pytest.raises(OverBudget, match=r"keeps 912 bytes for default/sender.* budget is 2000"):
            mesh.do(twice)
        assert mesh.step.records == []
    mesh.do(Send([(box, [letter("4", sender="default/other")])], budget=2_000))
    mesh.ack(*mesh.receive(box))
    mesh.do(Send([(box, [letter("2", b"x" * 600)])], budget=2_000))


def test_a_known_message_sent_again_costs_nothing(mesh: Driver) -> None:
    box = mesh.agent()
    send = Send([(box, [letter("1", b"x" * 400)])], budget=1_000)
    mesh.do(send)
    assert mesh.do(send).result[0].duplicate


def test_an_answer_over_budget_refuses_the_settle_whole_and_the_plain_ack_works(mesh: Driver) -> None:
    asker, box = mesh.agent("asker"), mesh.agent("b")
    mesh.send(box, "question", sender=asker)
    (lease,) = mesh.receive(box)
    with pytest.raises(OverBudget):
        mesh.do(Settle(lease.token, [(asker, [letter("answer", sender=box)])], budget=100))
    assert mesh.pending(asker) == []
    assert mesh.ack(lease) == []


def test_notices_are_never_refused_and_are_paid_for_by_the_mailbox_they_lie_in(mesh: Driver) -> None:
    sender, box = mesh.agent("sender", capacity=1), mesh.agent("b")
    mesh.send(sender, "full")
    mesh.send(box, *names("m", 3), requires_ack=True, sender=sender)
    before = kept(mesh, box)
    mesh.ack(*mesh.receive(box, 3))
    assert len(mesh.pending(sender)) == 4
    assert kept(mesh, box) == before
    assert kept(mesh, sender) > MAILBOX_BYTES + 4 * MESSAGE_BYTES


def test_a_notice_for_another_mailbox_needs_room_there(mesh: Driver) -> None:
    victim, box = mesh.agent("victim", capacity=1), mesh.agent("b")
    mesh.send(box, *names("m", 3), requires_ack=True, reply_to=victim)
    mesh.ack(*mesh.receive(box, 3))
    assert len(mesh.pending(victim)) == 1


def test_a_publish_is_charged_once_a_target(mesh: Driver) -> None:
    for name in ("a", "b", "c"):
        mesh.subscription("t", name)
    with pytest.raises(OverBudget):
        mesh.do(Publish("default/t", [letter("1")], budget=3 * (MESSAGE_BYTES + 1) - 1))
    mesh.do(Publish("default/t", [letter("1")], budget=3 * (MESSAGE_BYTES + 1)))
    assert kept(mesh) == 3 * (MESSAGE_BYTES + 1)


def test_the_copies_in_an_agents_subscription_cost_its_owner_and_never_the_publisher(mesh: Driver) -> None:
    owner, account = "default/greedy", "subscriptions of default/greedy"
    mesh.do(Subscribe("default/**", "default/**:greedy", MailboxSettings(), owner))
    mesh.do(Publish("default/t", [letter("1", b"x" * 100)], budget=1))
    assert kept(mesh) == kept(mesh, owner) == 0
    assert kept(mesh, account) == MAILBOX_BYTES + MESSAGE_BYTES + 100
    mesh.die("default/**:greedy", "1")
    mesh.restart()
    assert kept(mesh, account) == MAILBOX_BYTES + MESSAGE_BYTES + 100 + FAILURE_BYTES + len("fatal")


def test_who_pays_follows_a_subscription_that_changes_hands(mesh: Driver) -> None:
    box = mesh.subscription("t")
    mesh.publish("t", "1", "2")
    assert kept(mesh) == 2 * (MESSAGE_BYTES + 1)
    mesh.do(Subscribe("default/t", box, MailboxSettings(), "default/s"))
    assert kept(mesh) == 0
    assert kept(mesh, "subscriptions of default/s") == MAILBOX_BYTES + 2 * (MESSAGE_BYTES + 1)


def test_subscriptions_are_charged_and_bounded_in_number(mesh: Driver) -> None:
    mine = [Subscribe(f"default/t{i}", f"default/t{i}:me", MailboxSettings(), "default/me", 10_000)
            for i in range(3)]  # fmt: skip
    mesh.do(mine[0])
    mesh.do(mine[1])
    with pytest.raises(OverBudget):
        mesh.do(mine[2])
    mesh.do(mine[0])
    for i in range(2, SUBSCRIPTIONS_MAX):
        mesh.do(Subscribe(f"default/t{i}", f"default/t{i}:me", MailboxSettings(), "default/me"))
    with pytest.raises(OverBudget, match="256 subscriptions"):
        mesh.do(Subscribe("default/more", "default/more:me", MailboxSettings(), "default/me"))


def test_a_mailbox_is_charged_to_its_own_name(mesh: Driver) -> None:
    with pytest.raises(OverBudget):
        mesh.do(OpenMailbox("default/a", budget=MAILBOX_BYTES - 1))
    with pytest.raises(OverBudget):
        mesh.do(RegisterAgent("default/a", budget=MAILBOX_BYTES - 1))
    mesh.do(OpenMailbox("default/a", budget=MAILBOX_BYTES))
    mesh.do(RegisterAgent("default/a", budget=1))
    assert kept(mesh, "default/a") == MAILBOX_BYTES


def test_expectations_are_charged_and_bounded(mesh: Driver) -> None:
    box = mesh.agent()
    cost = EXPECTATION_BYTES + 4 * len("question")
    with pytest.raises(OverBudget):
        mesh.do(Expect(box, "question", budget=MAILBOX_BYTES + cost - 1))
    mesh.do(Expect(box, "question", budget=MAILBOX_BYTES + cost))
    mesh.do(Expect(box, "question", budget=1))
    assert kept(mesh, box) == MAILBOX_BYTES + cost
    mesh.do(Unexpect(box, "question"))
    mesh.do(Unexpect(box, "question"))
    assert kept(mesh, box) == MAILBOX_BYTES
    for i in range(EXPECTATIONS_MAX):
        mesh.do(Expect(box, str(i)))
    with pytest.raises(OverBudget, match="10000 answers"):
        mesh.do(Expect(box, "more"))
    mesh.restart()
    assert kept(mesh, box) == MAILBOX_BYTES, "a restart forgets who waited"


@pytest.mark.parametrize("id", ["", "q" * 513])
def test_an_expected_id_has_the_length_that_a_messages_may_have(mesh: Driver, id: str) -> None:
    box = mesh.agent()
    with pytest.raises(InvalidValue, match="1 to 512"):
        Expect(box, id)
    mesh.do(Expect(box, "q" * 512))


def test_messages_of_several_senders_in_one_parcel_are_charged_to_each(mesh: Driver) -> None:
    box = mesh.agent()
    mesh.do(Send([(box, [letter(str(i), b"x" * 10, sender=f"default/s{i % 2}") for i in range(6)])]))
    assert kept(mesh, "default/s0") == kept(mesh, "default/s1") == 3 * (MESSAGE_BYTES + 10)
    mesh.ack(*mesh.receive(box, 6))
    assert kept(mesh, "default/s0") == 0
