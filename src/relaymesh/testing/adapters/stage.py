"""What an adapter under test gets: where it may write, and the agent that it is to run."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

__all__ = ["Stage"]

AGENT = Path(__file__).with_name("agent.py")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Passed to the factory of an adapter, once for each case."""

    folder: Path
    """For logs and whatever else it writes. The suite looks at its size."""
    script: tuple[str, ...] = (sys.executable, str(AGENT))
    """The agent as one process for each work: the request on stdin, the result on stdout."""
    worker: tuple[str, ...] = (sys.executable, str(AGENT), "--lines")
    """The agent as a long-lived process that speaks lines."""
    function: str = "relaymesh.testing.adapters.agent:play"
    """The agent as a Python function."""
    processes_max: int | None = None
    """The bound on processes that the case `fork bomb` wants. An adapter that cannot keep it refuses."""
    grace_s: float = 0.5
    """Between asking an agent to end and killing it."""
