"""From a declaration to the adapter that runs it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from relaymesh.agents.adapter import Adapter
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.declarations import AgentDeclaration
from relaymesh.errors import InvalidSettings

__all__ = ["TOKEN_VARIABLE", "URL_VARIABLE", "adapter_of"]

URL_VARIABLE = "RELAYMESH_URL"
TOKEN_VARIABLE = "RELAYMESH_TOKEN"


def adapter_of(
    declared: AgentDeclaration, *, url: str, token_file: Path, runs: Path, mark: str, directory: Path
) -> Adapter:
    """The adapter. Its processes get the address of the node, and the agent's own token by reference.

    `mark` is for processes that run longer than one attempt; `directory` is their working directory.
    """
    limits = Limits(
        time_s=declared.time_limit,
        silence_s=declared.silence_limit,
        result_bytes_max=declared.result_bytes_max,
        log_bytes_max=declared.log_bytes_max,
        processes_max=declared.processes_max,
        processes_unbounded=declared.processes_unbounded,
        grace_s=declared.grace,
    )
    command = Command(
        argv=declared.command or (sys.executable,),
        env={**declared.environment, URL_VARIABLE: url},
        secrets={**declared.secrets, TOKEN_VARIABLE: f"file:{token_file}"},
        pass_env=declared.pass_environment,
        user=declared.user,
    )
    # A kind that no agent is of is not loaded.
    if declared.kind == "script":
        from relaymesh.agents.script import Script  # noqa: PLC0415

        return Script(command, limits, runs=runs)
    if declared.kind in ("worker", "python"):
        return _lasting(declared, command, limits, runs=runs, mark=mark, directory=directory)
    raise InvalidSettings(f"an agent of kind {declared.kind} has no process")


def _lasting(
    declared: AgentDeclaration, command: Command, limits: Limits, *, runs: Path, mark: str, directory: Path
) -> Adapter:
    """The adapter of processes that stay. `concurrency` is shared among them."""
    from relaymesh.agents.python import PythonFunction  # noqa: PLC0415
    from relaymesh.agents.worker import Worker  # noqa: PLC0415
    from relaymesh.agents.worker_group import WorkerGroup  # noqa: PLC0415

    count = declared.processes

    def made(mark: str) -> Worker:
        fields: dict[str, Any] = {
            "runs": runs,
            "mark": mark,
            "directory": directory,
            "parallel": math.ceil(declared.concurrency / count),
            "pause_s_min": declared.backoff_min,
            "pause_s_max": declared.backoff_max,
        }
        if declared.kind == "python":
            return PythonFunction(declared.run, limits, command=command, **fields)
        return Worker(command, limits, **fields)

    if count == 1:
        return made(mark)
    return WorkerGroup([made(f"{mark}.{number}") for number in range(1, count + 1)])
