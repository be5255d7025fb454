"""Handlers: functions of one delivery, their limits, and the names of their subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import SECONDS_MAX, real, shown, whole

__all__ = [
    "NO_LIMITS",
    "Limits",
    "checked_handler",
    "checked_step",
    "checked_topic",
    "finished",
    "handler_name",
]


CONCURRENCY_MAX = 10_000
TIME_LIMIT_S_MIN = 0.001


@dataclass(frozen=True)
class Limits:
    """How many runs of one handler at once, and how many seconds each; None: the limits of the pool."""

    concurrency: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            concurrency = whole(self.concurrency, "concurrency", 1, CONCURRENCY_MAX)
            object.__setattr__(self, "concurrency", concurrency)  # a plain int, whatever was given
        if self.time_limit is not None:
            seconds = real(self.time_limit, "time_limit (in seconds)", TIME_LIMIT_S_MIN, SECONDS_MAX)
            object.__setattr__(self, "time_limit", seconds)

    def most_of(self, workers: int) -> int:
        """How many runs at once, for a pool with this many workers."""
        return workers if self.concurrency is None else min(workers, self.concurrency)


NO_LIMITS = Limits()


def checked_handler(handler: Any) -> Any:
    """Return the handler if it can be called."""
    if not callable(handler):
        raise InvalidValue(
            f"a handler must be a function of one delivery, not {shown(handler)}",
            hint="put @agent.handle above `def work(delivery):`, or call agent.handle(work)",
        )
    return handler


def checked_topic(topic: Any) -> str:
    """Return the topic of `mesh.on`. If the parentheses are missing, the decorator gets the function
    instead."""
    if callable(topic):
        raise InvalidValue(
            f"mesh.on needs a topic, and got the function {shown(topic)}",
            hint='write @mesh.on("order.created") above the function',
        )
    return topic  # type: ignore[no-any-return]


def checked_step(agent: Any) -> str:
    """Return the agent of `mesh.step`. If the parentheses are missing, the decorator gets the function
    instead."""
    if callable(agent):
        raise InvalidValue(
            f"mesh.step needs the name of an agent, and got the function {shown(agent)}",
            hint='write @mesh.step("builder") above the function',
        )
    return agent  # type: ignore[no-any-return]


def handler_name(handler: Any) -> str:
    """The name of a function, for a subscription without a name."""
    name = getattr(checked_handler(handler), "__name__", None)
    if not isinstance(name, str):
        raise InvalidValue(
            f"{shown(handler)} has no name of its own", hint="name the subscription: mesh.on(topic, name)"
        )
    return name


async def finished(awaitable: Awaitable[Any]) -> Any:
    """The awaitable that a plain function returned, as a coroutine, because `asyncio.run` accepts only
    those."""
    return await awaitable
