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

    connect_s: how long to try to reach the node when a mesh is opened. Raising it reports a wrong address
        later.
    unreachable_s: how long a call waits for a node that went away before it raises `Unreachable`. Choose it
        longer than a restart of the node. Raising it lets callers wait longer when the node does not come
        back.
    backoff_s_min, backoff_s_max: random delay before a reconnect, between `backoff_s_min` and a ceiling that
        doubles per failure, up to `backoff_s_max`. Raising them spares a node that starts under many clients.
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
