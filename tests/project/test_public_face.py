"""What `from relaymesh import …` gives: enough to annotate a program, and quickly."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import relaymesh
from tests.project.tree import ROOT

PROGRAM = """
import asyncio
from collections.abc import Callable
from typing import Any, TypedDict, assert_type

from relaymesh import (
    Agent, AsyncAgent, AsyncDelivery, AsyncMesh, AsyncSubscription, DeadLetter, Delivery, Mesh, Receipt,
    Subscription,
)


class Order(TypedDict):
    count: int


def work(delivery: Delivery) -> None:
    assert_type(delivery.as_type(Order), Order)
    assert_type(delivery.as_type(list[int]), list[int])
    assert_type(delivery.ack_and_send("coder", delivery.content), Receipt)


def plan(planner: Agent, orders: Subscription) -> Receipt:
    assert_type(planner.receive(timeout=0), Delivery)
    orders.handle(work)
    assert_type(orders.handle(concurrency=2, time_limit=30)(work), Callable[[Delivery], Any])
    assert_type(orders.handle(work, concurrency=2), Callable[[Delivery], Any])
    return planner.send("coder", {"do": "bump"})


def dead(mesh: Mesh) -> list[DeadLetter]:
    coder: Agent = mesh.agent("coder")
    orders: Subscription = mesh.subscribe("order.*", "billing")
    assert_type(plan(coder, orders), Receipt)
    return mesh.dead_letters()


async def work_async(delivery: AsyncDelivery) -> None:
    await delivery.ack()


async def plan_async(mesh: AsyncMesh) -> Receipt:
    coder: AsyncAgent = await mesh.agent("coder")
    orders: AsyncSubscription = await mesh.subscribe("order.*", "billing")
    orders.handle(work_async)
    return await coder.send("coder", 1)
"""
MISTAKEN = """
from relaymesh import Agent, Receipt


def plan(planner: Agent) -> Receipt:
    return planner.receive(timeout=0)
"""
FOR_ANNOTATIONS = [
    "Agent",
    "AsyncAgent",
    "AsyncDelivery",
    "AsyncSubscription",
    "DeadLetter",
    "Delivery",
    "Receipt",
    "Subscription",
]


def checked(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """What a strict type checker says of a program that uses the installed package."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    cache = ROOT / ".mypy_cache" / "public_face"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", file.name]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)


def test_a_program_is_annotated_with_names_of_relaymesh_alone(tmp_path: Path) -> None:
    found = checked(PROGRAM, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_type_checker_sees_what_these_names_are(tmp_path: Path) -> None:
    found = checked(MISTAKEN, tmp_path)
    assert 'got "Delivery", expected "Receipt"' in found.stdout


@pytest.mark.parametrize("name", FOR_ANNOTATIONS)
def test_a_name_is_the_class_that_calls_return(name: str) -> None:
    cls = getattr(relaymesh, name)
    assert name in relaymesh.__all__
    assert isinstance(cls, type)
    assert getattr(importlib.import_module(cls.__module__), name) is cls
