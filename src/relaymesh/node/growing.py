"""Growing: makes a kernel command of the steps that a holder asks for."""

from __future__ import annotations

from collections.abc import Callable

from relaymesh.errors import LeaseLost
from relaymesh.kernel.query import GrowthScope
from relaymesh.kernel.tasks.commands import Grow
from relaymesh.kernel.tasks.looks import Scope
from relaymesh.kernel.token import format_token
from relaymesh.node.terms import Values, default_values, terms_of
from relaymesh.node.workflows import decoded
from relaymesh.plans.document import compile_steps
from relaymesh.wire.tasks import GrowStep

__all__ = ["Growing"]


class Growing:
    """`find`: finds in the kernel what the new steps may read."""

    def __init__(self, find: Callable[[GrowthScope], Scope | None], values: Values = default_values) -> None:
        self._find = find
        self._values = values

    def command(self, request: GrowStep) -> Grow:
        """Compile and check the steps; nothing is written yet. Raises `InvalidPlan`, in one line."""
        scope = self._find(GrowthScope(request.token))
        if scope is None:
            token = format_token(request.token)
            raise LeaseLost(f"lease {token} is not the last one of a step that is still open")
        what = f"step {scope.step!r}"
        document = decoded(request.document, f"{what}: its new steps")
        defaults = terms_of(self._values()).steps
        steps = compile_steps(document, scope.namespace, scope.names, what, defaults)
        return Grow(request.token, steps, request.usage)
