"""The table of the fields of `send` in the reference is what `send` does."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from relaymesh import InvalidEnvelope, PayloadTooLarge
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.compose import OPTIONS
from relaymesh.testing import ManualMesh
from tests.project.send_fields import BOUNDS
from tests.project.tree import ROOT

AT_THE_BOUND: list[tuple[str, str, Any]] = [
    ("to", "128", "a" * 128),
    ("id", "128", "i" * 128),
    ("type", "128", "t" * 128),
    ("priority", "1", 1),
    ("priority", "5", 5),
    ("task", "512", "t" * 512),
    ("key", "512", "k" * 512),
    ("ttl", "0", 0),
    ("correlation_id", "512", "c" * 512),
    ("reply_to", "128", "a" * 128),
    ("requires_ack", "True", True),
    ("tags", "64", ["t" * 512] * 64),
    ("max_retries", "0", 0),
    ("max_retries", "1,000,000", 1_000_000),
    ("timeout", "0", 0),
    ("timeout", "1,000,000,000", 1e9),
    ("trace", "512", "t" * 512),
    ("extra", "256", {f"{i:0256}": i for i in range(256)}),
    ("content", "10 MiB", b"x" * 10_485_760),
    ("delay_ms", "0", 0),
]
BEYOND: list[tuple[str, Any]] = [
    ("to", "a" * 129),
    ("to", ""),
    ("id", "i" * 129),
    ("id", "tab\t"),
    ("type", "t" * 129),
    ("type", "ack"),
    ("priority", 0),
    ("priority", 6),
    ("task", "t" * 513),
    ("key", "k" * 513),
    ("key", ""),
    ("ttl", -1),
    ("correlation_id", "c" * 513),
    ("reply_to", "a" * 129),
    ("requires_ack", 1),
    ("tags", ["t"] * 65),
    ("tags", ["t" * 513]),
    ("max_retries", -1),
    ("max_retries", 1_000_001),
    ("trace", "t" * 513),
    ("extra", {str(i): i for i in range(257)}),
    ("extra", {"n" * 257: 1}),
    ("extra", {"id": "forged"}),
]
CUT: list[tuple[str, Any, str, int]] = [
    ("delay_ms", 2**53 + 1, "delay_ms", 2**53),
    ("delay_ms", -1, "delay_ms", 0),
    ("ttl", 2**53, "ttl_ms", 2**53),
]


@pytest.fixture
def mesh() -> Any:
    with ManualMesh() as mesh:
        mesh.agent("coder")
        mesh.agent("a" * 128)
        yield mesh


def send(mesh: Any, field: str, value: Any) -> Any:
    fields = {"to": "coder", "content": 1, field: value}
    return mesh.agent("planner").send(fields.pop("to"), fields.pop("content"), **fields)


def test_every_field_has_a_row_with_its_bounds() -> None:
    names = list(inspect.signature(Agent.send).parameters)[1:]
    assert list(BOUNDS) == names
    assert set(names) == OPTIONS | {"to", "content", "timeout"}
    page = (ROOT / "docs/reference/sdk.md").read_text(encoding="utf-8")
    part = page.partition("### Fields of `send`")[2].partition("\n## ")[0]
    assert "| field | type | default | bounds | what it is |" in part
    for name, bounds in BOUNDS.items():
        assert re.search(rf"^\| `{name}` \| `[^`]+` \| \S.* \| {re.escape(bounds)} \| \S", part, re.MULTILINE)


@pytest.mark.parametrize(("field", "shown", "value"), AT_THE_BOUND)
def test_a_value_at_its_bound_is_sent(mesh: Any, field: str, shown: str, value: Any) -> None:
    assert shown in BOUNDS[field]
    assert send(mesh, field, value).notes == ()


@pytest.mark.parametrize(("field", "value"), BEYOND)
def test_a_value_beyond_its_bound_is_refused(mesh: Any, field: str, value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        send(mesh, field, value)
    assert mesh.stats().pending == 0


@pytest.mark.parametrize(("field", "value", "kept", "as_"), CUT)
def test_a_time_beyond_its_bound_is_cut(mesh: Any, field: str, value: Any, kept: str, as_: int) -> None:
    assert "cut" in BOUNDS[field]
    send(mesh, field, value)
    mesh.force_deliver_delayed()
    assert getattr(mesh.agent("coder").receive(timeout=0).envelope, kept) == as_


def test_content_beyond_its_bound_is_refused(mesh: Any) -> None:
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    assert send(mesh, "content", deep).id
    with pytest.raises(InvalidEnvelope, match="64 levels"):
        send(mesh, "content", [deep])
    with pytest.raises(PayloadTooLarge):
        send(mesh, "content", b"x" * 10_485_761)
