"""Terms: values from the settings for fields that a workflow leaves out. The record of the submit has
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from relaymesh.kernel.tasks.plan import Plan
from relaymesh.plans.work import StepDefaults
from relaymesh.wire.parameters import DEFAULTS, Parameters

__all__ = ["Terms", "Values", "default_values", "terms_of"]

Values = Callable[[], Parameters]
"""Returns the current values."""


class Terms(NamedTuple):
    """`window`, `backoff_ms_base`, `backoff_ms_cap`: as in a plan; 0 where the setting is the default."""

    steps: StepDefaults
    window: int
    backoff_ms_base: int
    backoff_ms_cap: int

    def on(self, plan: Plan) -> Plan:
        """The plan of a task under these terms: itself if they change nothing, so that it is checked once."""
        given = (plan.window, plan.backoff_ms_base, plan.backoff_ms_cap)
        if given == (self.window, self.backoff_ms_base, self.backoff_ms_cap):
            return plan
        return msgspec.structs.replace(
            plan,
            window=self.window,
            backoff_ms_base=self.backoff_ms_base,
            backoff_ms_cap=self.backoff_ms_cap,
        )


def terms_of(values: Parameters) -> Terms:
    return Terms(
        StepDefaults(values.max_attempts, values.lease_timeout_ms),
        _unless_default(values.queue_capacity, DEFAULTS.queue_capacity),
        _unless_default(values.base_backoff_ms, DEFAULTS.base_backoff_ms),
        _unless_default(values.max_backoff_ms, DEFAULTS.max_backoff_ms),
    )


def default_values() -> Parameters:
    return DEFAULTS


def _unless_default(value: int, default: int) -> int:
    return 0 if value == default else value
