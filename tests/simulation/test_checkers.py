"""Every invariant has a story that breaks it, and the checkers name that invariant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaymesh.testing.simulation.verdict import Violation
from tests.simulation.stories import BOX, NEWS, Story


def broken(story: Story) -> str:
    with pytest.raises(Violation) as found:
        story.check()
    assert found.value.seen
    return found.value.invariant


def test_a_story_in_which_nothing_is_wrong_passes() -> None:
    story = Story()
    first = story.accept("m1")
    delivery = story.deliver(first, id="m1")
    story.nack(delivery)
    story.finish(first, id="m1", attempt=2)
    second = story.accept("m2", key="k")
    held = story.deliver(second, id="m2", remote=True)
    story.wait(10)
    story.start()
    story.ack(held)
    story.check()


def test_a_receipted_message_that_the_journal_has_not_is_lost() -> None:
    story = Story()
    story.accept("m1", journal=False)
    assert broken(story) == "no_receipted_loss"


def test_a_receipted_message_whose_content_changed_is_lost() -> None:
    story = Story()
    sequence = story.record(5, 1, BOX, [story.envelope(story.message("m", b"other"))])
    story.asked(story.message("m", b"x"), answer="done", sequence=sequence)
    assert broken(story) == "no_receipted_loss"


def test_an_ack_that_nobody_asked_for_is_a_loss() -> None:
    story = Story()
    sequence = story.accept()
    story.deliver(sequence)
    story.record(8, 1, BOX, [sequence])
    assert broken(story) == "no_receipted_loss"


def test_a_receipt_that_leaves_before_its_sync_is_seen() -> None:
    story = Story()
    story.history.early.append("the receipt of m")
    assert broken(story) == "synced_before_leaving"


def test_a_delivery_of_what_nobody_sent_is_a_phantom() -> None:
    story = Story()
    sequence = story.accept("m")
    story.hand(sequence, story.grant(sequence), id="other")
    assert broken(story) == "no_phantom"


def test_a_delivery_with_other_bytes_is_a_phantom() -> None:
    story = Story()
    sequence = story.accept("m")
    story.hand(sequence, story.grant(sequence), content=b"y")
    assert broken(story) == "no_phantom"


def test_a_delivery_of_what_was_refused_is_a_phantom() -> None:
    story = Story()
    sequence = story.record(5, 1, BOX, [story.envelope(story.message("m"))])
    story.asked(story.message("m"), answer="refused", code="MAILBOX_FULL")
    story.deliver(sequence)
    assert broken(story) == "no_phantom"


def lane_passed_over(story: Story) -> None:
    story.accept("m1", key="k")
    story.deliver(story.accept("m2", key="k"), id="m2")


def lane_out_twice(story: Story) -> None:
    story.deliver(story.accept("m1", key="k"), id="m1")
    story.deliver(story.accept("m2", key="k"), id="m2")


def retry_overtaken(story: Story) -> None:
    first, second = story.accept("m1", key="k"), story.accept("m2", key="k")
    story.nack(story.deliver(first, id="m1"))
    story.deliver(second, id="m2")


@pytest.mark.parametrize("tell", [lane_passed_over, lane_out_twice, retry_overtaken])
def test_a_lane_keeps_its_order_also_across_retries(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert broken(story) == "lane_order"


def test_a_halted_lane_gives_nothing() -> None:
    story = Story(halt_on_dead_letter=True)
    first, second = story.accept("m1", key="k"), story.accept("m2", key="k")
    story.deliver(first, id="m1")
    story.die(first, "not_retryable")
    story.deliver(second, id="m2")
    assert broken(story) == "lane_order"


def test_equal_due_times_go_in_send_order() -> None:
    story = Story()
    story.accept("m1", delay_ms=40)
    second = story.accept("m2", delay_ms=40)
    story.wait(40)
    story.deliver(second, id="m2")
    assert broken(story) == "send_order"


def test_nothing_is_acked_that_nobody_ever_got() -> None:
    story = Story()
    sequence = story.accept()
    story.grant(sequence)
    story.record(8, 1, BOX, [sequence])
    story.settled(story.hand(sequence, story.token), "ack")
    story.history.deliveries.clear()
    assert broken(story) == "at_least_one_attempt"


def test_a_message_that_never_ends_makes_no_progress() -> None:
    story = Story()
    story.accept()
    assert broken(story) == "progress"


def test_a_retry_beyond_the_limit_is_one_too_many() -> None:
    story = Story(max_retries=0)
    story.nack(story.deliver(story.accept()))
    assert broken(story) == "attempts_bounded"


def test_more_deliveries_than_attempts_and_power_losses_are_too_many() -> None:
    """No single step is wrong here, as far as the journal goes: it lost those grants."""
    story = Story(max_retries=0)
    sequence = story.accept()
    for _ in range(2):
        story.hand(sequence, story.token + 100, attempt=1)
        story.hand(sequence, story.token + 101, attempt=2)
        story.start(after="power_loss")
    story.finish(sequence)
    assert broken(story) == "attempts_bounded"


def test_a_retry_that_burns_no_attempt_is_noticed_by_the_journal() -> None:
    story = Story()
    sequence = story.accept()
    story.nack(story.deliver(sequence))
    story.finish(sequence, attempt=1)
    assert broken(story) == "attempts_counted"


def test_a_retry_that_burns_no_attempt_is_noticed_by_the_clients() -> None:
    story = Story()
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.returned(delivery, "released")
    story.settled(delivery, "nack", result="retrying")
    story.finish(sequence, attempt=1)
    assert broken(story) == "attempts_counted"


def test_an_early_grant_is_seen_in_the_journal() -> None:
    story = Story()
    story.deliver(story.accept(delay_ms=50))
    assert broken(story) == "never_early"


def test_an_early_delivery_is_seen_by_the_clients() -> None:
    story = Story()
    message = story.message("m", delay_ms=50)
    envelope = story.envelope(story.message("m"))
    sequence = story.record(5, 1, BOX, [envelope])
    story.asked(message, answer="done", sequence=sequence, due=story.now + 50)
    story.finish(sequence)
    assert broken(story) == "never_early"


def test_a_retry_comes_not_before_the_time_it_was_put_off_to() -> None:
    story = Story()
    sequence = story.accept()
    story.nack(story.deliver(sequence), not_before=story.now + 700)
    story.finish(sequence, attempt=2)
    assert broken(story) == "never_early"


def test_an_expired_lease_waits_for_its_backoff() -> None:
    story = Story()
    delivery = story.deliver(story.accept())
    story.wait(1_000)
    story.returned(delivery, "expired", code="timeout")
    assert broken(story) == "backoff"


def test_a_lease_runs_its_whole_length() -> None:
    story = Story()
    delivery = story.deliver(story.accept())
    story.wait(999)
    story.returned(delivery, "expired", code="timeout", after=1_000)
    assert broken(story) == "lease_kept"


def test_a_good_token_is_not_refused() -> None:
    story = Story()
    delivery = story.deliver(story.accept())
    story.settled(delivery, "ack", answer="refused", code="LEASE_LOST")
    assert broken(story) == "lease_kept"


def test_an_extended_lease_is_kept() -> None:
    story = Story()
    delivery = story.deliver(story.accept())
    story.settled(delivery, "extend", deadline=delivery.deadline + 500)
    story.wait(1_000)
    story.returned(delivery, "expired", code="timeout", after=1_000)
    assert broken(story) == "lease_kept"


def test_a_remote_holder_keeps_its_token_over_a_restart() -> None:
    story = Story()
    delivery = story.deliver(story.accept(), remote=True)
    story.start()
    story.settled(delivery, "ack", answer="refused", code="LEASE_LOST")
    assert broken(story) == "remote_lease_kept"


def test_a_restart_takes_nothing_from_a_remote_holder() -> None:
    story = Story()
    delivery = story.deliver(story.accept(), remote=True)
    story.start()
    story.returned(delivery, "restart", code="timeout")
    assert broken(story) == "remote_lease_kept"


def test_an_in_process_holder_loses_its_lease_at_a_restart() -> None:
    story = Story()
    story.deliver(story.accept())
    story.start()
    assert broken(story) == "restart_voids"


def test_one_message_has_one_holder() -> None:
    story = Story()
    sequence = story.accept()
    story.deliver(sequence)
    story.deliver(sequence)
    assert broken(story) == "one_holder"


def test_a_token_is_handed_out_once() -> None:
    story = Story()
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.hand(sequence, delivery.token)
    assert broken(story) == "tokens_unique"


def test_a_token_never_goes_back() -> None:
    story = Story()
    first, second = story.accept("m1"), story.accept("m2")
    story.deliver(first, id="m1")
    story.token -= 1
    story.deliver(second, id="m2")
    assert broken(story) == "tokens_unique"


def test_epochs_rise_also_when_their_records_are_lost() -> None:
    story = Story()
    story.start()
    story.history.lives[1].epoch = 1
    assert broken(story) == "tokens_unique"


def test_an_epoch_is_used_once() -> None:
    story = Story()
    story.start(epoch=1)
    assert broken(story) == "tokens_unique"


def settled_twice(story: Story) -> None:
    sequence = story.accept()
    story.finish(sequence)
    story.record(8, 1, BOX, [sequence])


def settled_unknown(story: Story) -> None:
    story.record(8, 1, BOX, [77])


def purged_unknown(story: Story) -> None:
    story.record(13, 1, BOX, [77])


@pytest.mark.parametrize("tell", [settled_twice, settled_unknown, purged_unknown])
def test_accepted_is_acked_dropped_dead_or_pending(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert broken(story) == "conservation"


def stale_after_ack(story: Story) -> None:
    delivery = story.deliver(story.accept())
    story.ack(delivery)
    story.settled(delivery, "ack")


def stale_after_restart(story: Story) -> None:
    delivery = story.deliver(story.accept())
    story.returned(delivery)
    story.start()
    story.settled(delivery, "nack")


def stale_after_redelivery(story: Story) -> None:
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.returned(delivery)
    story.deliver(sequence, attempt=2)
    story.settled(delivery, "ack")


def stale_after_deadline(story: Story) -> None:
    delivery = story.deliver(story.accept())
    story.wait(1_000)
    story.settled(delivery, "extend")


@pytest.mark.parametrize(
    "tell", [stale_after_ack, stale_after_redelivery, stale_after_deadline, stale_after_restart]
)
def test_a_stale_token_is_refused(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert broken(story) == "stale_settle_refused"


def test_an_ack_of_what_nobody_holds_is_refused() -> None:
    story = Story()
    sequence = story.accept()
    story.record(8, 1, BOX, [sequence])
    assert broken(story) == "stale_settle_refused"


def test_a_duplicate_is_no_second_message() -> None:
    story = Story()
    story.accept("m")
    story.accept("m")
    assert broken(story) == "dedup"


def test_a_duplicate_has_the_receipt_of_the_original() -> None:
    story = Story()
    story.finish(story.accept("m1"), id="m1")
    sequence = story.accept("m2")
    story.finish(sequence, id="m2")
    story.asked(story.message("m1"), answer="done", sequence=sequence)
    assert broken(story) in ("dedup", "no_receipted_loss")


def test_a_duplicate_says_so() -> None:
    story = Story()
    sequence = story.accept()
    story.finish(sequence)
    story.asked(story.message("m"), answer="done", sequence=sequence)
    assert broken(story) == "dedup"


def test_after_the_window_an_id_may_come_again() -> None:
    story = Story()
    story.finish(story.accept("m"))
    story.wait(86_400_000)
    story.finish(story.accept("m"))
    story.check()


@pytest.mark.parametrize("content", [b"x", b"other"])
def test_other_content_is_a_conflict_and_the_same_content_is_none(content: bytes) -> None:
    story = Story()
    sequence = story.accept()
    story.finish(sequence)
    if content == b"x":
        story.asked(story.message("m", content), answer="refused", code="CONFLICT")
        assert broken(story) == "conflict"
    else:
        story.asked(story.message("m", content), answer="done", sequence=sequence, duplicate=True)
        assert broken(story) in ("conflict", "no_receipted_loss")


def test_what_was_durably_acked_stays_acked_over_a_power_loss() -> None:
    story = Story()
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.settled(delivery, "ack", durable=True)
    story.returned(delivery)
    story.start(after="power_loss")
    story.finish(sequence, attempt=2)
    assert broken(story) == "settled_stays"


def test_what_was_acked_may_come_again_after_a_power_loss_and_only_then() -> None:
    for end in ("power_loss", "kill"):
        story = Story()
        sequence = story.accept()
        delivery = story.deliver(sequence)
        story.settled(delivery, "ack")
        story.returned(delivery)
        story.start(after=end)
        story.finish(sequence, attempt=2)
        if end == "power_loss":
            story.check()
        else:
            assert broken(story) == "settled_stays"


def test_a_full_mailbox_takes_no_more() -> None:
    story = Story(capacity=1)
    story.accept("m1")
    story.accept("m2")
    assert broken(story) == "capacity"


def test_mesh_time_never_goes_back() -> None:
    story = Story()
    story.wait(-1)
    story.accept()
    assert broken(story) == "time_goes_on"


def test_a_hole_in_the_journal_is_seen() -> None:
    story = Story()
    with pytest.raises(Violation, match="journal_whole"):
        story.ledger().read(story.sequence + 1, [])


def test_an_expired_message_is_not_delivered() -> None:
    story = Story()
    sequence = story.accept(ttl_ms=50)
    story.wait(50)
    story.deliver(sequence)
    assert broken(story) == "expiry"


@pytest.mark.parametrize(
    "reason", ["ttl_expired", "retries_exhausted", "deferred_too_often", "mailbox_full", "x"]
)
def test_nothing_dies_without_its_reason(reason: str) -> None:
    story = Story()
    sequence = story.accept(ttl_ms=50)
    story.deliver(sequence)
    story.die(sequence, reason)
    assert broken(story) == "dead_for_a_reason"


def test_nothing_is_given_up_unless_somebody_said_so() -> None:
    story = Story()
    sequence = story.accept()
    story.deliver(sequence)
    story.die(sequence, "not_retryable")
    assert broken(story) == "dead_for_a_reason"


def test_a_dead_letter_is_redriven_once_and_as_it_was() -> None:
    for content, times in ((b"x", 2), (b"other", 1)):
        story = Story()
        sequence = story.accept()
        story.deliver(sequence)
        dead = story.die(sequence, "not_retryable")
        for _ in range(times):
            story.record(12, 1, BOX, dead, BOX, story.envelope(story.message("m", content)))
        assert broken(story) == "redrive_once"


def test_a_publish_reaches_every_subscriber() -> None:
    story = Story()
    message = story.message("m", target="topic:default/news.a")
    sequence = story.record(6, 1, "default/news.a", 1, [story.envelope(message)])
    story.asked(message, answer="done", sequence=sequence, targets=0)
    assert (NEWS, sequence) in story.ledger().entries
    assert broken(story) == "fan_out"


def test_at_most_once_is_never_twice() -> None:
    story = Story(delivery_semantics="at_most_once")
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.record(8, 1, BOX, [sequence])
    story.hand(sequence, delivery.token + 1)
    assert broken(story) == "at_most_once"


def test_what_is_completed_is_not_delivered_again() -> None:
    story = Story()
    sequence = story.accept()
    delivery = story.deliver(sequence)
    story.returned(delivery)
    story.settled(delivery, "complete", result="waits")
    story.wait(1)
    story.finish(sequence, attempt=2)
    assert broken(story) == "settled_stays"


def test_the_journal_knows_what_is_completed() -> None:
    story = Story()
    sequence = story.accept()
    story.record(16, 1, BOX, [sequence])
    story.deliver(sequence)
    assert broken(story) == "settled_stays"
