"""The running agents, and how changes of the file are applied to them.

Only a changed agent restarts: it gets no more work, its running work may finish within its grace, and then
the new agent starts. The others continue.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

from relaymesh.agents.adapters import adapter_of
from relaymesh.agents.agent_tokens import AgentTokens
from relaymesh.agents.declarations import AgentDeclaration, Team
from relaymesh.agents.log_file import LogFile
from relaymesh.agents.member import Member, Tell
from relaymesh.agents.node_link import NodeLink
from relaymesh.agents.person import Person
from relaymesh.agents.places import Places
from relaymesh.agents.run_output import RunOutput
from relaymesh.agents.run_records import RunRecords
from relaymesh.errors import MeshError

__all__ = ["Crew"]


class Crew:
    """Used only on the event loop. Changes are made one after the other; a stop may come during a change."""

    def __init__(
        self,
        places: Places,
        *,
        tokens: AgentTokens,
        records: RunRecords,
        mark: str,
        node: NodeLink,
        tell: Tell,
    ) -> None:
        self.team: Team | None = None
        self._places = places
        self._tokens = tokens
        self._records = records
        self._output = RunOutput(places.output)
        self._mark = mark
        self._node = node
        self._tell = tell
        self._members: dict[str, Member | Person] = {}
        self._failed: dict[str, str] = {}
        """Agents that could not start, and why."""
        self._numbers = itertools.count(1)
        self._changing = asyncio.Lock()
        self._stopping = False

    def shown(self) -> list[dict[str, Any]]:
        """For `relaymesh ps`."""
        rows = [member.shown() for member in self._members.values()]
        for name, problem in self._failed.items():
            rows.append({"agent": name, "state": "failed", "running": [], "last_error": problem})
        return rows

    async def change_to(self, team: Team) -> None:
        """Stop the agents that were removed or changed, start those that are new or changed."""
        async with self._changing:
            before = {name: member.declared for name, member in self._members.items()}
            after = {each.name: each for each in team.agents}
            gone = [name for name, declared in before.items() if after.get(name) != declared]
            self.team = team
            self._failed.clear()
            await self._end_all(gone)
            await self._begin_all([each for name, each in after.items() if name not in self._members], before)

    async def restart(self, names: Iterable[str]) -> tuple[list[str], str]:
        """Restart these agents; an empty list: all. Returns the restarted agents, and a problem or ""."""
        async with self._changing:
            declared = {} if self.team is None else {each.name: each for each in self.team.agents}
            wanted = list(names) or list(declared)
            unknown = [name for name in wanted if name not in declared]
            if unknown:
                return [], f"there is no agent {unknown[0]}; there are {', '.join(declared) or 'none'}"
            await self._end_all([name for name in wanted if name in self._members])
            await self._begin_all([declared[name] for name in wanted], declared)
            for name in wanted:
                if name in self._failed:
                    return [each for each in wanted if each not in self._failed], self._failed[name]
            return wanted, ""

    @property
    def at_work(self) -> int:
        return len(self._members)

    async def look_after(self) -> None:
        """Give new tokens to agents whose token is at half of its time. Restart those that need a restart
        for it."""
        cut_off = [name for name, member in self._members.items() if member.is_cut_off]
        if cut_off:
            await self.restart(cut_off)
        due = [name for name in self._members if self._tokens.is_due(name)]
        for name in due:
            await asyncio.to_thread(self._tokens.issue, name)
        lasting = [name for name in due if self._members[name].declared.kind in ("worker", "python")]
        if lasting:
            await self.restart(lasting)

    async def stop(self, grace_s: float) -> None:
        """End all agents, also those that a change is already ending."""
        self._stopping = True
        await asyncio.gather(*[self._end(name, grace_s) for name in list(self._members)])
        async with self._changing:
            await asyncio.gather(*[self._end(name, 0.0) for name in list(self._members)])

    # -- one each

    async def _end_all(self, names: Iterable[str]) -> None:
        await asyncio.gather(*[self._end(name, self._members[name].declared.grace) for name in names])

    async def _begin_all(
        self, declared: Iterable[AgentDeclaration], before: dict[str, AgentDeclaration]
    ) -> None:
        for each in declared:
            if not self._stopping:
                await self._begin(each, "restarted" if each.name in before else "started")

    async def _begin(self, declared: AgentDeclaration, how: str) -> None:
        name = declared.name
        try:
            member = await self._made(declared)
            await member.start()
        except MeshError as error:
            self._failed[name] = str(error)
            self._tell("agent.failed", f"{name} cannot start: {error}", agent=name)
            await asyncio.to_thread(self._tokens.revoke, name)
            return
        self._failed.pop(name, None)
        self._members[name] = member
        self._tell(f"agent.{how}", f"{name} {how} ({declared.kind})", agent=name)

    async def _made(self, declared: AgentDeclaration) -> Member | Person:
        assert self.team is not None
        if declared.kind == "person":
            return Person(declared, self._node.connect)
        await asyncio.to_thread(self._tokens.issue, declared.name)
        mark = f"{self._mark}.agent{next(self._numbers)}"
        adapter = adapter_of(
            declared,
            url=self._node.url,
            token_file=self._tokens.path_of(declared.name),
            runs=self._places.output,
            mark=mark,
            directory=self.team.folder / ("." if declared.workspace == "fresh" else declared.workspace),
        )
        return Member(
            declared,
            adapter,
            folder=self.team.folder,
            open_session=self._node.connect,
            records=self._records,
            output=self._output,
            log=LogFile(self._places.log_of(declared.name)),
            mark=mark,
            new_run=self._new_run,
            tell=self._tell,
        )

    async def _end(self, name: str, grace_s: float) -> None:
        member = self._members.get(name)
        if member is None:
            return
        await member.stop(grace_s)
        if self._members.pop(name, None) is not None:
            await asyncio.to_thread(self._tokens.revoke, name)
            self._tell("agent.stopped", f"{name} stopped", agent=name)

    def _new_run(self) -> str:
        return f"{self._mark}.{next(self._numbers)}"
