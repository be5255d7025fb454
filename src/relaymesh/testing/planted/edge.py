"""What a bad value gets past."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

from relaymesh.kernel import commands
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import AnyRecord
from relaymesh.testing.planted.bug import Original, at, plant


@plant(at(commands, "whole"), broken="numbers of commands have no upper bound")
def bound_removed(original: Original, value: Any, what: str, least: int, most: int, *more: Any) -> int:
    checked: int = original(value, what, least, 1 << 70, *more)
    return checked


@plant(at(commands, "whole"), broken="a nack takes a delay that is no whole number")
def nack_takes_a_float(original: Original, value: Any, what: str, *bounds: Any) -> Any:
    return value if what == "delay_ms" and isinstance(value, float) else original(value, what, *bounds)


@plant(at(commands, "flag"), broken="what is true enough passes for a flag")
def flag_taken_for_its_truth(original: Original, value: Any, what: str, *more: Any) -> bool:
    return bool(value)


@plant(at(commands, "text"), broken="texts of commands have no upper bound")
def text_of_any_length(original: Original, value: Any, what: str, least: int, most: int, *more: Any) -> str:
    checked: str = original(value, what, least, 1 << 40, *more)
    return checked


@plant(at(Decision, "emit"), broken="a record is applied before it is encoded")
def applied_before_encoded(original: Original, decision: Decision, record: AnyRecord) -> Any:
    detail = decision.state.apply(record)
    decision.step.encoded.append(decision.encoders[type(record)](record))
    decision.step.records.append(record)
    decision.step.details.append(detail)
    return detail
