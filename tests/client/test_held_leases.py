"""The ledger of a client: which leases it holds, and until when, as far as it was told."""

from __future__ import annotations

import sys
from typing import Any

from relaymesh.client.held_leases import HeldLeases
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.envelope import Envelope


def came(held: HeldLeases, *tokens: int, **fields: Any) -> Deliveries:
    count = len(tokens)
    envelopes = [Envelope(f"m{token}", "default/s", b"1") for token in tokens]
    sequences = [token * 10 for token in tokens]
    got = Deliveries("default/a", tokens, sequences, [1] * count, [1_000] * count, envelopes, **fields)
    held.arrived(got)
    return got


def test_a_lease_is_held_until_it_is_dropped() -> None:
    held = HeldLeases()
    came(held, 5, 6, 7)
    assert [held.holds(token) for token in (4, 5, 6, 7, 8)] == [False, True, True, True, False]
    held.drop([6, 99])
    assert held.tokens == [5, 7]
    held.clear()
    assert held.tokens == []


def test_what_was_settled_before_it_came_is_not_held() -> None:
    held = HeldLeases()
    came(held, 1, 2, settled=True)
    assert held.tokens == []


def test_a_delivery_is_found_by_its_token_whether_tokens_follow_each_other_or_not() -> None:
    held = HeldLeases()
    came(held, 5, 6, 7)
    came(held, 40, 20, 90)
    for token in (5, 6, 7, 40, 20, 90):
        assert held.attempt(token) == ("default/a", token * 10, 1, 1_000)
    assert held.attempt(41) is None
    assert held.deadline(41) == 0


def test_a_failure_takes_the_later_ones_of_its_lane_along() -> None:
    held = HeldLeases()
    came(held, 1, 2, 3, 4, 5, lanes=[0, 1, 0, -1, 0])
    held.returned(3)
    assert held.tokens == [1, 2, 4]
    held.returned(4)
    assert held.tokens == [1, 2]


def test_lanes_of_two_receives_are_not_the_same_because_their_numbers_are() -> None:
    held = HeldLeases()
    came(held, 1, 2, lanes=[0, 0])
    came(held, 3, 4, lanes=[0, 0])
    held.returned(1)
    assert held.tokens == [3, 4]


def test_of_two_answers_that_overtook_each_other_the_later_deadline_holds() -> None:
    held = HeldLeases()
    came(held, 1, 2, 3)
    extends = [(1, 500), (2, 500), (3, 500)]
    before = held.deadlines(extends)
    held.extended(extends, before, [5_000, None, 800])
    assert [held.deadline(token) for token in (1, 2, 3)] == [5_000, 0, 800]
    held.extended(extends[:1], before[:1], [4_000])
    assert held.deadline(1) == 5_000
    held.drop_expired(1_000)
    assert held.tokens == [1]


def test_one_lease_that_is_held_for_long_does_not_keep_the_content_of_the_others() -> None:
    held = HeldLeases()
    envelope = came(held, 1, 2, 3).envelopes[0]
    held.drop([1, 2])
    assert held.tokens == [3]
    assert sys.getrefcount(envelope) == 2, "the variable and the call"
