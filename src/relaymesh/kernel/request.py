"""What a session executes. `relaymesh.kernel.commands` and `query` hold the requests themselves."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Request(msgspec.Struct, Generic[Result_co], gc=False, eq=False):
    """What a session executes: a command, a query (query.py), or a request to the node itself."""


class Command(Request[Result_co]):
    """A request that may change the state."""
