"""Factories of the adapters that RelayMesh has, for the suite: `relaymesh.testing.adapters.ours:script`."""

from __future__ import annotations

import uuid
from pathlib import Path

from relaymesh.agents.command import Command, Limits
from relaymesh.agents.python import PythonFunction
from relaymesh.agents.script import Script
from relaymesh.agents.worker import Worker
from relaymesh.agents.worker_group import WorkerGroup
from relaymesh.testing.adapters.stage import Stage

__all__ = ["function", "script", "worker", "workers"]


def script(stage: Stage) -> Script:
    return Script(Command(argv=stage.script), _limits(stage), runs=stage.folder)


def worker(stage: Stage) -> Worker:
    command = Command(argv=stage.worker)
    return Worker(command, _limits(stage), runs=stage.folder, mark=_mark(), directory=stage.folder)


def workers(stage: Stage) -> WorkerGroup:
    """The same, of two processes."""
    return WorkerGroup([worker(stage), worker(stage)])


def function(stage: Stage) -> PythonFunction:
    return PythonFunction(
        stage.function, _limits(stage), runs=stage.folder, mark=_mark(), directory=Path.cwd()
    )


def _limits(stage: Stage) -> Limits:
    return Limits(grace_s=stage.grace_s, processes_max=stage.processes_max)


def _mark() -> str:
    return f"conformance-{uuid.uuid4().hex}"
