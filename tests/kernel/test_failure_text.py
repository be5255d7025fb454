"""What is kept of a failure's texts is bounded, and says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest

from relaymesh.kernel.failure_text import REASON_MAX, STACK_MAX, cut_reason, cut_stack
from tests.kernel.driver import Driver


@pytest.mark.parametrize(("cut", "limit"), [(cut_reason, REASON_MAX), (cut_stack, STACK_MAX)])
def test_a_text_within_its_bound_is_kept_and_no_longer_one_ever(
    cut: Callable[[str], str], limit: int
) -> None:
    for length in (0, 1, limit - 1, limit):
        assert cut("é" * length) == "é" * length
    for length in (limit + 1, limit + 100, 40 * limit):
        assert len(cut("é" * length)) <= limit


def test_a_long_reason_keeps_its_head_and_says_how_much_is_missing_with_a_digest_of_all() -> None:
    text = "the disk said no, " * 1_000
    kept = cut_reason(text)
    head, line = kept.rstrip("\n").split("\n")
    assert text.startswith(head)
    digest = sha256(text.encode()).hexdigest()[:16]
    assert line == f"… {len(text) - len(head)} characters cut, sha256 {digest}"


def test_a_long_stack_keeps_its_head_and_its_end() -> None:
    text = "".join(f"line {i}\n" for i in range(10_000)) + "ValueError: the cause"
    kept = cut_stack(text)
    assert kept.startswith("line 0\nline 1\n")
    assert kept.endswith("ValueError: the cause")
    head, _, rest = kept.partition("\n… ")
    told, _, tail = rest.partition("\n")
    assert int(told.split()[0]) == len(text) - len(head) - len(tail)


def test_half_an_emoji_in_a_long_text_is_no_obstacle() -> None:
    assert len(cut_stack("\ud83d" * 20_000)) <= STACK_MAX


def test_a_nack_keeps_cut_texts_alone() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.nack(lease, reason="r" * 1_000_000, stack="s" * 15_000_000)
    (failure,) = mesh.entry(box, "m").failures or []
    assert failure.reason == cut_reason("r" * 1_000_000)
    assert failure.stack == cut_stack("s" * 15_000_000)
