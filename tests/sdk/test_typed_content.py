"""`delivery.as_type`: content as a type of the receiver's own, or a validation error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from relaymesh import InvalidValue
from tests.sdk.uniform import Worlds
from tests.waiting import until_async


class StructOrder(msgspec.Struct):
    item: str
    count: int
    due: datetime | None = None


@dataclass
class DataclassOrder:
    item: str
    count: int
    due: datetime | None = None


class PydanticOrder(pydantic.BaseModel):
    item: str
    count: int
    due: datetime | None = None


class StrictOrder(PydanticOrder):
    model_config = pydantic.ConfigDict(strict=True)


class DictOrder(TypedDict):
    item: str
    count: int


class Opaque:
    """A class of which nothing says how it is made of content."""


MODELS: list[Any] = [StructOrder, DataclassOrder, PydanticOrder, StrictOrder]


@pytest.mark.parametrize("model", MODELS)
async def test_content_becomes_an_instance(worlds: Worlds, model: Any) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        await coder.send("coder", {"item": "nut", "count": 3, "due": "2026-01-02T03:04:05Z"})
        delivery = (await coder.receive(timeout=5)).inner
        order = delivery.as_type(model)
        assert type(order) is model
        assert (order.item, order.count) == ("nut", 3)
        assert order.due == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert delivery.content["due"] == "2026-01-02T03:04:05Z", "the content itself stays as it was"


async def test_content_becomes_a_typed_dict_or_a_builtin(worlds: Worlds) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        await coder.send("coder", {"item": "nut", "count": 3, "colour": "red"})
        delivery = (await coder.receive(timeout=5)).inner
        assert delivery.as_type(DictOrder) == {"item": "nut", "count": 3}
        assert delivery.as_type(dict) == delivery.content
        await coder.send("coder", [1, 2, 2])
        delivery = (await coder.receive(timeout=5)).inner
        assert delivery.as_type(set[int]) == {1, 2}
        assert delivery.as_type(list[int] | None) == [1, 2, 2]
        await coder.send("coder", b"\x00raw")
        assert (await coder.receive(timeout=5)).inner.as_type(bytes) == b"\x00raw"


@pytest.mark.parametrize("model", [*MODELS, DictOrder])
@pytest.mark.parametrize("content", [{"item": "nut", "count": "three"}, {"item": "nut"}])
async def test_a_handler_whose_content_does_not_fit_makes_a_dead_letter_that_names_the_field(
    worlds: Worlds, model: Any, content: Any
) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")

        @coder.handle
        def work(delivery: Any) -> None:
            delivery.as_type(model)

        await planner.send("coder", content)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        (letter,) = await mesh.dead_letters()
        assert (letter.code, letter.attempts, letter.reason) == ("invalid", 1, "not_retryable")
        assert "ValidationError" in letter.error
        assert "count" in letter.error


@pytest.mark.parametrize("model", MODELS)
async def test_bytes_fit_no_model(worlds: Worlds, model: Any) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        await coder.send("coder", b'{"item": "nut", "count": 3}')
        delivery = (await coder.receive(timeout=5)).inner
        with pytest.raises((msgspec.ValidationError, pydantic.ValidationError)):
            delivery.as_type(model)


@pytest.mark.parametrize("content", [{"item": "nut"}, b"raw"])
@pytest.mark.parametrize("kind", [5, None.__class__.__name__, Opaque, [int], lambda: 1])
async def test_what_is_no_type_of_content_is_refused_as_such(worlds: Worlds, kind: Any, content: Any) -> None:
    """It is the program's mistake: the sender's message is not to blame, and stays."""
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        await coder.send("coder", content)
        with pytest.raises(InvalidValue, match=r"^content cannot be made into"):
            (await coder.receive(timeout=5)).inner.as_type(kind)
