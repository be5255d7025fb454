"""The budget of a workflow: what a task may cost, and how many tokens of models it may use."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.bounds import number, shown, whole
from relaymesh.kernel.tasks.plan import COST_MAX, USAGE_MAX
from relaymesh.plans.position import Position, kind_of
from relaymesh.wire.near import Names

BUDGET_FIELDS = ("cost_usd", "tokens")
MICROS = 1_000_000


def read_budget(given: Any, position: Position) -> dict[str, int]:
    """`cost_micros` and `tokens` of a plan, those that are given. `position`: of the workflow."""
    if given is None:
        return {}
    here = position.within("budget")
    if not isinstance(given, dict):
        here.refuse(
            f"must be an object, not {kind_of(given)}", "write budget: {cost_usd: 5, tokens: 2000000}"
        )
    for field in given:
        if field not in BUDGET_FIELDS:
            here.unknown(field, Names(BUDGET_FIELDS), ", ".join(BUDGET_FIELDS))
    found = {}
    if given.get("cost_usd") is not None:
        found["cost_micros"] = cost_micros(given["cost_usd"], here.at("cost_usd"))
    if given.get("tokens") is not None:
        found["tokens"] = _tokens(given["tokens"], here.at("tokens"))
    if not found:
        here.refuse("names no limit", "write budget: {cost_usd: 5, tokens: 2000000}")
    return found


def cost_micros(value: Any, position: Position) -> int:
    """Dollars in millionths. The conversion is exact: the decimal text of a number is used, not its binary
    fraction."""
    plain = number(value)
    if plain is None:
        position.refuse(f"must be a number of dollars, not {shown(value)}")
    dollars = Decimal(repr(plain))
    if not dollars.is_finite() or dollars <= 0:
        position.refuse(f"must be more than 0, not {shown(value)}", "leave it out for no limit")
    if dollars > COST_MAX // MICROS:
        position.refuse(f"{shown(value)} is too much: the most is {COST_MAX // MICROS}")
    exact = dollars.scaleb(6)
    micros = int(exact)
    if micros != exact:
        position.refuse(f"{shown(value)} has more than 6 decimals")
    return micros


def _tokens(value: Any, position: Position) -> int:
    try:
        return whole(value, "it", 1, USAGE_MAX, InvalidPlan)
    except InvalidPlan as error:
        position.refuse(error.message.removeprefix("it "))
