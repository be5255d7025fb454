"""Handlers as callers pass them: functions of one delivery, and the names of their subscriptions."""

from __future__ import annotations

from typing import Any

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import shown

__all__ = ["checked_handler", "checked_topic", "handler_name"]


def checked_handler(handler: Any) -> Any:
    """Return the handler if it can be called."""
    if not callable(handler):
        raise InvalidValue(
            f"a handler must be a function of one delivery, not {shown(handler)}",
            hint="put @agent.handle above `def work(delivery):`, or call agent.handle(work)",
        )
    return handler


def checked_topic(topic: Any) -> str:
    """Return the topic of `mesh.on`. Without parentheses the decorator gets the function in its place."""
    if callable(topic):
        raise InvalidValue(
            f"mesh.on needs a topic, and got the function {shown(topic)}",
            hint='write @mesh.on("order.created") above the function',
        )
    return topic  # type: ignore[no-any-return]


def handler_name(handler: Any) -> str:
    """The name of a function, for a subscription without a name."""
    name = getattr(checked_handler(handler), "__name__", None)
    if not isinstance(name, str):
        raise InvalidValue(
            f"{shown(handler)} has no name of its own", hint="name the subscription: mesh.on(topic, name)"
        )
    return name
