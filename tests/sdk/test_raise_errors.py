"""`raise_errors`: a handler that fails fails the test that let it run."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh import Drop, Reject, Retry
from relaymesh.testing import AsyncManualMesh, ManualMesh


def fail(delivery: Any) -> None:
    assert delivery.content == "right", "the handler's own words"


def test_a_failing_assert_in_a_handler_fails_the_call_that_let_it_run() -> None:
    with ManualMesh(raise_errors=True) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=1)
        coder.handle(fail)
        planner.send("coder", "wrong")
        for seconds in (0, 60):
            with pytest.raises(AssertionError, match="the handler's own words"):
                mesh.advance(seconds)
        assert [letter.reason for letter in mesh.dead_letters()] == ["retries_exhausted"], "dealt with"
        mesh.advance(3600)
        planner.send("coder", "wrong")
        with pytest.raises(AssertionError, match="the handler's own words"):
            planner.receive(timeout=5)
        with pytest.raises(AssertionError, match="the handler's own words"):
            planner.ask("coder", "wrong")


async def test_the_same_awaited() -> None:
    async with AsyncManualMesh(raise_errors=True) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        coder.handle(fail)
        await planner.send("coder", "wrong")
        with pytest.raises(AssertionError, match="the handler's own words"):
            await mesh.advance()
        assert [letter.reason for letter in await mesh.dead_letters()] == ["retries_exhausted"]
        with pytest.raises(AssertionError, match="the handler's own words"):
            await planner.ask("coder", "wrong")
        await planner.send("coder", "right")
        assert await mesh.advance() == 1


@pytest.mark.parametrize("raised", [Retry(after=1), Reject("no"), Drop()])
def test_what_a_handler_says_to_the_mesh_is_no_error(raised: Exception) -> None:
    def speak(delivery: Any) -> None:
        raise raised

    with ManualMesh(raise_errors=True) as mesh:
        coder = mesh.agent("coder", max_retries=0)
        coder.handle(speak)
        coder.send("coder", 1)
        mesh.advance(60)


def test_of_several_the_first_is_raised_and_the_others_are_named() -> None:
    def fail_each(delivery: Any) -> None:
        raise ValueError(delivery.content)

    with ManualMesh(raise_errors=True) as mesh:
        coder = mesh.agent("coder")
        coder.handle(fail_each)
        coder.send_many([{"to": "coder", "content": n} for n in range(3)])
        with pytest.raises(ValueError, match="0") as caught:
            mesh.advance()
        assert caught.value.__notes__ == ["2 more raised by handlers: ValueError(1), ValueError(2)"]
        assert mesh.advance() == 0


def test_without_it_a_failure_is_the_mesh_s_business_alone() -> None:
    with ManualMesh() as mesh:
        coder = mesh.agent("coder", max_retries=0)
        coder.handle(fail)
        coder.send("coder", "wrong")
        assert mesh.advance() == 1
        assert len(mesh.dead_letters()) == 1


def give_up(delivery: Any) -> None:
    pytest.fail("not like this")


def test_pytest_fail_in_a_handler_is_heard_in_any_case() -> None:
    with ManualMesh() as mesh:
        coder = mesh.agent("coder")
        coder.handle(give_up)
        coder.send("coder", 1)
        with pytest.raises(pytest.fail.Exception, match="not like this"):
            mesh.advance()


async def test_and_awaited_too() -> None:
    async with AsyncManualMesh() as mesh:
        coder = await mesh.agent("coder")
        coder.handle(give_up)
        await coder.send("coder", 1)
        with pytest.raises(pytest.fail.Exception, match="not like this"):
            await mesh.advance()
