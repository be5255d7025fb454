"""Money as people and programs write it, and what an attempt has used.

The kernel counts millionths of a dollar. A float of at most 15 digits names one such number exactly, and a
billion dollars in millionths has no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import number, shown, whole
from relaymesh.kernel.tasks.commands import NO_USAGE, Usage
from relaymesh.kernel.tasks.plan import COST_MAX, USAGE_MAX

__all__ = ["COST_USD_MAX", "budget_micros", "dollars_of", "micros_of", "usage_of"]

MICROS = 1_000_000
"""Millionths in a dollar."""
COST_USD_MAX = COST_MAX // MICROS
USAGE_FIELDS = ("cost_usd", "tokens")


def dollars_of(micros: int) -> float:
    """For JSON and programs: 0.12."""
    return micros / MICROS


def micros_of(dollars: float) -> int:
    """The inverse."""
    return round(dollars * MICROS)


def budget_micros(dollars: Any, what: str = "cost_usd") -> int:
    """A budget: a number of dollars with at most 6 decimals. Raises `InvalidValue`."""
    amount = _amount(dollars, what)
    micros = int(amount * MICROS)
    if micros != amount * MICROS:
        raise InvalidValue(f"{what} {shown(dollars)} has more than 6 decimals")
    return micros


def usage_of(given: Any) -> Usage:
    """What `usage={"cost_usd": 0.12, "tokens": 3400}` says; None: nothing. Rounded to a millionth."""
    if given is None:
        return NO_USAGE
    if given.__class__ is Usage:
        return given
    fields = _fields(given)
    unknown = [name for name in fields if type(name) is not str or name not in USAGE_FIELDS]
    if unknown:
        raise InvalidValue(f"usage has cost_usd and tokens, not {shown(unknown[0])}")
    cost, tokens = fields.get("cost_usd"), fields.get("tokens")
    micros = 0 if cost is None else int((_amount(cost, "cost_usd") * MICROS).quantize(0, ROUND_HALF_EVEN))
    return Usage(micros, 0 if tokens is None else whole(tokens, "tokens", 0, USAGE_MAX))


def _fields(given: Any) -> dict[Any, Any]:
    try:
        if isinstance(given, Mapping):
            return dict(given)
    except Exception:  # a mapping that cannot be read
        pass
    raise InvalidValue(
        f"usage must be a dict, not {shown(given)}", hint='write usage={"cost_usd": 0.12, "tokens": 3400}'
    )


def _amount(dollars: Any, what: str) -> Decimal:
    """Exactly what was written: 0.1 is a tenth."""
    found = dollars if type(dollars) is Decimal else number(dollars)
    try:
        amount = None if found is None else Decimal(repr(found)) if type(found) is float else Decimal(found)
        if amount is not None and 0 <= amount <= COST_USD_MAX:
            return amount
    except InvalidOperation:  # a NaN that signals
        pass
    raise InvalidValue(f"{what} must be a number of dollars from 0 to {COST_USD_MAX}, not {shown(dollars)}")
