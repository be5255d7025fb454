"""A team as values: what `relaymesh.toml` declares, checked. Frozen, and legal if it exists."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

__all__ = ["KINDS", "AgentDeclaration", "Kind", "MeshDeclaration", "Team"]

Kind = Literal["script", "worker", "python", "person"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""script: one process a step. worker: one that stays. python: a function. person: no process at all."""


class MeshDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[mesh]`: the node. A change of it counts from the next `relaymesh up` on."""

    directory: Path
    """The data directory; a relative path starts at the file. `--dir` and RELAYMESH_HOME go before it."""
    port: int = 0
    """Where the node listens, on this machine alone. 0: a free port, kept until `down`."""
    graceful_timeout: float = 15.0
    """How long a stop may take before what still runs is cut off.

    Raising it: `down` waits for longer steps.
    """


class AgentDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[agents.NAME]`. A change of it restarts this agent and no other."""

    name: str
    """The agent, and its mailbox."""
    kind: Kind = "script"
    """`script`: a process for each step. `worker`: one process that stays. `python`: a Python function.
    `person`: a person, who answers with `relaymesh answer`; it has no process."""
    command: tuple[str, ...] = ()
    """The program and its arguments, a list; not a line for a shell. Of a script and of a worker."""
    run: str = ""
    """`module:name`: what `relaymesh worker run` would run. Of a python agent."""
    role: str = ""
    """Its role in the Mailbox protocol: manager, developer, reviewer, tester or agent. None given: agent."""
    capabilities: tuple[str, ...] = ()
    """What it can do. A workflow may ask for a capability in place of a name."""
    concurrency: int = 1
    """Steps at once. Raising it: as many more processes, and their memory."""
    time_limit: float | None = None
    """How long one attempt may take, as 90 (seconds) or "10m". None: no limit."""
    silence_limit: float | None = None
    """How long one attempt may go without output. None: no limit."""
    grace: float = 5.0
    """Time between SIGTERM and SIGKILL, and for running steps when the agent restarts."""
    workspace: str = "."
    """The working directory; a relative path starts at the file. `fresh`: an empty one for each attempt."""
    environment: dict[str, str] = {}
    """Variables with their values. Not for secrets."""
    pass_environment: tuple[str, ...] = ()
    """Variables of `relaymesh up` that it gets too. Of itself it gets PATH, HOME, LANG and the like."""
    secrets: dict[str, str] = {}
    """Variables with references, `env:NAME` or `file:PATH`: read at each start, written down nowhere."""
    user: str | None = None
    """Run as this user of the system. Needs root. None: as the user of `relaymesh up`."""
    processes_max: int | None = None
    """Processes and threads of one attempt. Needs a pids cgroup, or `user` and root. None: no limit."""
    processes_unbounded: Literal["refuse", "run"] = "refuse"
    """Where `processes_max` cannot be had: `refuse` the work with the reason, or `run` it all the same."""
    result_bytes_max: int = 10_485_760
    """The longest result. Raising it: as much memory for each step at once."""
    log_bytes_max: int = 67_108_864
    """What is kept of the output of one attempt, for each stream. Raising it: as much disk."""
    backoff_min: float = 1.0
    """The pause after a crash of the agent, before it gets new work. Doubled with each crash in a row."""
    backoff_max: float = 60.0
    """The longest such pause."""


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    path: Path
    mesh: MeshDeclaration
    agents: tuple[AgentDeclaration, ...] = ()

    @property
    def folder(self) -> Path:
        return self.path.parent
