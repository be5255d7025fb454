"""A team as values: what `relaymesh.toml` declares. The values are frozen and checked when they are built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

__all__ = ["KINDS", "AgentDeclaration", "Kind", "MeshDeclaration", "Team"]

Kind = Literal["script", "worker", "python", "person"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""script: one process for each step. worker: one process that keeps running. python: a function. person:
no process."""


class MeshDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[mesh]`: the node. A change takes effect at the next `relaymesh up`."""

    directory: Path
    """The data directory; a relative path starts at the folder of the file. `--dir` and RELAYMESH_HOME
    take precedence."""
    port: int = 0
    """The port of the node, on this machine only. 0: a free port, the same until `down`."""
    graceful_timeout: float = 15.0
    """How long a stop may take before running steps are ended. Raising it: `down` waits for longer steps.
    """


class AgentDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[agents.NAME]`. A change of it restarts this agent and no other."""

    name: str
    """The agent, and its mailbox."""
    kind: Kind = "script"
    """`script`: a process for each step. `worker`: one process that keeps running. `python`: a Python
    function. `person`: a person, who answers with `relaymesh answer`; it has no process."""
    command: tuple[str, ...] = ()
    """For a script and a worker: the program and its arguments, as a list. No shell reads it."""
    run: str = ""
    """For a python agent: the function, as `module:name`. It gets the work and returns the result."""
    role: str = ""
    """Its role in the Mailbox protocol: manager, developer, reviewer, tester or agent. Default: agent."""
    capabilities: tuple[str, ...] = ()
    """What it can do. A workflow may name a capability instead of an agent."""
    concurrency: int = 1
    """How many steps run at once. For a script, each is a process. Default: as many as `processes`."""
    processes: int = 1
    """For a worker and a python agent: how many processes share the steps. Raising it: their memory."""
    time_limit: float | None = None
    """How long one attempt may take, as 90 (seconds) or "10m". None: no limit."""
    silence_limit: float | None = None
    """How long one attempt may go without output. None: no limit."""
    grace: float = 5.0
    """Time between SIGTERM and SIGKILL. Also the time that running steps have when the agent restarts."""
    workspace: str = "."
    """The working directory; a relative path starts at the folder of the file. `fresh`: an empty one for
    each attempt."""
    environment: dict[str, str] = {}
    """Variables with their values. Not for secrets."""
    pass_environment: tuple[str, ...] = ()
    """Variables of `relaymesh up` that the agent gets too. It always gets PATH, HOME, LANG and a few more."""
    secrets: dict[str, str] = {}
    """Variables with references, `env:NAME` or `file:PATH`. They are read at each start and never stored."""
    user: str | None = None
    """Run as this user of the system. Needs root. None: as the user of `relaymesh up`."""
    processes_max: int | None = None
    """Processes and threads of one attempt. Needs a pids cgroup, or `user` and root. None: no limit."""
    processes_unbounded: Literal["refuse", "run"] = "refuse"
    """If `processes_max` cannot be enforced: `refuse` the work with the reason, or `run` it without the
    limit."""
    result_bytes_max: int = 10_485_760
    """The longest result, in bytes. Raising it: that much more memory for each running step."""
    log_bytes_max: int = 67_108_864
    """How many bytes of output are kept for one attempt, for each stream. Raising it: that much more disk."""
    backoff_min: float = 1.0
    """The pause after a crash of the agent, before it gets new work. It doubles with each crash in a row."""
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
