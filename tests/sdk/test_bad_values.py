"""A bad value hurts only its caller: an error that names it, and nothing for any other agent, now or later.

Embedded and remote, both twins: the values are checked by the command that carries them.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from relaymesh import InvalidSettings, InvalidValue, MeshError, Reject, Retry, Rule
from tests.sdk.uniform import Worlds

HALF_AN_EMOJI = "rocket \ud83d"


class Whole(int):
    """An `int` that the journal's encoder does not know."""


class Words(str):
    """A `str` that the journal's encoder does not know."""

    __slots__ = ()


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd(Exception):
    @property
    def status_code(self) -> int:
        raise RuntimeError("no status")


NACKS: dict[str, dict[str, Any]] = {
    "a float delay": {"delay_ms": 1000 * 0.5},
    "a number as code": {"code": 503},
    "a number as reason": {"error": 404},
    "an endless delay": {"delay_ms": 10**20},
    "a delay of 2^64": {"delay_ms": 2**64},
    "a negative delay": {"delay_ms": -1},
    "a delay that is a text": {"delay_ms": "5"},
    "nanoseconds as until": {"until": time.time_ns()},
    "until in words": {"until": "tomorrow"},
    "until NaN": {"until": math.nan},
    "until the end of time": {"until": math.inf},
    "retryable in words": {"retryable": "yes"},
    "an empty code": {"code": ""},
    "an endless code": {"code": "c" * 129},
}


@pytest.mark.parametrize("wrong", NACKS.values(), ids=NACKS)
async def test_a_nack_with_a_bad_value_is_refused_and_may_be_repeated(worlds: Worlds, wrong: Any) -> None:
    async with await worlds.open() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, id="one")
        delivery = await coder.receive(timeout=5)
        with pytest.raises(InvalidValue) as caught:
            await delivery.nack(**wrong)
        assert caught.value.hint
        await planner.send("coder", 2, id="two")
        assert await delivery.nack("busy", delay_ms=0) == "retrying"
    await still_there(worlds, {"one", "two"})


async def still_there(worlds: Worlds, ids: set[str]) -> None:
    """A mesh that was opened again, where there is a directory to open, gives them all out."""
    if worlds.durability == "memory":
        return
    async with await worlds.open() as mesh:
        coder = await mesh.agent("coder")
        assert {each.id for each in await coder.receive_many(10, timeout=5)} == ids


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "extend by a text": lambda mesh, coder, delivery: delivery.extend("5"),
    "extend by a float": lambda mesh, coder, delivery: delivery.extend(5.0),
    "extend for ever": lambda mesh, coder, delivery: delivery.extend(10**15),
    "extend by less than nothing": lambda mesh, coder, delivery: delivery.extend(-1),
    "receive a text": lambda mesh, coder, delivery: coder.receive_many("5"),
    "receive a float": lambda mesh, coder, delivery: coder.receive_many(1.5),
    "receive less than nothing": lambda mesh, coder, delivery: coder.receive_many(-1),
    "receive, waiting a text": lambda mesh, coder, delivery: coder.receive(timeout="5"),
    "receive, waiting NaN": lambda mesh, coder, delivery: coder.receive(timeout=math.nan),
    "an endless lease": lambda mesh, coder, delivery: mesh.agent("coder", lease_ms=2**64),
    "the longest lease that was": lambda mesh, coder, delivery: mesh.agent("coder", lease_ms=2**64 - 1),
    "a capacity that is a float": lambda mesh, coder, delivery: mesh.agent("coder", capacity=5.0),
    "an ordered that is a number": lambda mesh, coder, delivery: mesh.agent("coder", ordered=1),
    "ack what is no delivery": lambda mesh, coder, delivery: mesh.ack_many([1]),
    "answer what is no delivery": lambda mesh, coder, delivery: coder.answer("x", 1),
    "contract in words": lambda mesh, coder, delivery: mesh.agent("coder", contract="x"),
    "a code that is a number": lambda mesh, coder, delivery: mesh.agent("coder", contract={503: Reject}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_with_a_bad_value_stops_nobody(worlds: Worlds, call: Any) -> None:
    async with await worlds.open() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, id="one")
        delivery = await coder.receive(timeout=5)
        with pytest.raises(MeshError) as caught:
            await call(mesh, coder, delivery)
        assert isinstance(caught.value, (InvalidValue, InvalidSettings))
        assert caught.value.hint
        await planner.send("coder", 2, id="two")
        await delivery.nack("busy", delay_ms=0)
    await still_there(worlds, {"one", "two"})


MISTAKES: dict[str, Callable[[], Any]] = {
    "Retry(times=text)": lambda: Retry(times="3"),  # type: ignore[arg-type]
    "Retry(times=float)": lambda: Retry(times=2.5),  # type: ignore[arg-type]
    "Retry(after=text)": lambda: Retry(after="5"),  # type: ignore[arg-type]
    "Retry(after=timedelta)": lambda: Retry(after=dt.timedelta(seconds=5)),  # type: ignore[arg-type]
    "Retry(after=inf)": lambda: Retry(after=math.inf),
    "Retry(after=NaN)": lambda: Retry(after=math.nan),
    "Retry(until=ns)": lambda: Retry(until=time.time_ns()),
    "Retry(until=text)": lambda: Retry(until="tomorrow"),  # type: ignore[arg-type]
    "Rule(exit=dlq)": lambda: Rule(3, exit="dlq"),  # type: ignore[arg-type]
    "Rule(retries=text)": lambda: Rule("3"),  # type: ignore[arg-type]
    "Rule(retries=-1)": lambda: Rule(-1),
    "Rule(alert=number)": lambda: Rule(1, alert=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_value_that_cannot_be_meant_is_refused_where_it_is_written(mistake: Callable[[], Any]) -> None:
    with pytest.raises((InvalidValue, InvalidSettings)) as caught:
        mistake()
    assert caught.value.hint


ERRORS: dict[str, Callable[[], BaseException]] = {
    "half an emoji": lambda: ValueError(HALF_AN_EMOJI),
    "no text at all": Silent,
    "a Retry that was changed": lambda: changed(Retry("later"), after="5"),
    "a status that raises": Odd,
    "a text without end": lambda: ValueError("x" * 1_000_000),
}


def changed(error: BaseException, **values: Any) -> BaseException:
    for name, value in values.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_whatever_an_exception_says_its_delivery_fails_as_any_other(
    worlds: Worlds, error: Callable[[], BaseException]
) -> None:
    async with await worlds.open() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", max_retries=1, backoff_ms_base=0, backoff_ms_cap=0)
        await planner.send("coder", 1, id="one")
        for _ in range(2):
            delivery = await coder.receive(timeout=5)
            assert await delivery.nack(error()) in {"retrying", "dead_letter"}
        (letter,) = await mesh.dead_letters(receiver="coder")
        assert letter.attempts == 2
        assert letter.error.encode("utf-8")
        await planner.send("coder", 2, id="two")
    await still_there(worlds, {"two"})


async def test_a_subclass_counts_as_what_it_is(worlds: Worlds) -> None:
    async with await worlds.open() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send(
            Words("coder"), 1, id=Words("one"), task=Words("t"), priority=Whole(2), ttl=Whole(60)
        )
        delivery = await coder.receive(timeout=5)
        assert (delivery.id, delivery.task, delivery.priority) == ("one", "t", 2)
        await delivery.nack(Words("busy"), code=Words("other"), delay_ms=Whole(0))
    await still_there(worlds, {"one"})
