"""Settings of a remote mesh. Parsed once, at the edge; each with its default and what raising it costs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import SECONDS_MAX, real

SECONDS_MIN = 1e-6

Transport = Literal["websocket", "http"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteSettings:
    """Frozen and checked on construction.

    connect_s: how long opening a mesh tries to reach its node. Raising it makes a wrong address known later.
    unreachable_s: how long a call waits for a node that went away before it raises `Unreachable`. A restart
        of the node should fit in. Raising it lets callers hang longer when the node is gone for good.
    backoff_s_min, backoff_s_max: pause before a reconnect, doubled with each failure from the one to the
        other, and drawn at random below that. Raising them spares a node that starts under many clients.
    """

    connect_s: float = 5.0
    unreachable_s: float = 30.0
    backoff_s_min: float = 0.05
    backoff_s_max: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = real(getattr(self, field.name), field.name, SECONDS_MIN, SECONDS_MAX, InvalidSettings)
            object.__setattr__(self, field.name, value)
        if self.backoff_s_max < self.backoff_s_min:
            raise InvalidSettings("backoff_s_max is below backoff_s_min")
