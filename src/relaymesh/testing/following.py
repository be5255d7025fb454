"""Following without threads: a mesh whose time is moved by hand takes the settings at each look."""

from __future__ import annotations

from collections.abc import Callable

from relaymesh.node.node import Node
from relaymesh.sdk.following import AsyncFollower, Follower
from relaymesh.wire.parameters import Parameters

__all__ = ["AsyncManualFollower", "ManualFollower"]


class ManualFollower(Follower):
    def __init__(self, node: Node, take: Callable[[Parameters], None]) -> None:
        self._node = node
        self._take = take

    def begin(self) -> None:
        self._take(self._node.values())

    def close(self) -> None:
        """There is no thread."""


class AsyncManualFollower(AsyncFollower):
    def __init__(self, node: Node, take: Callable[[Parameters], None]) -> None:
        self._node = node
        self._take = take

    def begin(self) -> None:
        self._take(self._node.values())

    async def close(self) -> None:
        """There is no task."""
