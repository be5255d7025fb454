"""One attempt of a small program, as the tests of adapters run it."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from relaymesh.agents.adapter import Event, Outcome, Work
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.script import Script

MARKS = f"test-{os.getpid()}-"
"""How the marks of these tests begin: other tests run at the same time."""
BRIEF = Limits(grace_s=0.2, time_s=20)


def work(content: bytes = b'{"do":"it"}', **fields: Any) -> Work:
    given: dict[str, Any] = {
        "run": f"{MARKS}{uuid.uuid4().hex}",
        "agent": "coder",
        "message_id": "m1",
        "type": "task_assign",
        "sender": "planner",
        "content": content,
    }
    return Work(**(given | fields))


def sh(text: str, **fields: Any) -> Command:
    return Command(argv=("sh", "-c", text), **fields)


def py(text: str, **fields: Any) -> Command:
    return Command(argv=(sys.executable, "-c", text), **fields)


class Ran:
    """What came out of one attempt."""

    def __init__(self, outcome: Outcome, events: list[Event], folder: Path) -> None:
        self.outcome = outcome
        self.events = events
        self.folder = folder


def ran(command: Command, runs: Path, limits: Limits = BRIEF, given: Work | None = None) -> Ran:
    events: list[Event] = []
    given = given or work()
    outcome = asyncio.run(Script(command, limits, runs=runs).run(given, events.append))
    return Ran(outcome, events, runs / given.run)
