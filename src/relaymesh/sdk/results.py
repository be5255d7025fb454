"""What a handler of a step may return besides a plain value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.bounds import shown
from relaymesh.plans.builder import Workflow
from relaymesh.sdk.submission import plan_json
from relaymesh.wire.usage import usage_of

__all__ = ["Continue", "Result"]


class Result:
    """The result of a step, with what the attempt has used: `Result(value, usage={"cost_usd": 0.12})`.

    For a message that is not a step, the value is ignored, like any value that a handler returns.
    """

    def __init__(self, value: Any = None, *, usage: Mapping[str, Any] | None = None) -> None:
        self.value = value
        self.usage = usage_of(usage)

    def __repr__(self) -> str:
        return f"Result({self.value!r}, usage={self.usage!r})"


class Continue:
    """The step continues with more steps, and completes with their outputs: `Continue([{"name": …}, …])`.

    `steps`: a list of steps as documents, each with its `name`; a dict as `steps` of a workflow; or a
    `Workflow`, of which only the steps count. They may read the steps before the step, and belong to the same
    task. The plan of the step must say `grows: true`. If the new steps are refused, the step has failed, and
    is tried again as its plan says.
    """

    def __init__(
        self,
        steps: Sequence[Mapping[str, Any]] | Mapping[str, Any] | Workflow,
        *,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        self.document = steps_of(steps)
        self.usage = usage_of(usage)

    def __repr__(self) -> str:
        return f"Continue({self.document[:80]!r}, usage={self.usage!r})"


def steps_of(steps: Any) -> bytes:
    """The steps with which a step continues, as JSON. Raises `InvalidPlan`."""
    if isinstance(steps, Workflow):
        steps = steps.document()["steps"]
    given: Any = None
    try:
        if isinstance(steps, Mapping):
            given = dict(steps)
        elif isinstance(steps, (list, tuple)):
            given = list(steps)
    except Exception:  # a collection that cannot be read
        given = None
    if given is not None:
        return plan_json(given, "the steps")
    raise InvalidPlan(
        f"the steps of Continue must be a list, a dict or a Workflow, not {shown(steps)}",
        hint='write Continue([{"name": "test", "agent": "tester"}])',
    )
