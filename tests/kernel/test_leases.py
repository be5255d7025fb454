"""Leases (DESIGN promises 4 to 6): how long, who may settle, and what a lost one is worth."""

from __future__ import annotations

import pytest

from relaymesh.errors import InvalidSettings, LeaseLost
from relaymesh.kernel.commands import Complete, Extend, Nack, Release, Settle, Start, Stop
from relaymesh.kernel.token import format_token, parse_token
from tests.kernel.driver import MINUTE, SECOND, Driver, ids, letter


@pytest.mark.parametrize(("priority", "seconds"), [(1, 5), (2, 10), (3, 30), (4, 60), (5, 60)])
def test_a_lease_lasts_5_10_30_60_60_seconds_by_priority(priority: int, seconds: int) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", priority=priority)
    (lease,) = mesh.receive(box)
    assert lease.deadline == mesh.now + seconds * SECOND
    mesh.advance(seconds * SECOND - 1)
    assert lease.token in mesh.kernel.state.leases
    mesh.advance(1)
    assert lease.token not in mesh.kernel.state.leases


def test_a_mailbox_may_set_its_lease_and_a_receiver_its_own() -> None:
    mesh = Driver()
    box = mesh.agent(lease_ms=7 * SECOND)
    mesh.send(box, "1", "2")
    assert mesh.receive(box)[0].deadline == mesh.now + 7 * SECOND
    assert mesh.receive(box, lease_ms=SECOND)[0].deadline == mesh.now + SECOND


def test_a_settle_with_a_stale_token_is_refused() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.advance(30 * SECOND)
    assert mesh.ack(lease) == [lease.token]
    for command in (Nack(lease.token), Extend(lease.token, 1), Settle(lease.token, [(box, [letter()])])):
        with pytest.raises(LeaseLost, match="no longer held"):
            mesh.do(command)
    assert mesh.pending(box) == ["m"]


def test_an_ack_twice_is_stale_the_second_time() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    assert mesh.ack(lease, lease) == []
    assert mesh.ack(lease) == [lease.token]


def test_the_old_holder_cannot_settle_what_the_new_one_holds() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (old,) = mesh.receive(box, 1, "old")
    mesh.advance(30 * SECOND)
    mesh.advance(SECOND)
    (new,) = mesh.receive(box, 1, "new")
    assert mesh.ack(old) == [old.token]
    assert mesh.ack(new) == []


def test_a_lease_that_ran_out_burned_its_attempt() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.receive(box)
    mesh.advance(30 * SECOND)
    mesh.advance(SECOND)
    (lease,) = mesh.receive(box)
    assert lease.attempt == 2
    (failure,) = mesh.entry(box, "m").failures or []
    assert failure.code == "timeout"


def test_extend_gives_a_later_deadline_and_writes_no_record() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.advance(29 * SECOND)
    step = mesh.do(Extend(lease.token, 40 * SECOND))
    assert step.records == []
    assert step.result == mesh.now + 40 * SECOND
    mesh.advance(39 * SECOND)
    assert mesh.ack(lease) == []


def test_extend_never_shortens_a_lease() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    before = lease.deadline
    assert mesh.do(Extend(lease.token, 1)).result == before


def test_an_extended_lease_runs_out_at_its_new_deadline() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    deadline = mesh.do(Extend(lease.token, MINUTE)).result
    mesh.advance(MINUTE - 1)
    assert mesh.kernel.next_event_at <= deadline
    mesh.advance(1)
    assert mesh.ack(lease) == [lease.token]


def test_a_grant_nobody_received_burns_nothing() -> None:
    mesh = Driver()
    box = mesh.agent(max_retries=0)
    mesh.send(box, "m")
    for _ in range(5):
        (lease,) = mesh.receive(box)
        assert lease.attempt == 1
        mesh.do(Release([lease.token]))
    assert mesh.pending(box) == ["m"]
    assert mesh.entry(box, "m").attempts == 0


def test_releasing_the_same_delivery_twice_returns_it_once() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", key="k")
    run = mesh.receive(box, 2)
    mesh.release(*run, *run)
    assert [mesh.entry(box, id).attempts for id in ("1", "2")] == [0, 0]
    mesh.release(*run)
    assert ids(mesh.receive(box, 5)) == ["1", "2"]


def test_tokens_rise_and_carry_the_epoch() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", "3")
    tokens = [lease.token for lease in mesh.receive(box, 2)]
    mesh.restart()
    tokens += [lease.token for lease in mesh.receive(box, 3)]
    assert tokens == sorted(set(tokens))
    assert [format_token(token) for token in tokens[1:3]] == ["0.1.2", "0.2.1"]


