"""Hooks: functions that a mesh calls before and after each run of a handler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import shown
from relaymesh.sdk.endings import Drop, Ending
from relaymesh.sdk.handlers import finished

__all__ = ["Hooks", "await_hooks", "call_hooks"]

log = logging.getLogger("relaymesh.sdk")

Hook = TypeVar("Hook", bound=Callable[..., Any])
Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Hooks:
    """Functions, plain or coroutines, that are called around every handler of a mesh, in the order given.

        @mesh.hooks.failure
        def note(delivery, error):
            metrics.failed(delivery.receiver, error)

    What a hook raises is logged and changes nothing. One exception: `before` may raise `Retry`, `Reject` or
    `Drop`, which end the delivery as if the handler had raised them; the handler is not called. Hooks run
    where the handler runs; on `AsyncMesh` plain ones run on the event loop, and must not block it.
    """

    def __init__(self) -> None:
        self.present = False
        """Whether there is any: without one, handlers pay nothing."""
        self._before: list[Callable[..., Any]] = []
        self._after: list[Callable[..., Any]] = []
        self._failure: list[Callable[..., Any]] = []
        self._dead_letter: list[Callable[..., Any]] = []
        self._states: dict[int, str] = {}
        """What became of the deliveries whose handlers run, as their nacks were answered."""

    def before(self, hook: Hook) -> Hook:
        """Decorator: call `hook(delivery)` before the handler."""
        return self._add(self._before, hook)

    def after(self, hook: Hook) -> Hook:
        """Decorator: call `hook(delivery)` once the handler succeeded and its delivery is settled."""
        return self._add(self._after, hook)

    def failure(self, hook: Hook) -> Hook:
        """Decorator: call `hook(delivery, error)` once the handler failed and its delivery is nacked.

        It failed if it raised anything but `Drop`, took longer than its time limit, or lost its lease.
        `error` is what it raised; None if it called `nack` itself and returned. After a time limit the hook
        is called when the handler has ended.
        """
        return self._add(self._failure, hook)

    def dead_letter(self, hook: Hook) -> Hook:
        """Decorator: call `hook(delivery, error)` after `failure`, if the nack made a dead letter.

        A message that dies without a handler, as when its TTL ends, calls no hook.
        """
        return self._add(self._dead_letter, hook)

    def _add(self, hooks: list[Callable[..., Any]], hook: Hook) -> Hook:
        if not callable(hook):
            raise InvalidValue(
                f"a hook must be a function, not {shown(hook)}",
                hint="put @mesh.hooks.before above `def note(delivery):`",
            )
        hooks.append(hook)
        self.present = True
        return hook

    def _told(self, token: int, state: str) -> None:
        """A nack was answered. This is recorded if a handler of the delivery runs."""
        if token in self._states:
            self._states[token] = state

    def _beginning(self, delivery: Any) -> Iterator[Call]:
        self._states[delivery._token] = ""
        for hook in list(self._before):
            yield hook, (delivery,)

    def _ending(self, delivery: Any, error: BaseException | None) -> Iterator[Call]:
        state = self._states.pop(delivery._token, "")
        if isinstance(error, Drop) or (error is None and state in ("", "success", "dropped", "settled")):
            yield from [(hook, (delivery,)) for hook in list(self._after)]
            return
        yield from [(hook, (delivery, error)) for hook in list(self._failure)]
        if state == "dead_letter":
            yield from [(hook, (delivery, error)) for hook in list(self._dead_letter)]


def call_hooks(calls: Iterable[Call], *, may_end: bool = False) -> None:
    """Call them in this thread. `may_end`: an `Ending` that one raises is raised."""
    for hook, arguments in calls:
        try:
            result = hook(*arguments)
            if inspect.isawaitable(result):
                asyncio.run(finished(result))
        except Exception as error:
            _note(hook, error, may_end)


async def await_hooks(calls: Iterable[Call], *, may_end: bool = False) -> None:
    """The same on an event loop."""
    for hook, arguments in calls:
        try:
            result = hook(*arguments)
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            _note(hook, error, may_end)


def _note(hook: Callable[..., Any], error: Exception, may_end: bool) -> None:
    if may_end and isinstance(error, Ending):
        raise error
    log.warning("the hook %s raised, which changes nothing: %r", shown(hook), error, exc_info=error)
