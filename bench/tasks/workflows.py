"""The workflows that are run, as documents: the same work for threads, for a loop and for a WebSocket."""

from __future__ import annotations

from typing import Any

AGENT = "worker"
WARM_UP: dict[str, Any] = {"workflow": "warm-up", "steps": {"one": {"agent": AGENT, "input": "${{ input }}"}}}


def requests(work: str, count: int) -> list[tuple[dict[str, Any], Any]]:
    """Documents and inputs, `count` steps in all: run one after the other, or `together` all at once."""
    if work == "chain":
        return [(chain(count), 1)]
    if work in ("small", "together"):
        return [(small(), number) for number in range(count)]
    return [(fan_out(), {"items": list(range(count))})]


def chain(count: int) -> dict[str, Any]:
    """Each step gets what the one before it returned."""
    steps: dict[str, Any] = {"s0": {"agent": AGENT, "input": "${{ input }}"}}
    for number in range(1, count):
        before = f"s{number - 1}"
        steps[f"s{number}"] = {
            "agent": AGENT,
            "needs": [before],
            "input": f"${{{{ steps.{before}.output }}}}",
        }
    return {"workflow": "chain", "steps": steps}


def small() -> dict[str, Any]:
    return {"workflow": "small", "steps": {"one": {"agent": AGENT, "input": "${{ input }}"}}}


def fan_out() -> dict[str, Any]:
    each = {"agent": AGENT, "for_each": "${{ input.items }}", "input": "${{ item }}"}
    return {"workflow": "fan-out", "steps": {"each": each}}


def check(work: str, input: Any, result: Any) -> None:
    """Every step ran, and each result is in its place."""
    wanted = input["items"] if work == "fan-out" else input
    if result != wanted:
        raise RuntimeError(f"{work} gave {str(result)[:200]}")