def test_a_grant_lost_with_the_power_never_has_its_token_issued_again() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lost,) = mesh.receive(box)
    mesh.restart(losing=1)
    (again,) = mesh.receive(box)
    assert again.token > lost.token
    assert again.attempt == 1, "the journal never heard of the first"


def test_an_epoch_that_does_not_rise_is_refused() -> None:
    mesh = Driver()
    with pytest.raises(InvalidSettings, match="does not follow"):
        mesh.do(Start(1))


@pytest.mark.parametrize("text", ["", "1.2", "0.1.2.3", "0.x.1", "0.-1.2", "0.1.²"])
def test_a_malformed_token_is_none(text: str) -> None:
    assert parse_token(text) is None


def test_a_token_is_partition_epoch_and_counter() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    assert format_token(lease.token, 7) == "7.1.1"
    assert parse_token("7.1.1") == lease.token


def test_work_finished_after_its_lease_was_lost_is_acked_unseen_at_the_next_delivery() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent()
    mesh.send(box, "m", sender=sender, requires_ack=True)
    (lease,) = mesh.receive(box)
    mesh.advance(30 * SECOND)
    assert mesh.do(Complete(box, lease.sequence)).result is True
    assert mesh.do(Complete(box, lease.sequence)).result is False
    mesh.restart()
    mesh.advance(2 * SECOND)
    assert mesh.receive(box) == []
    assert mesh.step.freed
    assert mesh.box(box).counters.acked == 1
    (notice,) = mesh.receive(sender)
    assert notice.envelope.type == "ack"


def test_restart_voids_the_leases_of_this_process_and_counts_the_attempt() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2")
    mesh.receive(box, 2)
    mesh.restart()
    again = mesh.receive(box, 2)
    assert [(lease.envelope.id, lease.attempt) for lease in again] == [("1", 2), ("2", 2)]


def test_restart_counts_the_attempt_of_a_run_s_first_only() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", "3", key="k")
    mesh.receive(box, 3)
    mesh.restart()
    again = mesh.receive(box, 3)
    assert [(lease.envelope.id, lease.attempt) for lease in again] == [("1", 2), ("2", 1), ("3", 1)]


def test_a_poison_message_that_kills_its_worker_is_counted_across_restarts() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "poison")
    for attempt in (1, 2, 3, 4):
        (lease,) = mesh.receive(box)
        assert lease.attempt == attempt
        mesh.restart()
    assert mesh.receive(box) == []
    (dead,) = mesh.letters
    assert (dead.reason, dead.attempts, len(dead.failures)) == ("retries_exhausted", 4, 4)


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
def test_a_remote_holder_keeps_its_token_and_one_full_lease_from_start_up(how: str) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box, remote=True, lease_ms=20 * SECOND)
    mesh.now += 19 * SECOND
    getattr(mesh, how)()
    mesh.advance(20 * SECOND - 1)
    assert mesh.ack(lease) == []


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
def test_a_remote_holder_that_stays_silent_after_a_restart_loses_its_lease(how: str) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box, remote=True)
    mesh.now += MINUTE
    getattr(mesh, how)()
    mesh.advance(30 * SECOND)
    assert mesh.ack(lease) == [lease.token]
    mesh.advance(SECOND)
    assert mesh.receive(box)[0].attempt == 2


def test_a_graceful_stop_returns_deliveries_unburned_and_serves_nobody() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.receive(box, 1, "one")
    mesh.wait(box, 1, "two")
    assert mesh.do(Stop()).delivered is None
    assert mesh.kernel.state.leases == {}
    mesh.restart()
    (again,) = mesh.receive(box)
    assert again.attempt == 1


def test_a_graceful_stop_leaves_remote_holders_their_leases() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box, remote=True)
    mesh.do(Stop())
    mesh.restart()
    assert mesh.ack(lease) == []


def test_a_paused_reclaim_lets_holders_speak_up_first() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.now += MINUTE
    mesh.kernel.pause_reclaim(mesh.now + 5 * SECOND)
    assert mesh.kernel.next_event_at == mesh.now + 5 * SECOND
    mesh.advance(4 * SECOND)
    mesh.do(Extend(lease.token, MINUTE))
    mesh.advance(10 * SECOND)
    assert mesh.ack(lease) == []


def test_every_delivery_of_an_at_most_once_batch_is_settled_whatever_its_priority() -> None:
    mesh = Driver()
    box = mesh.agent(delivery_semantics="at_most_once")
    mesh.send(box, "urgent", priority=1)
    mesh.send(box, "plain", priority=3)
    leases = mesh.receive(box, 2)
    assert len({lease.deadline for lease in leases}) == 2
    assert all(lease.settled for lease in leases)
