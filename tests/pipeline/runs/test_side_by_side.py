"""Tables are built side by side, and never before what they are made from."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from relaymesh.pipeline.runs.side_by_side import side_by_side


@dataclass(frozen=True)
class Step:
    name: str
    inputs: tuple[str, ...] = ()


CATALOG = (Step("a", ("bronze",)), Step("b", ("a",)), Step("c", ("bronze",)), Step("d", ("b", "c")))


def test_each_begins_when_its_inputs_are_done_and_two_that_may_run_together_do() -> None:
    ended: list[str] = []
    together = threading.Barrier(2, timeout=30)

    def work(step: Step) -> str:
        assert {"a", "b", "c"}.intersection(step.inputs) <= set(ended)
        if step.name in ("a", "c"):
            together.wait()  # breaks, and fails the test, unless both are under way at once
        return step.name.upper()

    for step, answer in side_by_side(CATALOG, 2, work):
        assert answer == step.name.upper()
        ended.append(step.name)
    assert sorted(ended) == ["a", "b", "c", "d"]


def test_what_one_raises_ends_it_all_and_nothing_new_is_begun() -> None:
    begun: list[str] = []

    def work(step: Step) -> None:
        begun.append(step.name)
        if step.name == "a":
            raise ArithmeticError("no such table")

    with pytest.raises(ArithmeticError):
        list(side_by_side(CATALOG, 1, work))
    assert "b" not in begun
    assert "d" not in begun


def test_tables_that_wait_for_each_other_are_an_error_and_no_wait() -> None:
    with pytest.raises(ValueError, match="x, y wait for each other"):
        list(side_by_side((Step("x", ("y",)), Step("y", ("x",))), 2, lambda step: step.name))
