"""Budgets: dollars are exact to the millionth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.kernel.tasks.plan import COST_MAX
from relaymesh.plans.budget import cost_micros
from relaymesh.plans.document import compile_plan
from relaymesh.plans.position import Position
from relaymesh.plans.reading import read_json, read_yaml
from tests.plans.documents import budget


@pytest.mark.parametrize(
    ("value", "micros", "tokens"),
    [
        ({"cost_usd": 5, "tokens": 2_000_000}, 5_000_000, 2_000_000),
        ({"cost_usd": 0.1}, 100_000, 0),
        ({"cost_usd": 4.35}, 4_350_000, 0),
        ({"cost_usd": 0.000001, "tokens": None}, 1, 0),
        ({"cost_usd": 1e9}, COST_MAX, 0),
        ({"tokens": 1}, 0, 1),
    ],
)
def test_a_budget_reaches_the_kernel(value: Any, micros: int, tokens: int) -> None:
    plan = compile_plan(budget(value))
    assert (plan.cost_micros, plan.tokens) == (micros, tokens)


@pytest.mark.parametrize("written", ["4.35", "4.350000", "0.00435e+3"])
def test_it_means_the_same_in_yaml_and_json(written: str) -> None:
    json = '{"workflow": "w", "budget": {"cost_usd": COST}, "steps": {"a": {"agent": "x"}}}'
    yaml = "workflow: w\nbudget: {cost_usd: COST}\nsteps: {a: {agent: x}}"
    for document in (read_json(json.replace("COST", written)), read_yaml(yaml.replace("COST", written))):
        assert compile_plan(document).cost_micros == 4_350_000


@given(st.integers(1, COST_MAX))
def test_every_millionth_up_to_a_billion_dollars_is_exact(micros: int) -> None:
    assert cost_micros(micros / 1_000_000, Position()) == micros
