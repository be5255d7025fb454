"""Functions that the tests of `PythonFunction` serve."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

from relaymesh import Continue, Drop, Failed, Reject, Result, Retry
from relaymesh.agents.serve_function import Assignment

TOGETHER = threading.Barrier(3)


def double(assignment: Assignment) -> Any:
    print("printed, and no protocol")
    assignment.progress("doubling")
    assignment.usage(cost_usd=0.25, tokens=3)
    return {"twice": assignment.content["n"] * 2, "from": assignment.sender}


async def later(assignment: Assignment) -> Any:
    await asyncio.sleep(0.01)
    return assignment.content


def ends(assignment: Assignment) -> Any:
    how = assignment.content
    if how == "retry":
        raise Retry("busy", after=2)
    if how == "until":
        raise Retry("quota", until=4_102_444_800)
    if how == "reject":
        raise Reject("no")
    if how == "failed":
        raise Failed("no branch", code="no_branch", usage={"tokens": 9})
    if how == "drop":
        raise Drop("nothing to do")
    if how == "value":
        raise ValueError("bad \ud800")
    if how == "timeout":
        raise TimeoutError("slow")
    if how == "exit":
        sys.exit(3)
    if how == "continue":
        return Continue([{"name": "t", "agent": "tester"}])
    if how == "bytes":
        return b"raw"
    if how == "nan":
        return float("nan")
    return Result({"a": 1}, usage={"cost_usd": 0.5})


def stuck(assignment: Assignment) -> None:
    time.sleep(60)


async def stuck_softly(assignment: Assignment) -> str:
    try:
        await asyncio.sleep(60)
    finally:
        assignment.progress(f"stopped in {os.getpid()}")
    return "never"


def together(assignment: Assignment) -> int:
    return TOGETHER.wait(20)


def dies(assignment: Assignment) -> None:
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    os._exit(assignment.content)


def process(assignment: Assignment) -> int:
    return os.getpid()
