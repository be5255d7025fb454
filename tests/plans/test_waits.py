"""Steps that wait, and steps that are another workflow: what the kernel gets of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from relaymesh.kernel.tasks.plan import StepPlan, WaitPlan
from relaymesh.plans.document import agents_of, compile_plan
from relaymesh.plans.moment import moment_ms
from tests.plans.documents import ask, bare


def step(document: dict[str, Any]) -> StepPlan:
    [found] = compile_plan(document, "default").steps
    return found


def test_a_question_is_the_input_of_a_step_that_asks() -> None:
    asked = step(ask(options=["ship", "stop"], timeout="8h", default="stop", priority="urgent"))
    assert asked == StepPlan(
        name="a",
        mailbox="default/owner",
        input=b'{"question":"ok?","options":["ship","stop"]}',
        timeout_ms=28_800_000,
        priority=step(ask(priority="urgent")).priority,
        wait=WaitPlan(kind="ask", options=("ship", "stop"), default=b'"stop"'),
    )


def test_a_question_is_any_json_and_may_read() -> None:
    asked = step(ask(question={"text": "Ship ${{ input.version }}?", "diff": "${{ input.diff }}"}))
    assert asked.dynamic
    assert msgspec.json.decode(asked.input)["question"]["diff"] == "${{ input.diff }}"
    assert msgspec.json.decode(asked.input)["options"] == []
    each = step(ask(for_each="${{ input.x }}", question="Take ${{ item }}, number ${{ index }}?"))
    assert (each.for_each, each.dynamic) == ("input.x", True)


@pytest.mark.parametrize("default", [None, False, 0, "", {"a": [1]}, "x" * 65_534])
def test_without_options_a_default_is_any_json_also_null(default: Any) -> None:
    assert step(ask(timeout=1, default=default)).wait == WaitPlan(
        kind="ask", default=msgspec.json.encode(default)
    )


def test_without_a_default_the_step_times_out() -> None:
    assert step(ask(timeout=1)).wait == WaitPlan(kind="ask")


@pytest.mark.parametrize(
    ("wait", "input", "dynamic"),
    [
        ("30s", b"30", False),
        ("1500ms", b"1.5", False),
        (2.25, b"2.25", False),
        ("365d", b"31536000", False),
        ("${{ input.pause }}", b'"${{ input.pause }}"', True),
        ({"until": "2026-11-20T07:00:00Z"}, b'"2026-11-20T07:00:00Z"', False),
        ({"until": "${{ input.day }}T07:00:00Z"}, b'"${{ input.day }}T07:00:00Z"', True),
    ],
)
def test_a_wait_is_a_number_of_seconds_or_a_timestamp(wait: Any, input: bytes, dynamic: bool) -> None:
    assert step(bare(wait=wait)) == StepPlan(
        name="a", mailbox="", input=input, dynamic=dynamic, wait=WaitPlan(kind="wait")
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T07:00:00Z", 1_795_158_000_000),
        ("2026-11-20t08:00:00+01:00", 1_795_158_000_000),
        ("2026-11-20T07:00:00.123456789z", 1_795_158_000_123),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("0001-01-01T00:00:00+14:00", None),
        ("2026-11-20T24:00:00Z", None),
        ("2026-11-20T07:00:00+24:00", None),
        ("2026-11-20 07:00:00Z", None),
        ("2026-11-20T07:00Z", None),
        ("20261120T070000Z", None),
        ("2026-11-20T07:00:00Z\n", None),
        ("٢٠٢٦-11-20T07:00:00Z", None),
    ],
)
def test_a_moment_is_rfc_3339_with_an_offset(text: str, ms: int | None) -> None:
    assert moment_ms(text) == ms


def test_a_signal_has_a_name_of_its_own() -> None:
    waits = step(bare(signal="payment.done", timeout="1d", default={"paid": False}))
    assert waits == StepPlan(
        name="a",
        mailbox="",
        timeout_ms=86_400_000,
        wait=WaitPlan(kind="signal", signal="payment.done", default=b'{"paid":false}'),
    )


def test_an_included_workflow_gets_an_input() -> None:
    included = step(
        bare(
            workflow="release@3",
            for_each="${{ input.x }}",
            parallel=2,
            input={"repo": "${{ item }}"},
            on_failure="continue",
        )
    )
    assert included == StepPlan(
        name="a",
        mailbox="",
        include="release@3",
        input=b'{"repo":"${{ item }}"}',
        dynamic=True,
        for_each="input.x",
        parallel=2,
        on_failure="continue",
    )
    assert agents_of(compile_plan(bare(workflow="release"))) == []


def test_a_field_that_is_null_is_not_given() -> None:
    assert step(bare(agent=None, wait=5, timeout=None, compensate=None)) == step(bare(wait=5))
