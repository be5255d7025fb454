"""Hooks: called around every handler of a mesh; they see what happens and change nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relaymesh import Drop, InvalidValue, Reject, Retry
from relaymesh.testing import AsyncManualMesh, ManualMesh
from tests.sdk.uniform import World, Worlds
from tests.waiting import until_async


class Seen:
    """Hooks of every kind, plain or coroutines, that note their calls."""

    def __init__(self, mesh: World, awaited: bool) -> None:
        self.calls: list[tuple[Any, ...]] = []
        for name in ("before", "after", "failure", "dead_letter"):
            getattr(mesh.inner.hooks, name)(self._hook(name, awaited))

    def _hook(self, name: str, awaited: bool) -> Any:
        def plain(delivery: Any, *error: Any) -> None:
            self.calls.append((name, delivery.content, delivery.settled, *map(repr, error)))

        async def coroutine(delivery: Any, *error: Any) -> None:
            plain(delivery, *error)

        return coroutine if awaited else plain


@pytest.mark.parametrize("awaited", [False, True])
async def test_hooks_are_called_before_and_after_a_handler(worlds: Worlds, awaited: bool) -> None:
    """Plain hooks and coroutines on either twin."""
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        seen = Seen(mesh, awaited)
        coder.handle(lambda delivery: seen.calls.append(("run", delivery.content)))
        await coder.send("coder", 1)
        await until_async(lambda: len(seen.calls) == 3)
        assert seen.calls == [("before", 1, False), ("run", 1), ("after", 1, True)]


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ZeroDivisionError("x"), ["before", "failure"]),
        (Retry("later"), ["before", "failure"]),
        (Reject("never"), ["before", "failure", "dead_letter"]),
        (MemoryError("full"), ["before", "failure", "dead_letter"]),
        (Drop("nothing"), ["before", "after"]),
    ],
)
async def test_a_failure_and_a_dead_letter_have_hooks_of_their_own(
    worlds: Worlds, error: Exception, calls: list[str]
) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        seen = Seen(mesh, worlds.awaited)

        @coder.handle
        def work(delivery: Any) -> None:
            raise error

        await coder.send("coder", 1)
        await until_async(lambda: len(seen.calls) == len(calls))
        assert [call[0] for call in seen.calls] == calls
        assert all(call[1:] == (1, True, repr(error)) for call in seen.calls if len(call) == 4)


async def test_a_handler_that_nacks_itself_has_failed(worlds: Worlds) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        seen = Seen(mesh, worlds.awaited)
        coder.handle(lambda delivery: delivery.nack("no", retryable=False))
        await coder.send("coder", 1)
        await until_async(lambda: len(seen.calls) == 3)
        assert seen.calls[1:] == [("failure", 1, True, "None"), ("dead_letter", 1, True, "None")]


async def test_a_time_limit_is_a_failure(worlds: Worlds) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder", max_retries=0)
        seen = Seen(mesh, worlds.awaited)

        @coder.handle(time_limit=100)
        async def hang(delivery: Any) -> None:
            await until_async(lambda: False, 10)

        await coder.send("coder", 1)
        await until_async(lambda: seen.calls)
        await mesh.pass_time(100)
        await until_async(lambda: len(seen.calls) == 3)
        assert [call[0] for call in seen.calls] == ["before", "failure", "dead_letter"]
        assert "time limit of 100 s" in seen.calls[1][3]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hook_that_raises_is_logged_and_changes_nothing(
    worlds: Worlds, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder", max_retries=0)
        ran: list[Any] = []

        def broken(delivery: Any, *error: Any) -> None:
            raise ValueError("a bug of the hook")

        for name in ("before", "after", "failure", "dead_letter"):
            assert getattr(mesh.inner.hooks, name)(broken) is broken
        seen = Seen(mesh, worlds.awaited)

        @coder.handle
        def work(delivery: Any) -> None:
            ran.append(delivery.content)
            if fails:
                raise LookupError("of the handler")

        with caplog.at_level(logging.WARNING, "relaymesh.sdk"):
            await coder.send("coder", 1)
            await until_async(lambda: len(seen.calls) == (3 if fails else 2))
        assert ran == [1]
        assert caplog.text.count("ValueError('a bug of the hook')") == len(seen.calls)
        counters = mesh.node.core.kernel.state.mailboxes["default/coder"].counters
        assert (counters.acked, counters.dead) == ((0, 1) if fails else (1, 0))


@pytest.mark.parametrize(("error", "counted"), [(Reject("not yours"), "dead"), (Drop("seen"), "dropped")])
async def test_before_may_end_a_delivery_and_its_handler_is_not_called(
    worlds: Worlds, error: Exception, counted: str
) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        ran: list[Any] = []

        @mesh.hooks.before
        def guard(delivery: Any) -> None:
            if delivery.content == "forbidden":
                raise error

        coder.handle(lambda delivery: ran.append(delivery.content))
        await coder.send("coder", "forbidden")
        await coder.send("coder", "allowed")
        await until_async(lambda: ran == ["allowed"])
        counters = mesh.node.core.kernel.state.mailboxes["default/coder"].counters
        await until_async(lambda: getattr(counters, counted) == 1)


async def test_what_is_no_function_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        with pytest.raises(InvalidValue, match="a hook must be a function"):
            mesh.hooks.after(None)


def test_hooks_of_a_manual_mesh() -> None:
    with ManualMesh() as mesh:
        seen: list[Any] = []
        mesh.hooks.dead_letter(lambda delivery, error: seen.append((delivery.attempt, str(error))))
        coder = mesh.agent("coder", max_retries=2)

        @coder.handle
        def work(delivery: Any) -> None:
            raise OSError("disk")

        coder.send("coder", 1)
        mesh.advance(60)
        assert seen == [(3, "disk")], "once, at the attempt that was its last"


async def test_hooks_of_an_async_manual_mesh() -> None:
    async with AsyncManualMesh() as mesh:
        seen: list[Any] = []
        mesh.hooks.after(lambda delivery: seen.append(delivery.content))
        coder = await mesh.agent("coder")
        coder.handle(lambda delivery: None)
        await coder.send("coder", 1)
        await mesh.advance(1)
        assert seen == [1]
