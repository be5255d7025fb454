"""Ids: which of them are surely new."""

from __future__ import annotations

import random

from relaymesh.wire.ids import IdMint, made_otherwise, uuid7_ms

NOW = 1_790_000_000_000


def test_ids_made_in_the_time_between_are_left_out() -> None:
    mint = IdMint(random.Random(1))
    old, fresh, late = mint.mint(NOW, 3), mint.mint(NOW + 10, 3), mint.mint(NOW + 20, 3)
    assert made_otherwise([*old, *fresh, *late], NOW, NOW + 10) == [*old, *late]


def test_any_other_id_is_named_whatever_it_begins_with() -> None:
    made = IdMint(random.Random(1)).mint(NOW, 1)[0]
    others = ["order-7", made[:15], made + "x", made[:14] + "4" + made[15:], "", "-" * 36, "g" + made[1:]]
    assert made_otherwise([*others, made], NOW - 1, NOW) == others
    assert uuid7_ms(made) == NOW
